"""Plan -> plan document; plan documents from files."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.choose.cost import PICO, CostModel
from planner.documents.graphs import (
    graph_document,
    mesh_document,
    sharding_document,
)
from planner.documents.ids import digest
from planner.documents.profiles import network_document
from planner.documents.programs import program_document
from planner.documents.reading import read_json
from planner.documents.results import NothingDocument
from planner.documents.schemas import PlanDocument, checked
from planner.documents.versions import current_versions
from planner.errors import InvalidDocument
from planner.judge.analysis import Analysis, Integers
from planner.judge.mfu import model_flops, utilisation
from planner.judge.overlap import overlap
from planner.model.again import repeats
from planner.model.graph import Graph
from planner.model.program import Move
from planner.overlapping import overlapped_ps
from planner.plans import Plan, Request
from planner.run.locate import Difference
from planner.run.validate import Verdict

DEAREST = 20


def plan_document(plan: Plan) -> dict[str, Any]:
    """The document of a plan. Same input, same document, but for `wall_s` and what a clock has stopped."""
    document = {
        "format": "shardplan.plan",
        "version": 1,
        **identified(plan.graph, plan.model, plan.request),
        "solver": _solver(plan),
        "shardings": _shardings(plan),
        "options": _options(plan),
        "recomputed": repeats(plan.analysis.program.graph) if plan.analysis else {},
        "program": program_document(plan.analysis.program) if plan.analysis else [],
        "cost": _cost(plan.analysis, plan.limit_bytes) | _utilisation(plan, plan.analysis) if plan.analysis else {},
        "memory": _memory(plan.analysis) if plan.analysis else {},
        "baselines": [asdict(figures) for figures in plan.baselines],
        "verdict": verdict_document(plan.verdict) if plan.verdict else None,
    }
    return {**document, "digest": digest(document)}


def identified(graph: Graph, model: CostModel, request: Request) -> dict[str, Any]:
    """All that determines a plan, and the plan's id, the digest of it; known before the plan is made."""
    document = graph_document(graph, model.mesh)
    limit = request.memory_limit_bytes or model.hardware.memory_bytes
    parts = {
        "graph": {"digest": digest(document), "name": graph.name, "document": document},
        "mesh": mesh_document(model.mesh),
        "hardware": _hardware(model),
        "request": {**asdict(request), "memory_limit_bytes": limit},
    }
    return {"id": digest({**parts, "graph": parts["graph"]["digest"], "versions": current_versions()}), **parts}


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """The document of a verdict; an error that is no number is null."""
    error = None if verdict.max_relative_error is None else _finite(verdict.max_relative_error)
    difference = None if verdict.difference is None else _difference(verdict.difference)
    known = {**asdict(replace(verdict, difference=None)), "max_relative_error": error, "not_run": list(verdict.not_run)}
    return {**known, "difference": difference}


def _difference(found: Difference) -> dict[str, Any]:
    inputs = [
        {
            "device": shard.device,
            "value": shard.value,
            "shape": list(shard.shape),
            "elements": None if shard.elements is None else list(map(_finite, shard.elements)),
        }
        for shard in found.inputs
    ]
    numbers = {"got": _finite(found.got), "wanted": _finite(found.wanted)}
    return {**asdict(replace(found, inputs=())), "index": list(found.index), **numbers, "inputs": inputs}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _hardware(model: CostModel) -> dict[str, Any]:
    hardware = model.hardware
    return {
        "name": hardware.name,
        "peak_flops": dict(hardware.peak_flops),
        "compute_efficiency": hardware.compute_efficiency,
        "memory_bandwidth": hardware.memory_bandwidth,
        "memory_efficiency": hardware.memory_efficiency,
        "memory_bytes": hardware.memory_bytes,
        "launch_s": hardware.launch_s,
        "axis_links": [asdict(link) for link in model.links],
        **network_document(hardware),
    }


def _solver(plan: Plan) -> dict[str, Any]:
    numbers = asdict(plan.certificate)
    if plan.request.deterministic:
        numbers["wall_s"] = None
    if plan.certificate.folding is not None:
        numbers["folding"]["layers"] = list(plan.certificate.folding.layers)
    return {**numbers, "seed": plan.request.seed, "versions": current_versions()}


def _shardings(plan: Plan) -> dict[str, Any]:
    if plan.analysis is None:
        return {}
    program = plan.analysis.program
    values = program.values
    return {value: sharding_document(values[value].sharding, plan.model.mesh) for value in program.graph.types}


def _options(plan: Plan) -> dict[str, Any]:
    names = plan.model.mesh.names
    chosen = plan.choice.options if plan.choice else {}
    return {op: [[names[axis] for axis in axes] for axes in option] for op, option in chosen.items()}


def _cost(analysis: Analysis, limit_bytes: int) -> dict[str, Any]:
    return {
        "step_s": analysis.step_ps * PICO,
        "compute_s": analysis.compute_ps * PICO,
        "communication_s": (analysis.step_ps - analysis.compute_ps) * PICO,
        "recompute_s": analysis.recompute_ps * PICO,
        "overlap": overlap_document(analysis, limit_bytes),
        "collective_bytes": analysis.collective_bytes,
        "by_collective": _by_collective(analysis),
        "by_axis": dict(analysis.by_axis()),
        "dearest": _dearest(analysis),
    }


