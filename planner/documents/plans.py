"""Plans as documents, and plan documents from files."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.choose.cost import PICO, CostModel
from planner.documents.canonical_json import digest_document
from planner.documents.graphs import dump_graph, dump_mesh, dump_sharding
from planner.documents.hardware_profile import dump_network
from planner.documents.json_reader import read_json
from planner.documents.plan_sections import NothingDocument
from planner.documents.programs import dump_program
from planner.documents.schemas import PlanDocument, validate_document
from planner.documents.versions import current_versions
from planner.errors import InvalidDocument
from planner.ir.graph import Graph
from planner.ir.program import Reshard
from planner.ir.rematerialization import find_clone_positions
from planner.judge.analysis import Analysis, Integers
from planner.judge.mfu import model_flops, utilisation
from planner.judge.overlap import bound_overlapped_s, schedule_overlap
from planner.judge.roofline_bounds import min_step_s
from planner.judge.step_interval import find_interval
from planner.planning.overlap_pricing import apply_overlap
from planner.planning.plan_types import Plan, Request
from planner.planning.step_graph import build_step
from planner.run.first_difference import Difference
from planner.run.validate import Verdict

MAX_COLLECTIVES = 20


def dump_plan(plan: Plan, *, with_overlap: bool = True) -> dict[str, Any]:
    """Return the document of a plan. Equal requests give equal documents, except for `wall_s` and limits set by a
    clock.

    with_overlap  whether it says what overlapping collectives with ops would gain, which takes a third of the time
    """
    document = {
        "format": "shardplan.plan",
        "version": 2,
        **dump_identity(plan.graph, plan.model, plan.request),
        "solver": _dump_solver(plan),
        "shardings": _dump_shardings(plan),
        "options": _dump_options(plan),
        "recomputed": find_clone_positions(plan.analysis.program.graph) if plan.analysis else {},
        "program": dump_program(plan.analysis.program) if plan.analysis else [],
        "cost": _dump_cost(plan, plan.analysis, with_overlap=with_overlap) if plan.analysis else {},
        "memory": _dump_memory(plan.analysis) if plan.analysis else {},
        "baselines": [asdict(figures) for figures in plan.baselines],
    }
    return add_verdict(document, plan.verdict)


def add_verdict(document: dict[str, Any], verdict: Verdict | None) -> dict[str, Any]:
    """Return the document of a plan with the verdict of its run, None where it has not ended, and with its digest."""
    rest = {key: part for key, part in document.items() if key != "digest"}
    rest["verdict"] = dump_verdict(verdict) if verdict else None
    return {**rest, "digest": digest_document(rest)}


def dump_identity(graph: Graph, model: CostModel, request: Request) -> dict[str, Any]:
    """Return everything that determines a plan, with the plan's id, its digest; the plan need not exist yet."""
    document = dump_graph(graph, model.mesh)
    # Without a base latency a plan keeps the id that it had before there was one.
    asked = {key: value for key, value in asdict(request).items() if (key, value) != ("base_latency_s", None)}
    parts = {
        "graph": {"digest": digest_document(document), "name": graph.name, "document": document},
        "mesh": dump_mesh(model.mesh),
        "hardware": _dump_hardware(model),
        "request": {**asked, "memory_limit_bytes": request.find_limit(model.hardware)},
    }
    known = {**parts, "graph": parts["graph"]["digest"], "versions": current_versions()}
    return {"id": digest_document(known), **parts}


def dump_verdict(verdict: Verdict) -> dict[str, Any]:
    """Return the document of a verdict; a relative error that is not finite is null."""
    error = None if verdict.max_relative_error is None else _finite_or_none(verdict.max_relative_error)
    difference = None if verdict.difference is None else _dump_difference(verdict.difference)
    fields = {
        **asdict(replace(verdict, difference=None)),
        "max_relative_error": error,
        "not_run": list(verdict.not_run),
    }
    return {**fields, "difference": difference}


def _dump_difference(difference: Difference) -> dict[str, Any]:
    inputs = [
        {
            "device": shard.device,
            "value": shard.value,
            "shape": list(shard.shape),
            "elements": None if shard.elements is None else list(map(_finite_or_none, shard.elements)),
        }
        for shard in difference.inputs
    ]
    numbers = {"got": _finite_or_none(difference.got), "wanted": _finite_or_none(difference.wanted)}
    return {**asdict(replace(difference, inputs=())), "index": list(difference.index), **numbers, "inputs": inputs}


