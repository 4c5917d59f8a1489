"""The pipeline from a graph and a mesh to a plan."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

import solvers
from planner.choose.axis_units import AxisUnits
from planner.choose.cost import CostModel
from planner.choose.formulate import Choice
from planner.choose.hardware import Hardware
from planner.ir.graph import Graph, check_sizes
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.planning.certify import certify, leave_coarse, leave_joined
from planner.planning.deadline import Deadline, OnPlanProgress, ProgressReporter, TimeLimitReached
from planner.planning.objectives import ObjectiveResult
from planner.planning.plan_search import PlanSearch, list_levels, start_deadline, write_program
from planner.planning.plan_types import Plan, Request
from planner.planning.remedies import try_remedies
from planner.planning.standard_plan import StandardLayouts
from planner.planning.step_graph import build_step
from planner.run.executor import Progress
from planner.run.validate import validate

__all__ = [
    "plan",
    "plan_step",
    "search_step",
    "solve_choice",
    "solve_step",
    "start_deadline",
    "validate_plan",
    "write_program",
]


def plan(
    graph: Graph,
    mesh: Mesh,
    hardware: Hardware,
    *,
    request: Request | None = None,
    on_progress: OnPlanProgress | None = None,
    known: Collection[Choice] = (),
    deadline: Deadline | None = None,
) -> Plan:
    """Plan a graph on a mesh: find the best sharding, and prove how far from optimal it can be.

    request      objective, memory limit and limits of the search; None: the defaults
    on_progress  called with the stage, the incumbent, the bound and the gap
    known        choices to start from; the plan is no worse than those of them that are feasible
    deadline     of the whole command, where it began earlier; None: the request's time limit from now on

    An infeasible plan has no choice and no program, and neither has one that the time was too short for (its status is
    `unknown`). Raises InvalidGraph for a graph with dims of unknown size, and for one without the phases that the
    request's micro-batches need; InvalidRequest for a layout that the graph cannot have on the mesh.
    """
    request = request or Request()
    check_sizes(graph)
    step = _build_step(graph, mesh, request)
    model = CostModel(mesh, request.adjust_hardware(hardware))
    found = plan_step(step, model, request, on_progress=on_progress, known=known, deadline=deadline)
    return replace(found, graph=graph)


def _build_step(graph: Graph, mesh: Mesh, request: Request) -> Graph:
    return build_step(
        graph, mesh, microbatches=request.microbatches, global_batch=request.global_batch, layout=request.layout
    )


def plan_step(
    graph: Graph,
    model: CostModel,
    request: Request,
    *,
    on_progress: OnPlanProgress | None = None,
    known: Collection[Choice] = (),
    deadline: Deadline | None = None,
) -> Plan:
    """Plan the graph of a whole step, whose micro-batches are those of the graph (`Graph.microbatches`)."""
    deadline = deadline or start_deadline(request)
    report = ProgressReporter(deadline, on_progress)
    report.begin("finding standard layouts")
    layouts = StandardLayouts.find(graph, model, request)
    search_ends = layouts.leave_time(deadline)
    units = AxisUnits.of(model.mesh)
    search = PlanSearch(graph, model, request, search_ends, report, units, layouts.baselines, layouts.pinned)
    searched = None
    with suppress(TimeLimitReached):
        searched = try_remedies(search_step(search, known), search)
        if searched.certificate.status != "unknown":
            return searched
    return layouts.plan_best(deadline, report, searched)


def search_step(whole: PlanSearch, known: Collection[Choice] = ()) -> Plan:
    """Return the plan of a search, after a coarser one where the request has one.

    Raises TimeLimitReached where the time is up before any plan is found.
    """
    best, request, deadline = None, whole.request, whole.report.deadline
    *coarse, _ = list_levels(whole.graph, whole.model.mesh, request)
    try:
        for units in coarse:
            best = replace(whole, units=units).begin_coarsely().find_plan(known)
        return whole.find_plan(known, best)
    except TimeLimitReached:
        if best is None:
            raise
        return leave_coarse(best, request, coarse[0], wall_s=deadline.elapsed_s)


def solve_step(
    graph: Graph, model: CostModel, request: Request, *, known: Collection[Choice] = (), cutoff: int | None = None
) -> Plan:
    """Return the best plan found, without the figures of standard layouts: one of these where the time is up.

    Where it is proven that no step takes less than `cutoff` ps without overlap, the plan has no choice and its reason
    is `solvers.CUT_OFF`.
    """
    deadline, step = start_deadline(request), _build_step(graph, model.mesh, request)
    layouts = StandardLayouts.find(step, model, request)
    search_ends = layouts.leave_time(deadline)
    with suppress(TimeLimitReached):
        result = _find_choice(step, model, request, known=known, cutoff=cutoff, deadline=search_ends)
        is_answer = result.choice is not None or result.solution.status != "unknown"
        if is_answer or result.solution.reason == solvers.CUT_OFF:
            program = None if result.choice is None else write_program(result.question, result.choice)
            analysis = None if program is None else Analysis(program, model)
            certificate = certify(result, step, model, request=request)
            fastest = Plan(step, model, request, certificate, result.choice, analysis, ())
            return _apply_overlap(fastest, result, layouts, deadline=search_ends)
    return layouts.plan_best(deadline, ProgressReporter(deadline, None))


def _apply_overlap(fastest: Plan, result: ObjectiveResult, layouts: StandardLayouts, *, deadline: Deadline) -> Plan:
    """Return the plan that overlap makes fastest; layouts are compared where values are not recomputed."""
    report, units = ProgressReporter(deadline, None), AxisUnits.of(fastest.model.mesh)
    search = PlanSearch(fastest.graph, fastest.model, fastest.request, deadline, report, units, layouts.baselines)
    is_compared = fastest.model.hardware.overlap > 0 and not search.recomputable
    return search.apply_overlap(fastest, result.question, search.name_layouts(result.question) if is_compared else {})


def solve_choice(
    graph: Graph, model: CostModel, request: Request, *, known: Collection[Choice] = (), cutoff: int | None = None
) -> ObjectiveResult:
    """Find a choice and its bound, without a plan. A step that takes `cutoff` ps or longer is of no interest.

    Where no choice is known to start from, a search with joined axes comes first where `plan` has one. Raises
    TimeLimitReached where the request's time limit is up before any choice is found.
    """
    graph = _build_step(graph, model.mesh, request)
    return _find_choice(graph, model, request, known=known, cutoff=cutoff, deadline=start_deadline(request))


def _find_choice(
    graph: Graph,
    model: CostModel,
    request: Request,
    *,
    known: Collection[Choice],
    cutoff: int | None,
    deadline: Deadline,
) -> ObjectiveResult:
    whole, *joined = (
        PlanSearch(graph, model, request, deadline, ProgressReporter(deadline, None), units)
        for units in reversed(list_levels(graph, model.mesh, request))
    )
    coarse = joined[0].begin_coarsely().find_choice((), cutoff) if joined and not known else None
    starts = [*known, *([coarse.choice] if coarse and coarse.choice else [])]
    try:
        return whole.find_choice(starts, cutoff)
    except TimeLimitReached:
        if coarse is None or coarse.choice is None:
            raise
        return leave_joined(coarse, graph, model)


def validate_plan(
    plan: Plan,
    backend: str = "numpy",
    shrinking: str = "auto",
    *,
    on_progress: Progress | None = None,
    deadline: Deadline | None = None,
) -> Plan:
    """Run a plan on logical devices and return it with the verdict.

    An infeasible plan is returned unchanged, and so is one that has not ended its run at the deadline.
    """
    if plan.analysis is None:
        return plan

    watched = (deadline or Deadline()).watch(on_progress)
    try:
        return replace(plan, verdict=validate(plan.analysis.program, backend, shrinking, on_progress=watched))
    except TimeLimitReached:
        return plan
