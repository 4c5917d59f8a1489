"""Candidates of a capacity question planned by a server and its workers, as many at a time as are asked at once.

A plan is known by its content, so a survey that is asked again finds what was planned before. A server is not told of
cutoffs and starts: it proves every plan that it is asked for. One that is too busy is asked again, until the survey's
time is up or it has refused for so long that it is told.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from api.client import ServerBusy, ServiceClient
from planner.documents.graphs import dump_mesh
from planner.documents.hardware import read_profile
from planner.errors import InvalidRequest
from planner.usecases.capacity import StartTask
from planner.usecases.capacity_question import CandidateResult, CandidateTask, CapacityQuestion

POLL_S, MAX_POLL_S = 0.2, 5.0
MAX_RETRY_S = 600.0
"""How long a server may refuse one thing."""


def plan_on_server(
    url: str, question: CapacityQuestion, time_limit_s: float | None = None, *, patience_s: float = MAX_RETRY_S
) -> StartTask:
    """How a server is asked, and until when for a further mesh.

    Raises InvalidRequest for a hardware that is not built in: it has its own profiles.
    """
    remote, ends = RetryingClient(ServiceClient(url), patience_s), time.monotonic() + (time_limit_s or math.inf)
    for offer in question.offers:
        name = offer.document["name"]
        if read_profile(name) != offer.document:
            raise InvalidRequest("--server with a profile of yours", got=name, wanted="a built-in profile")

    def ask(task: CandidateTask) -> Callable[[], CandidateResult] | None:
        began = time.monotonic()
        try:
            found = remote.request("/v1/plans", _request_body(task), ends)
        except ServerBusy:
            if time.monotonic() < ends:
                raise
            return None
        return lambda: _read_outcome(remote, _wait_for_plan(remote, found), began)

    return ask


def _request_body(task: CandidateTask) -> dict[str, Any]:
    mesh, request = dump_mesh(task.mesh), asdict(task.request)
    return {"graph": task.graph, "mesh": mesh, "hardware": task.profile["name"], "request": request}


@dataclass(frozen=True, slots=True)
class RetryingClient:
    """A server that may be busy for a while."""

    client: ServiceClient
    max_retry_s: float

    def request(self, path: str, body: Any = None, ends: float = math.inf) -> Any:
        """Its answer. Raises Busy where it refuses for too long, or past a moment; else as `ServiceClient.request`."""
        ends, wait_s = min(ends, time.monotonic() + self.max_retry_s), POLL_S
        while True:
            try:
                return self.client.request(path, body)
            except ServerBusy:
                if (left := ends - time.monotonic()) <= 0:
                    raise
                time.sleep(min(wait_s, left))
                wait_s = min(2 * wait_s, MAX_POLL_S)


def _wait_for_plan(remote: RetryingClient, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """A plan that has ended."""
    wait_s = POLL_S
    while found["ended_at"] is None:
        time.sleep(wait_s)
        wait_s = min(1.2 * wait_s, MAX_POLL_S)
        found = remote.request(found["links"]["self"])
    return found


def _read_outcome(remote: RetryingClient, ended: Mapping[str, Any], began: float) -> CandidateResult:
    """Of a plan that has ended; one that has failed proves nothing."""
    path, wall_s = ended["links"]["document"], time.monotonic() - began
    if path is None:
        return CandidateResult(ended["status"], None, 0.0, None, None, None, wall_s, None)
    document = remote.request(path)
    solver, peak = document["solver"], document["memory"].get("peak_bytes")
    figures = solver["objective_s"], solver["bound_s"], solver["gap"], peak, solver["least_limit_bytes"]
    return CandidateResult(solver["status"], *figures, wall_s, None)