def _utilisation(plan: Plan, analysis: Analysis) -> dict[str, float]:
    """Of the graph that was asked for: ops that the plan repeats are not in it."""
    flops, model = model_flops(plan.graph), plan.model
    mfu = utilisation(flops, model.hardware, model.mesh.devices, analysis.step_ps * PICO)
    return {"model_flops": sum(flops.values()), "mfu": mfu}


def overlap_document(analysis: Analysis, limit_bytes: int) -> dict[str, Any]:
    """The step with collectives beside ops, the bound that no order beats, the schedule's length and its peak."""
    found = overlap(analysis, limit_bytes)
    return {
        "step_s": overlapped_ps(found, analysis.model.hardware.overlap) * PICO,
        "floor_s": found.floor_ps * PICO,
        "scheduled_s": found.scheduled_ps * PICO,
        "peak_bytes": found.schedule.peak_bytes if found.schedule else analysis.peak_bytes,
    }


def _moves(analysis: Analysis) -> list[tuple[Move, int, int]]:
    """Every collective with its time in ps and the bytes of the device that receives most."""
    listed = zip(analysis.program.instructions, analysis.times_ps, analysis.received, strict=True)
    return [(done, time, int(received.max())) for done, time, received in listed if isinstance(done, Move)]


def _dearest(analysis: Analysis) -> list[dict[str, Any]]:
    """The single collectives that take longest."""
    names = analysis.program.mesh.names
    first = sorted(_moves(analysis), key=lambda entry: -entry[1])[:DEAREST]
    return [
        {
            "collective": done.collective.kind.value,
            "axes": [names[axis] for axis in done.collective.axes],
            "value": done.operand,
            "time_s": time * PICO,
            "bytes": size,
        }
        for done, time, size in first
    ]


def _by_collective(analysis: Analysis) -> list[dict[str, Any]]:
    """Collectives of one kind over the same axes together, the dearest first."""
    names = analysis.program.mesh.names
    groups: dict[tuple[str, tuple[str, ...]], list[tuple[int, int]]] = defaultdict(list)
    for done, time, size in _moves(analysis):
        axes = tuple(names[axis] for axis in done.collective.axes)
        groups[done.collective.kind.value, axes].append((time, size))
    found = [
        {
            "collective": kind,
            "axes": list(axes),
            "count": len(each),
            "time_s": sum(time for time, _ in each) * PICO,
            "bytes": sum(size for _, size in each),
        }
        for (kind, axes), each in groups.items()
    ]
    return sorted(found, key=lambda entry: -entry["time_s"])


def _memory(analysis: Analysis) -> dict[str, Any]:
    return {
        "peak_bytes": analysis.peak_bytes,
        "at": analysis.peak_made,
        "by_kind": dict(analysis.peak_by_kind()),
        "timeline": [_changes(kind, live) for kind, live in analysis.memory_by_kind.items()],
    }


def _changes(kind: str, live: Integers) -> dict[str, Any]:
    """The instructions at which the bytes of a kind change, and what they are from there on."""
    moments = [0, *(np.flatnonzero(np.diff(live)) + 1).tolist()]
    return {"kind": kind, "moments": moments, "bytes": live[moments].tolist()}


def read_plan(path: Path) -> PlanDocument:
    """The plan document in a file. Raises InvalidDocument, also where the graph is not the one planned."""
    return checked_plan(read_json(path), str(path))


def checked_plan(raw: Any, where: str) -> PlanDocument:
    """The plan document in a JSON value. Raises InvalidDocument, also where graph, mesh, hardware or request are not
    those that its id is of, or anything else is not what was written."""
    document = checked(PlanDocument, raw, where)
    graph = document.graph
    if digest(graph.document.model_dump(exclude_unset=True)) != graph.digest:
        raise InvalidDocument("digest mismatch: the graph is not the one that was planned", where=f"{where}: graph")
    if document.program:
        for key in ("cost", "memory"):
            if isinstance(getattr(document, key), NothingDocument):
                raise InvalidDocument("missing numbers", where=f"{where}: {key}", wanted="those of the program")
        for entry in graph.document.inputs:
            if entry.id not in document.shardings:
                raise InvalidDocument("missing sharding", where=f"{where}: shardings", wanted=entry.id)
    parts = {key: raw[key] for key in ("mesh", "hardware", "request")}
    if digest({"graph": graph.digest, **parts, "versions": raw["solver"]["versions"]}) != document.id:
        what = "digest mismatch: mesh, hardware, request or versions are not those that were planned for"
        raise InvalidDocument(what, where=f"{where}: id", got=document.id)
    rest = {key: value for key, value in raw.items() if key != "digest"}
    if document.digest not in (None, digest(rest)):
        what = "digest mismatch: the plan is not as it was written"
        raise InvalidDocument(what, where=f"{where}: digest", got=document.digest)
    return document
