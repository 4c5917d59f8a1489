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

from api.remote import Busy, Remote
from planner.capacity import Ask
from planner.documents.graphs import mesh_document
from planner.documents.hardware import profile_document
from planner.errors import InvalidRequest
from planner.sweep import Outcome, Question, Task

POLL_S, LONGEST_S = 0.2, 5.0
PATIENCE_S = 600.0
"""How long a server may refuse one thing."""


def asked_of(url: str, question: Question, time_limit_s: float | None = None, patience_s: float = PATIENCE_S) -> Ask:
    """How a server is asked, and until when for a further mesh.

    Raises InvalidRequest for a hardware that is not built in: it has its own profiles.
    """
    remote, ends = Patient(Remote(url), patience_s), time.monotonic() + (time_limit_s or math.inf)
    for offer in question.offers:
        name = offer.document["name"]
        if profile_document(name) != offer.document:
            raise InvalidRequest("--server with a profile of yours", got=name, wanted="a built-in profile")

    def ask(task: Task) -> Callable[[], Outcome] | None:
        began = time.monotonic()
        try:
            found = remote.asked("/v1/plans", _body(task), ends)
        except Busy:
            if time.monotonic() < ends:
                raise
            return None
        return lambda: _outcome(remote, _waited(remote, found), began)

    return ask


def _body(task: Task) -> dict[str, Any]:
    mesh, request = mesh_document(task.mesh), asdict(task.request)
    return {"graph": task.graph, "mesh": mesh, "hardware": task.profile["name"], "request": request}


@dataclass(frozen=True, slots=True)
class Patient:
    """A server that may be busy for a while."""

    remote: Remote
    patience_s: float

    def asked(self, path: str, body: Any = None, ends: float = math.inf) -> Any:
        """Its answer. Raises Busy where it refuses for too long, or past a moment; else as `Remote.asked`."""
        ends, wait_s = min(ends, time.monotonic() + self.patience_s), POLL_S
        while True:
            try:
                return self.remote.asked(path, body)
            except Busy:
                if (left := ends - time.monotonic()) <= 0:
                    raise
                time.sleep(min(wait_s, left))
                wait_s = min(2 * wait_s, LONGEST_S)


def _waited(remote: Patient, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """A plan that has ended."""
    wait_s = POLL_S
    while found["ended_at"] is None:
        time.sleep(wait_s)
        wait_s = min(1.2 * wait_s, LONGEST_S)
        found = remote.asked(found["links"]["self"])
    return found


def _outcome(remote: Patient, ended: Mapping[str, Any], began: float) -> Outcome:
    """Of a plan that has ended; one that has failed proves nothing."""
    path, wall_s = ended["links"]["document"], time.monotonic() - began
    if path is None:
        return Outcome(ended["status"], None, 0.0, None, None, None, wall_s, None)
    document = remote.asked(path)
    solver, peak = document["solver"], document["memory"].get("peak_bytes")
    figures = solver["objective_s"], solver["bound_s"], solver["gap"], peak, solver["least_limit_bytes"]
    return Outcome(solver["status"], *figures, wall_s, None)