def _finite_or_none(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _dump_hardware(model: CostModel) -> dict[str, Any]:
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
        **dump_network(hardware),
    }


def _dump_solver(plan: Plan) -> dict[str, Any]:
    numbers = asdict(replace(plan.certificate, log=(), trajectory=()))
    del numbers["log"], numbers["trajectory"]
    if plan.request.deterministic:
        numbers["wall_s"] = None
    if plan.certificate.folding is not None:
        numbers["folding"]["layers"] = list(plan.certificate.folding.layers)
    return {**numbers, "seed": plan.request.seed, "versions": current_versions()}


def _dump_shardings(plan: Plan) -> dict[str, Any]:
    if plan.analysis is None:
        return {}
    program = plan.analysis.program
    values = program.values
    return {value: dump_sharding(values[value].sharding, plan.model.mesh) for value in program.graph.types}


def _dump_options(plan: Plan) -> dict[str, Any]:
    names = plan.model.mesh.names
    chosen = plan.choice.options if plan.choice else {}
    return {op: [[names[axis] for axis in axes] for axes in option] for op, option in chosen.items()}


def _dump_cost(plan: Plan, analysis: Analysis, *, with_overlap: bool) -> dict[str, Any]:
    overlap = dump_overlap(analysis, plan.limit_bytes) if with_overlap else None
    bound_s = _bound_overlapped_s(plan, analysis) if with_overlap else None
    return {
        "step_s": analysis.step_ps * PICO,
        "compute_s": analysis.compute_ps * PICO,
        "communication_s": (analysis.step_ps - analysis.compute_ps) * PICO,
        "recompute_s": analysis.recompute_ps * PICO,
        "microbatches": analysis.program.graph.microbatches,
        "update_s": analysis.update_ps * PICO,
        **({"overlap": overlap | {"bound_s": bound_s}} if overlap else {}),
        "interval": dump_interval(analysis, overlap["step_s"] if overlap else analysis.step_ps * PICO),
        "collective_bytes": analysis.collective_bytes,
        "by_collective": _by_collective(analysis),
        "by_axis": dict(analysis.by_axis()),
        "top_collectives": _dump_top_collectives(analysis),
        **_utilisation(plan, analysis),
    }


def _bound_overlapped_s(plan: Plan, analysis: Analysis) -> float:
    """Return a lower bound on the step with overlap of any plan of the request."""
    step = build_step(
        plan.graph, plan.model.mesh, microbatches=plan.request.microbatches, global_batch=plan.request.global_batch
    )
    least_compute_s = min_step_s(step, plan.model.hardware, plan.model.mesh.devices)
    return bound_overlapped_s(plan.model, plan.certificate.bound_s, least_compute_s)


def _utilisation(plan: Plan, analysis: Analysis) -> dict[str, float]:
    """Return FLOPs and MFU of the graph that was requested, without ops that the plan computes again."""
    flops, model = model_flops(analysis.program.graph), plan.model
    mfu = utilisation(flops, model.hardware, model.mesh.devices, step_s=analysis.step_ps * PICO)
    return {"model_flops": sum(flops.values()), "mfu": mfu}


def dump_overlap(analysis: Analysis, limit_bytes: int) -> dict[str, Any]:
    """Return the step with overlap, its lower bound for any schedule, and a schedule's length and peak."""
    overlap = schedule_overlap(analysis, limit_bytes)
    return {
        "step_s": apply_overlap(overlap, analysis.model.hardware.overlap) * PICO,
        "lower_bound_s": overlap.floor_ps * PICO,
        "scheduled_s": overlap.scheduled_ps * PICO,
        "peak_bytes": overlap.schedule.peak_bytes if overlap.schedule else analysis.peak_bytes,
    }


def dump_interval(analysis: Analysis, step_s: float) -> dict[str, Any]:
    """Return how sure a predicted step is."""
    interval = find_interval(analysis, step_s)
    return asdict(interval) | {"by_class": [asdict(each) for each in interval.by_class]}


