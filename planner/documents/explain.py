"""Explanations as JSON, and the explanation of a plan document. Times are whole picoseconds, so that terms add up."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from planner.choose.cost import PICO, CostModel
from planner.documents.graphs import dump_sharding, load_graph, load_mesh
from planner.documents.hardware import load_planned_hardware
from planner.documents.pipeline_sections import AnyPlanDocument
from planner.documents.plans import dump_overlap
from planner.documents.programs import load_program
from planner.documents.schemas import PlanDocument
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.judge.cost_breakdown import find_largest_tensors, find_slowest_ops, group_collectives, group_ops
from planner.judge.explain import Decision, OptionCost
from planner.judge.matmul_bounds import ProductCommunication, measure_products
from planner.judge.what_if import ForcedOptionCost
from planner.planning.deadline import Deadline, ProgressReporter, TimeLimitReached
from planner.planning.plan_types import Request
from planner.usecases.explain import PlanExplanation, analyze_at_least_limit

MAX_ROWS = 20


def explain_plan(document: PlanDocument, report: ProgressReporter | None = None) -> PlanExplanation:
    """Return the explanation of a plan document; its terms are times, whatever the plan minimises.

    The memory limit is the plan's, or its peak where it minimises memory. Raises InvalidDocument where the plan is
    infeasible or damaged.
    """
    program = load_program(document)
    model = CostModel(program.mesh, load_planned_hardware(document))
    request, solver = document.request, document.solver
    limit = solver.objective_bytes if request.objective == "memory" else request.memory_limit_bytes
    bound = round(solver.bound_s / PICO)
    report, most = report or ProgressReporter(Deadline(), None), limit or request.memory_limit_bytes
    return PlanExplanation(program, model, most, bound, load_request(document), report)


def load_request(document: AnyPlanDocument) -> Request:
    """Return the request of a plan document, without its time limit."""
    return Request(**document.request.model_dump(exclude={"pipeline"}) | {"time_limit_s": None})


def dump_overview(document: PlanDocument, seconds: float, report: ProgressReporter | None = None) -> dict[str, Any]:
    """Return where time and memory go, or, for an infeasible plan, what does not fit.

    `seconds`: the time limit of the solve that finds a plan at the least sufficient limit. Where the deadline of
    `report` is over before the break-evens are known, `sensitivity` is None.
    """
    if not document.program:
        return _dump_infeasible(document, seconds)
    explanation = explain_plan(document, report)
    analysis = explanation.analysis
    return {
        "plan": document.id,
        "objective": document.request.objective,
        "step_ps": analysis.step_ps,
        "compute_ps": analysis.compute_ps,
        "communication_ps": analysis.step_ps - analysis.compute_ps,
        "ops": [asdict(group) for group in group_ops(analysis)],
        "collectives": [asdict(group) for group in group_collectives(analysis)],
        "slowest_ops": [asdict(single) for single in find_slowest_ops(analysis, MAX_ROWS)],
        "overlap": dump_overlap(analysis, explanation.limit_bytes),
        "products": _dump_products(analysis, explanation.limit_bytes),
        "memory": _dump_memory(analysis, explanation.limit_bytes),
        "memory_price_s_per_gib": document.solver.memory_price_s_per_gib,
        "sensitivity": _dump_sensitivity(explanation),
    }


def _dump_sensitivity(explanation: PlanExplanation) -> list[dict[str, Any]] | None:
    try:
        return [asdict(break_even) for break_even in explanation.break_evens()]
    except TimeLimitReached:
        return None


def _dump_products(analysis: Analysis, limit: int) -> list[dict[str, Any]]:
    """Return the matrix products that receive most bytes, each with the lower bound with one copy of every operand."""
    products = sorted(measure_products(analysis, limit), key=lambda each: -each.received_bytes)
    return [_dump_communication(each) for each in products[:MAX_ROWS]]


def _dump_communication(product: ProductCommunication) -> dict[str, Any]:
    return {**asdict(product), "ratio": product.ratio}


def _dump_memory(analysis: Analysis, limit: int) -> dict[str, Any]:
    return {
        "peak_bytes": analysis.peak_bytes,
        "limit_bytes": limit,
        "at": analysis.peak_value,
        "by_kind": dict(analysis.peak_by_kind()),
        "largest": [asdict(tensor) for tensor in find_largest_tensors(analysis, MAX_ROWS)],
    }


def _dump_infeasible(document: PlanDocument, seconds: float) -> dict[str, Any]:
    solver = document.solver
    overview: dict[str, Any] = {
        "plan": document.id,
        "status": solver.status,
        "limit_bytes": document.request.memory_limit_bytes,
        "least_limit_bytes": solver.least_limit_bytes,
        "least_limit_bound_bytes": solver.least_limit_bound_bytes,
        "memory": None,
    }
    if solver.least_limit_bytes is not None:
        mesh = load_mesh(document.mesh)
        graph, model = load_graph(document.graph.document, mesh), CostModel(mesh, load_planned_hardware(document))
        least = solver.least_limit_bytes
        analysis = analyze_at_least_limit(graph, model, least, request=load_request(document), seconds=seconds)
        overview["memory"] = None if analysis is None else _dump_memory(analysis, least)
    return overview


def dump_decision(
    explanation: PlanExplanation, decision: Decision, forced: dict[int, ForcedOptionCost]
) -> dict[str, Any]:
    """Return the options of one decision with their terms, and the total cost of forcing each."""
    mesh = explanation.program.mesh
    products = measure_products(explanation.analysis, explanation.limit_bytes)
    own_products = (each for each in products if each.op == decision.variable.name)
    return {
        "role": decision.variable.role.value,
        "name": decision.variable.name,
        "objective": explanation.request.objective,
        "step_ps": explanation.analysis.step_ps,
        "bound_ps": explanation.bound_ps,
        "limit_bytes": explanation.limit_bytes,
        "communication": next(map(_dump_communication, own_products), None),
        "priced_by": explanation.price_source(decision.variable.name),
        "options": [
            _dump_option(each, decision, forced.get(each.strategy), mesh=mesh) for each in decision.option_costs
        ],
    }


def _dump_option(
    option: OptionCost, decision: Decision, forced: ForcedOptionCost | None, *, mesh: Mesh
) -> dict[str, Any]:
    return {
        "option": option.split,
        "chosen": option.strategy == decision.chosen,
        "time_ps": option.time_ps,
        "compute_ps": option.compute_ps,
        "peak_bytes": option.memory_bytes,
        "fits": option.fits,
        "reshards": [
            {
                **{key: getattr(each, key) for key in ("value", "direction", "neighbour", "time_ps")},
                "neighbour_sharding": dump_sharding(each.there, mesh),
                "own_sharding": dump_sharding(each.here, mesh),
            }
            for each in option.reshards
        ],
        "forced": None if forced is None else asdict(forced),
    }
