"""Asks a server a capacity question, and follows the search until it has ended.

The server's workers plan, and the search goes on without whoever asked: the same question asked again is followed from
where it is, or answered at once. A busy server is asked again until it has refused for MAX_RETRY_S.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from api.client import ServerBusy, ServiceClient
from api.options import CapacityOptions
from planner.documents.graphs import dump_mesh
from planner.documents.hardware import read_profile
from planner.errors import InvalidRequest
from planner.ir.mesh import Mesh
from planner.usecases.capacity_question import CapacityQuestion

POLL_S, MAX_POLL_S = 0.2, 5.0
MAX_RETRY_S = 600.0
"""The longest time that a server may refuse one request."""
OnProgress = Callable[[Mapping[str, Any]], None]
"""Called with the state of the search."""


@dataclass(frozen=True, slots=True)
class RetryingClient:
    """A client that repeats a request while the server is busy."""

    client: ServiceClient
    max_retry_s: float = MAX_RETRY_S

    def request(self, path: str, body: Any = None) -> Any:
        """Return the server's answer.

        Raises ServerBusy where the server refuses for too long, else the errors of `ServiceClient.request`.
        """
        deadline, wait_s = time.monotonic() + self.max_retry_s, POLL_S
        while True:
            try:
                return self.client.request(path, body)
            except ServerBusy:
                if (remaining_s := deadline - time.monotonic()) <= 0:
                    raise
                time.sleep(min(wait_s, remaining_s))
                wait_s = min(2 * wait_s, MAX_POLL_S)


def describe_question(
    question: CapacityQuestion, options: CapacityOptions, mesh: Mesh | None, *, jobs: int
) -> dict[str, Any]:
    """Return the request for a question. Raises InvalidRequest for hardware that the server does not have."""
    for offer in question.offers:
        name = offer.document["name"]
        if read_profile(name) != offer.document:
            raise InvalidRequest("--server with a profile of yours", got=name, wanted="a built-in profile")
    hardware = [
        {"name": offer.document["name"], "price_per_device_hour": offer.price_per_device_hour}
        for offer in question.offers
    ]
    rest = options.model_dump(exclude_none=True) | ({} if mesh is None else {"mesh": dump_mesh(mesh)})
    return {"graphs": [dict(each.document) for each in question.graphs], "hardware": hardware, "jobs": jobs, **rest}


def search_on_server(client: RetryingClient, request: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
    """Return the capacity document. Raises InvalidRequest where the search fails or is cancelled."""
    sweep, wait_s = client.request("/v1/capacity", request), POLL_S
    while sweep["ended_at"] is None:
        on_progress(sweep)
        time.sleep(wait_s)
        wait_s = min(1.2 * wait_s, MAX_POLL_S)
        sweep = client.request(sweep["links"]["self"])
    if sweep["links"]["document"] is None:
        raise InvalidRequest(f"the search on the server is {sweep['status']}", got=sweep["error"] or None)
    document: dict[str, Any] = client.request(sweep["links"]["document"])
    return document
