"""Candidates of a capacity question planned by a server and its workers, as many at a time as are asked at once.

A plan is known by its content, so a survey that is asked again finds what was planned before. A server is not told of
cutoffs and starts: it proves every plan that it is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from api.remote import Busy, Remote
from planner.capacity import Ask
from planner.documents.graphs import mesh_document
from planner.documents.hardware import profile_document
from planner.errors import InvalidRequest
from planner.sweep import Outcome, Question, Task

POLL_S, LONGEST_S = 0.2, 5.0


def asked_of(url: str, question: Question) -> Ask:
    """How a server is asked. Raises InvalidRequest for a hardware that is not built in: it has its own profiles."""
    remote = Remote(url)
    for offer in question.offers:
        name = offer.document["name"]
        if profile_document(name) != offer.document:
            raise InvalidRequest("--server with a profile of yours", got=name, wanted="a built-in profile")

    def ask(task: Task) -> Callable[[], Outcome]:
        began = time.monotonic()
        found = _patiently(remote.asked, "/v1/plans", _body(task))
        return lambda: _outcome(remote, _waited(remote, found), began)

    return ask


def _body(task: Task) -> dict[str, Any]:
    mesh, request = mesh_document(task.mesh), asdict(task.request)
    return {"graph": task.graph, "mesh": mesh, "hardware": task.profile["name"], "request": request}


def _waited(remote: Remote, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """A plan that has ended."""
    wait_s = POLL_S
    while found["ended_at"] is None:
        time.sleep(wait_s)
        wait_s = min(1.2 * wait_s, LONGEST_S)
        found = _patiently(remote.asked, found["links"]["self"])
    return found


def _patiently(ask: Callable[..., Any], *what: Any) -> Any:
    """The answer of a server that may be busy for a while."""
    while True:
        try:
            return ask(*what)
        except Busy:
            time.sleep(LONGEST_S)


def _outcome(remote: Remote, ended: Mapping[str, Any], began: float) -> Outcome:
    """Of a plan that has ended; one that has failed proves nothing."""
    path, wall_s = ended["links"]["document"], time.monotonic() - began
    if path is None:
        return Outcome(ended["status"], None, 0.0, None, None, None, wall_s, None)
    document = _patiently(remote.asked, path)
    solver, peak = document["solver"], document["memory"].get("peak_bytes")
    figures = solver["objective_s"], solver["bound_s"], solver["gap"], peak, solver["least_limit_bytes"]
    return Outcome(solver["status"], *figures, wall_s, None)
