"""The search of a sweep, in a child process: its candidates are plans that it asks for (`api.jobs.sweep_worker`).

Plans are identified by their content, so a search that begins again is told at once what was planned before. They are
planned without cutoffs and warm starts: each is proven in full. Which candidate is next depends on the results of all
but those still running, taken in the order of their starts, so that the answer does not depend on who plans how fast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from api.http.requests import PlanRequest, at_pointer, build_plan_inputs, pack_json, unpack_json
from api.http.requests_capacity import CapacityRequest, build_capacity_question, build_models
from api.jobs.child_link import ParentLink
from planner.documents.capacity import dump_capacity
from planner.documents.graphs import dump_mesh
from planner.documents.schemas import validate_document
from planner.planning.deadline import Deadline
from planner.usecases.capacity import UNFINISHED, search_meshes
from planner.usecases.capacity_question import CandidateResult, CandidateTask, CapacityBudget
from planner.usecases.capacity_search import CapacitySearch


def answer_capacity(raw: Any, parent: ParentLink) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state and the capacity document of a request. Raises ShardplanError."""
    request = validate_document(CapacityRequest, raw, "body")
    deadline = Deadline(request.time_limit_s)
    question, plans = build_capacity_question(request, build_models(request)), CandidatePlans(parent)

    references: dict[int, dict[str, Any]] = {}

    def on_start(search: CapacitySearch, number: int) -> None:
        references[number] = {"id": plans.latest, "verdict": None}
        plans.search = search

    search = search_meshes(question, processes=request.jobs, ask=plans.start, deadline=deadline, on_start=on_start)
    with at_pointer(""):
        document = dump_capacity(search, CapacityBudget(request.max_step_s, request.max_cost), references)
    status = "complete" if document["complete"] else "incomplete"
    return {"status": status, "progress": _progress(search)}, document


def _progress(search: CapacitySearch) -> dict[str, Any]:
    """Return what is known: how many candidates are decided, and the frontier of those that were planned."""
    points = dict(search.points())
    frontier = [
        {
            "mesh": search.question.candidates[number].mesh.notation,
            "hardware": search.bounds.hardware[search.question.candidates[number].hardware].name,
            "devices": points[number].devices,
            "cost": points[number].cost,
            "time_s": points[number].time_s,
        }
        for number in search.frontier()
    ]
    decided = len(search.outcomes) + len(search.skipped)
    return {
        "candidates": len(search.order),
        "decided": decided,
        "planned": search.planned_count,
        "running": [search.question.candidates[number].mesh.notation for number in search.running],
        "frontier": frontier,
    }


class CandidatePlans:
    """The plans of one search; `latest` is the id of the one that was asked for last.

    Progress of the `search` is reported when it has to wait, however many plans it has asked for since.
    """

    def __init__(self, parent: ParentLink) -> None:
        self.parent, self.latest = parent, ""
        self.search: CapacitySearch | None = None
        self._results: dict[str, CandidateResult] = {}

    def start(self, task: CandidateTask) -> Callable[[], CandidateResult] | None:
        """Ask for a candidate's plan, and return a function that waits for its result. None: no time is left."""
        if task.deadline.left_s == 0.0:
            return None
        document = _plan_request(task)
        inputs = build_plan_inputs(validate_document(PlanRequest, document, "candidate"))
        plan = self.latest = inputs.plan_id
        self.parent.ask({"plan": plan, "name": inputs.graph.name}, pack_json(document))
        return lambda: self._wait(plan, task.deadline)

    def _wait(self, plan: str, deadline: Deadline) -> CandidateResult:
        if plan not in self._results and self.search is not None:
            self.parent.report(_progress(self.search))
        while plan not in self._results:
            message = self.parent.receive(deadline.left_s)
            if message is None:
                return UNFINISHED
            self._results[message.head["plan"]] = _read_result(message.head["status"], message.payload)
        return self._results[plan]


def _plan_request(task: CandidateTask) -> dict[str, Any]:
    mesh, hardware = dump_mesh(task.mesh), task.profile["name"]
    return {"graph": task.graph, "mesh": mesh, "hardware": hardware, "request": asdict(task.request)}


def _read_result(status: str, packed: bytes) -> CandidateResult:
    """Return the result of a plan that has ended. One without a document proves nothing."""
    if not packed:
        return CandidateResult(status, None, None, 0.0, None, None, None, 0.0)
    document = unpack_json(packed)
    solver, cost, peak = document["solver"], document["cost"], document["memory"].get("peak_bytes")
    figures = solver["objective_s"], solver["bound_s"], solver["gap"], peak, solver["least_limit_bytes"]
    interval, overlap = cost.get("interval") or {}, cost.get("overlap") or {}
    return CandidateResult(
        solver["status"],
        overlap.get("step_s"),
        *figures,
        solver["wall_s"] or 0.0,
        low_s=interval.get("low_s"),
        high_s=interval.get("high_s"),
    )