def _dump_collectives(analysis: Analysis) -> list[tuple[Reshard, int, int, int]]:
    """Return every collective with its time in ps, the bytes of the device that receives most, and how often it runs.

    Time and bytes are those of all its runs in a step.
    """
    program = analysis.program
    listed = zip(program.instructions, analysis.times_ps, analysis.received, program.trips, strict=True)
    return [
        (done, time, int(received.max()), trips) for done, time, received, trips in listed if isinstance(done, Reshard)
    ]


def _dump_top_collectives(analysis: Analysis) -> list[dict[str, Any]]:
    """Return the single collectives that take longest."""
    names = analysis.program.mesh.names
    first = sorted(_dump_collectives(analysis), key=lambda entry: -entry[1])[:MAX_COLLECTIVES]
    return [
        {
            "collective": done.collective.kind.value,
            "axes": [names[axis] for axis in done.collective.axes],
            "value": done.operand,
            "time_s": time * PICO,
            "bytes": size,
        }
        for done, time, size, _ in first
    ]


def _by_collective(analysis: Analysis) -> list[dict[str, Any]]:
    """Return collectives grouped by kind and axes, the slowest group first."""
    names = analysis.program.mesh.names
    groups: dict[tuple[str, tuple[str, ...]], list[tuple[int, int, int]]] = defaultdict(list)
    for done, time, size, trips in _dump_collectives(analysis):
        axes = tuple(names[axis] for axis in done.collective.axes)
        groups[done.collective.kind.value, axes].append((time, size, trips))
    rows = [
        {
            "collective": kind,
            "axes": list(axes),
            "count": sum(trips for _, _, trips in each),
            "time_s": sum(time for time, _, _ in each) * PICO,
            "bytes": sum(size for _, size, _ in each),
        }
        for (kind, axes), each in groups.items()
    ]
    return sorted(rows, key=lambda entry: -entry["time_s"])


def _dump_memory(analysis: Analysis) -> dict[str, Any]:
    return {
        "peak_bytes": analysis.peak_bytes,
        "at": analysis.peak_value,
        "by_kind": dict(analysis.peak_by_kind()),
        "timeline": [_dump_changes(kind, live) for kind, live in analysis.memory_by_kind.items()],
    }


def _dump_changes(kind: str, live: Integers) -> dict[str, Any]:
    """Return the instructions at which the bytes of a kind change, and the bytes from there on."""
    moments = [0, *(np.flatnonzero(np.diff(live)) + 1).tolist()]
    return {"kind": kind, "moments": moments, "bytes": live[moments].tolist()}


def read_plan(path: Path) -> PlanDocument:
    """Return the plan document in a file. Raises InvalidDocument, also where the graph is not the planned one."""
    return parse_plan(read_json(path), str(path))


def parse_plan(raw: Any, where: str) -> PlanDocument:
    """Return the plan document in a JSON value.

    Raises InvalidDocument, also where graph, mesh, hardware or request do not match the plan's id, or anything else was
    changed since the plan was written.
    """
    document = validate_document(PlanDocument, raw, where)
    graph = document.graph
    if digest_document(graph.document.model_dump(exclude_unset=True)) != graph.digest:
        raise InvalidDocument("digest mismatch: the graph is not the one that was planned", where=f"{where}: graph")
    if document.program:
        for key in ("cost", "memory"):
            if isinstance(getattr(document, key), NothingDocument):
                raise InvalidDocument("missing numbers", where=f"{where}: {key}", wanted="those of the program")
        for entry in graph.document.inputs:
            if entry.id not in document.shardings:
                raise InvalidDocument("missing sharding", where=f"{where}: shardings", wanted=entry.id)
    parts = {key: raw[key] for key in ("mesh", "hardware", "request")}
    if digest_document({"graph": graph.digest, **parts, "versions": raw["solver"]["versions"]}) != document.id:
        what = "digest mismatch: mesh, hardware, request or versions are not those that were planned for"
        raise InvalidDocument(what, where=f"{where}: id", got=document.id)
    rest = {key: value for key, value in raw.items() if key != "digest"}
    if raw.get("digest") not in (None, digest_document(rest)):
        what = "digest mismatch: the plan is not as it was written"
        raise InvalidDocument(what, where=f"{where}: digest", got=raw["digest"])
    return document
