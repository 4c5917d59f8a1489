"""Plans the candidates of a capacity question on a server and its workers, several at a time.

The server identifies a plan by its content, so a search that is repeated finds the earlier plans. The server gets no
cutoffs and no warm starts: it proves every plan in full. A busy server is asked again until the search's time is up, or
until it has refused for MAX_RETRY_S.
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
from planner.planning.deadline import Deadline
from planner.usecases.capacity import UNFINISHED, StartTask
from planner.usecases.capacity_question import CandidateResult, CandidateTask, CapacityQuestion

POLL_S, MAX_POLL_S = 0.2, 5.0
MAX_RETRY_S = 600.0
"""The longest time that a server may refuse one request."""


def plan_on_server(
    url: str, question: CapacityQuestion, deadline: Deadline | None = None, *, patience_s: float = MAX_RETRY_S
) -> StartTask:
    """Return a function that starts the planning of one candidate on the server.

    At the `deadline` no further candidate is started, and none is waited for; the server goes on. Raises InvalidRequest
    for a hardware profile that is not built in, because the server uses its own profiles.
    """
    client, limit = RetryingClient(ServiceClient(url), patience_s), deadline or Deadline()
    ends = limit.started + (math.inf if limit.seconds is None else limit.seconds)
    for offer in question.offers:
        name = offer.document["name"]
        if read_profile(name) != offer.document:
            raise InvalidRequest("--server with a profile of yours", got=name, wanted="a built-in profile")

    def start(task: CandidateTask) -> Callable[[], CandidateResult] | None:
        started_at = time.monotonic()
        try:
            plan = client.request("/v1/plans", _request_body(task), ends)
        except ServerBusy:
            if time.monotonic() < ends:
                raise
            return None
        return lambda: _read_outcome(client, _wait_for_plan(client, plan, limit), started_at)

    return start


def _request_body(task: CandidateTask) -> dict[str, Any]:
    mesh, request = dump_mesh(task.mesh), asdict(task.request)
    return {"graph": task.graph, "mesh": mesh, "hardware": task.profile["name"], "request": request}


@dataclass(frozen=True, slots=True)
class RetryingClient:
    """A client that repeats a request while the server is busy."""

    client: ServiceClient
    max_retry_s: float

    def request(self, path: str, body: Any = None, deadline: float = math.inf) -> Any:
        """Return the server's answer.

        `ends` is the monotonic time of the last attempt. Raises ServerBusy where the server refuses for too long, else
        the errors of `ServiceClient.request`.
        """
        deadline, wait_s = min(deadline, time.monotonic() + self.max_retry_s), POLL_S
        while True:
            try:
                return self.client.request(path, body)
            except ServerBusy:
                if (remaining_s := deadline - time.monotonic()) <= 0:
                    raise
                time.sleep(min(wait_s, remaining_s))
                wait_s = min(2 * wait_s, MAX_POLL_S)


def _wait_for_plan(client: RetryingClient, plan: Mapping[str, Any], deadline: Deadline) -> Mapping[str, Any]:
    """Poll a plan until it has ended or the deadline is reached, and return its last state."""
    wait_s = POLL_S
    while plan["ended_at"] is None and deadline.left_s != 0.0:
        time.sleep(wait_s if deadline.left_s is None else min(wait_s, deadline.left_s))
        wait_s = min(1.2 * wait_s, MAX_POLL_S)
        plan = client.request(plan["links"]["self"])
    return plan


def _read_outcome(client: RetryingClient, plan: Mapping[str, Any], started_at: float) -> CandidateResult:
    """Return the result of a plan that has ended. A plan that failed proves nothing."""
    if plan["ended_at"] is None:
        return UNFINISHED
    path, wall_s = plan["links"]["document"], time.monotonic() - started_at
    if path is None:
        return CandidateResult(plan["status"], None, 0.0, None, None, None, wall_s, None)
    document = client.request(path)
    solver, peak = document["solver"], document["memory"].get("peak_bytes")
    figures = solver["objective_s"], solver["bound_s"], solver["gap"], peak, solver["least_limit_bytes"]
    return CandidateResult(solver["status"], *figures, wall_s, None)
