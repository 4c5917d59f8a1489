"""Explanations -> JSON; a plan document -> what is explained. Times are whole picoseconds, so that terms add up."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from planner.choose.cost import PICO, CostModel
from planner.documents.graphs import graph_from, mesh_from, sharding_document
from planner.documents.hardware import planned_hardware
from planner.documents.plans import overlap_document
from planner.documents.programs import program_from
from planner.documents.schemas import PlanDocument
from planner.explaining import Explained, at_least_limit
from planner.judge.analysis import Analysis
from planner.judge.explain import Considered, Decision
from planner.judge.forcing import Forced
from planner.judge.lower_bounds import Communication, communications
from planner.judge.overview import collective_groups, dearest_ops, largest_tensors, op_groups
from planner.model.mesh import Mesh
from planner.plans import Request

MOST = 20


def explained(document: PlanDocument) -> Explained:
    """What a plan document holds, ready to be asked about time, whatever was asked for the least of; within the limit,
    or the least memory. Raises InvalidDocument where it is infeasible or damaged.
    """
    program = program_from(document)
    model = CostModel(program.mesh, planned_hardware(document))
    asked, solver = document.request, document.solver
    limit = solver.objective_bytes if asked.objective == "memory" else asked.memory_limit_bytes
    bound = round(solver.bound_s / PICO)
    return Explained(program, model, limit or asked.memory_limit_bytes, bound, request_from(document))


def request_from(document: PlanDocument) -> Request:
    """What was asked for."""
    asked = document.request
    return Request(
        asked.memory_limit_bytes, asked.gap, None, asked.deterministic, asked.seed, asked.recompute, asked.objective
    )


def overview_document(document: PlanDocument, seconds: float) -> dict[str, Any]:
    """Where time and memory go, or, of an infeasible plan, what blocks it."""
    if not document.program:
        return _infeasible(document, seconds)
    found = explained(document)
    analysis = found.analysis
    return {
        "plan": document.id,
        "objective": document.request.objective,
        "step_ps": analysis.step_ps,
        "compute_ps": analysis.compute_ps,
        "communication_ps": analysis.step_ps - analysis.compute_ps,
        "ops": [asdict(group) for group in op_groups(analysis)],
        "collectives": [asdict(group) for group in collective_groups(analysis)],
        "dearest_ops": [asdict(single) for single in dearest_ops(analysis, MOST)],
        "overlap": overlap_document(analysis, found.limit_bytes),
        "products": _products(analysis, found.limit_bytes),
        "memory": _memory(analysis, found.limit_bytes),
        "memory_price_s_per_gib": document.solver.memory_price_s_per_gib,
        "sensitivity": [asdict(turn) for turn in found.turns()],
    }


def _products(analysis: Analysis, limit: int) -> list[dict[str, Any]]:
    """The products that move most, each with what it would have to with one copy of everything."""
    found = sorted(communications(analysis, limit), key=lambda each: -each.received_bytes)
    return [_communication(each) for each in found[:MOST]]


def _communication(found: Communication) -> dict[str, Any]:
    return {**asdict(found), "ratio": found.ratio}


def _memory(analysis: Analysis, limit: int) -> dict[str, Any]:
    return {
        "peak_bytes": analysis.peak_bytes,
        "limit_bytes": limit,
        "at": analysis.peak_made,
        "by_kind": dict(analysis.peak_by_kind()),
        "largest": [asdict(tensor) for tensor in largest_tensors(analysis, MOST)],
    }


def _infeasible(document: PlanDocument, seconds: float) -> dict[str, Any]:
    solver = document.solver
    found: dict[str, Any] = {
        "plan": document.id,
        "status": solver.status,
        "limit_bytes": document.request.memory_limit_bytes,
        "least_limit_bytes": solver.least_limit_bytes,
        "least_limit_bound_bytes": solver.least_limit_bound_bytes,
        "memory": None,
    }
    if solver.least_limit_bytes is not None:
        mesh = mesh_from(document.mesh)
        graph, model = graph_from(document.graph.document, mesh), CostModel(mesh, planned_hardware(document))
        least = solver.least_limit_bytes
        analysis = at_least_limit(graph, model, least, request_from(document), seconds)
        found["memory"] = None if analysis is None else _memory(analysis, least)
    return found


def decision_document(found: Explained, asked: Decision, forced: dict[int, Forced]) -> dict[str, Any]:
    """The options of one decision with their terms, and what forcing them costs in all."""
    mesh = found.program.mesh
    listed = communications(found.analysis, found.limit_bytes)
    own = (each for each in listed if each.op == asked.variable.name)
    return {
        "role": asked.variable.role.value,
        "name": asked.variable.name,
        "objective": found.request.objective,
        "step_ps": found.analysis.step_ps,
        "bound_ps": found.bound_ps,
        "limit_bytes": found.limit_bytes,
        "communication": next(map(_communication, own), None),
        "options": [_option(each, asked, forced.get(each.strategy), mesh) for each in asked.considered],
    }


def _option(option: Considered, asked: Decision, forced: Forced | None, mesh: Mesh) -> dict[str, Any]:
    return {
        "option": option.split,
        "chosen": option.strategy == asked.chosen,
        "time_ps": option.time_ps,
        "compute_ps": option.compute_ps,
        "peak_bytes": option.memory_bytes,
        "fits": option.fits,
        "reshards": [
            {
                **asdict(each),
                "there": sharding_document(each.there, mesh),
                "here": sharding_document(each.here, mesh),
            }
            for each in option.reshards
        ],
        "forced": None if forced is None else asdict(forced),
    }
