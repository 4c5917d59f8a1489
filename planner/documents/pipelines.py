"""Plans of pipelines as documents, and back: each stage with its plan, the schedule in time, and the certificate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from planner.choose.cost import PICO, CostModel
from planner.documents.canonical_json import digest_document
from planner.documents.explain import load_request
from planner.documents.graphs import load_graph, load_mesh
from planner.documents.hardware import load_planned_hardware
from planner.documents.pipeline_sections import AnyPlanDocument, PipelineDocument
from planner.documents.pipeline_structure import check_structure, load_schedule
from planner.documents.plans import dump_identity, dump_plan, parse_plan
from planner.documents.programs import load_program
from planner.documents.schemas import validate_document
from planner.documents.versions import current_versions
from planner.errors import InvalidDocument
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.judge.analysis import Analysis
from planner.judge.program_choice import recover_choice
from planner.pipeline_stages.cuts import Units
from planner.pipeline_stages.export.stage_plan import StagePlan
from planner.pipeline_stages.pipeline_interval import find_pipeline_interval
from planner.pipeline_stages.pipeline_plan import PipelineCertificate, PipelinePlan, PlannedStage
from planner.pipeline_stages.plan_pipeline import count_microbatches, price_ranks, price_stages
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.simulate import TimedTask
from planner.pipeline_stages.stage_graph import StageGraph, extract_stage
from planner.pipeline_stages.tied_parameters import find_tied, find_tied_units
from planner.pipeline_stages.validate import list_tasks, run_stages
from planner.planning.plan_types import Certificate, Plan, Request
from planner.planning.step_graph import build_step
from planner.run.executor import Progress
from planner.run.pipeline import PipelineVerdict

FORMAT = "shardplan.pipeline"


def identify_pipeline(graph: Graph, model: CostModel, request: Request, *, asked: PipelineRequest) -> str:
    """Return the id that the pipeline's plan of a request has."""
    identity = dump_identity(graph, price_stages(model), count_microbatches(graph, request))
    return _digest_identity(identity, asked)


def _digest_identity(identity: Mapping[str, Any], asked: PipelineRequest) -> str:
    return digest_document({"plan": identity["id"], "pipeline": _dump_asked(asked)})


def _dump_asked(asked: PipelineRequest) -> dict[str, Any]:
    """Return the document of a request for stages; meshes only where it gives each rank one."""
    sizes = {"stages": asked.stages, "schedule": asked.schedule, "virtual_stages": asked.virtual_stages}
    return sizes if asked.meshes is None else {**sizes, "meshes": [mesh.notation for mesh in asked.meshes]}


def dump_pipeline(plan: PipelinePlan, asked: PipelineRequest) -> dict[str, Any]:
    """Return the document of a pipeline's plan."""
    identity = dump_identity(plan.graph, plan.model, plan.request)
    request = {**identity["request"], "pipeline": _dump_asked(asked)}
    solver = {**asdict(plan.certificate), "versions": current_versions()}
    if plan.request.deterministic:
        solver["wall_s"] = None
    document = {
        "format": FORMAT,
        "version": 1,
        **identity,
        "id": _digest_identity(identity, asked),
        "request": request,
        "solver": solver,
        "schedule": _dump_schedule(plan.schedule) if plan.schedule else None,
        "cost": _dump_cost(plan) if plan.schedule else None,
        "tied": [tie.parameter for tie in plan.ties],
        "stages": [_dump_stage(plan, number, stage) for number, stage in enumerate(plan.stages)],
        "timeline": [[_dump_task(one) for one in done] for done in plan.timeline.ranks] if plan.schedule else [],
    }
    return add_pipeline_verdict(document, plan.verdict)


def add_pipeline_verdict(document: dict[str, Any], verdict: PipelineVerdict | None) -> dict[str, Any]:
    """Return the document with the verdict of its run, None where it has not ended, and with its digest."""
    rest = {key: part for key, part in document.items() if key != "digest"}
    rest["verdict"] = dump_pipeline_verdict(verdict) if verdict else None
    return {**rest, "digest": digest_document(rest)}


def dump_pipeline_verdict(verdict: PipelineVerdict) -> dict[str, Any]:
    """Return the document of a verdict; an error that is not finite is null."""
    error = verdict.max_relative_error if math.isfinite(verdict.max_relative_error) else None
    return {**asdict(verdict), "max_relative_error": error, "stages": list(map(asdict, verdict.stages))}


def _dump_schedule(schedule: PipelineSchedule) -> dict[str, Any]:
    sizes = {"ranks": schedule.ranks, "virtual_stages": schedule.chunks, "microbatches": schedule.microbatches}
    return {"name": schedule.name, **sizes}


def _dump_cost(plan: PipelinePlan) -> dict[str, Any]:
    assert plan.schedule is not None
    ranks, (low_s, high_s) = range(plan.schedule.ranks), find_pipeline_interval(plan)
    return {
        "step_s": plan.step_s,
        "low_s": low_s,
        "high_s": high_s,
        "bubble": plan.timeline.bubble,
        "mfu": plan.mfu,
        "devices": plan.devices,
        "collective_bytes": max(stage.analysis.collective_bytes for stage in plan.stages),
        "sent_bytes": plan.sent_bytes,
        "peak_memory_bytes": max(map(plan.peak_bytes, ranks)),
    }


def _dump_task(done: TimedTask) -> dict[str, Any]:
    task, span = done.task, {"begin_s": done.begin_ps * PICO, "end_s": done.end_ps * PICO}
    return {"kind": task.kind.value, "stage": task.stage, "microbatch": task.microbatch, **span}


def _dump_stage(plan: PipelinePlan, number: int, planned: PlannedStage) -> dict[str, Any]:
    assert plan.schedule is not None
    stage, times = planned.stage, plan.timeline.times[number]
    flying, is_split = planned.analysis.program.graph.in_flight, plan.schedule.is_split
    own = replace(planned.plan, graph=stage.order_ops(is_split=is_split))
    return {
        "rank": number % plan.schedule.ranks,
        "units": [stage.first, stage.last],
        "layers": list(stage.layers),
        "in_flight": [flying.after_forward, flying.after_backward],
        "step_s": planned.analysis.step_ps * PICO,
        **{f"{name.removesuffix('_ps')}_s": ps * PICO for name, ps in asdict(times).items()},
        "peak_memory_bytes": planned.analysis.peak_bytes,
        "received": [*stage.received, *stage.received_gradients, *stage.received_sums],
        "sent": [*stage.sent, *stage.sent_gradients, *stage.sent_sums],
        "plan": dump_plan(own, with_overlap=False),
    }


def is_pipeline(raw: Any) -> bool:
    """Return whether a JSON value says that it is the plan of a pipeline."""
    return isinstance(raw, dict) and raw.get("format") == FORMAT


def parse_pipeline(raw: Any, where: str) -> PipelineDocument:
    """Return the document of a pipeline's plan in a JSON value. Raises InvalidDocument where it was changed."""
    document = validate_document(PipelineDocument, raw, where)
    rest = {key: value for key, value in raw.items() if key != "digest"}
    if raw["digest"] != digest_document(rest):
        what = "digest mismatch: the plan is not as it was written"
        raise InvalidDocument(what, where=f"{where}: digest", got=raw["digest"])
    check_structure(document, where)
    return document


def parse_any_plan(raw: Any, where: str) -> AnyPlanDocument:
    """Return the document of a plan with or without stages in a JSON value. Raises InvalidDocument."""
    return parse_pipeline(raw, where) if is_pipeline(raw) else parse_plan(raw, where)


def dump_pipeline_report(raw: Any, where: str) -> dict[str, Any]:
    """Return what a page shows of a pipeline's plan: all but the graph and the stages' own plans."""
    parse_pipeline(raw, where)
    stages = [{key: value for key, value in stage.items() if key != "plan"} for stage in raw["stages"]]
    graph = {key: value for key, value in raw["graph"].items() if key != "document"}
    return {**raw, "graph": graph, "stages": stages}


def run_document(document: PipelineDocument, *, seed: int = 0, on_progress: Progress | None = None) -> PipelineVerdict:
    """Run the stages of a document. Raises InvalidDocument where it has none."""
    plan = load_feasible_pipeline(document)
    tasks = list_tasks(plan.timeline)
    ranks, ties = len(document.timeline), plan.ties
    return run_stages(plan.graph, plan.programs, tasks, ranks=ranks, ties=ties, seed=seed, on_progress=on_progress)


def load_stage_plan(document: PipelineDocument) -> StagePlan:
    """Return what exports read of a document. Raises InvalidDocument where it has no stages."""
    plan = load_feasible_pipeline(document)
    tasks = [[(task.kind, task.stage, task.microbatch) for task in own] for own in document.timeline]
    return StagePlan.of(plan.programs, len(tasks), tasks=tasks, ties=plan.ties)


def load_feasible_pipeline(document: PipelineDocument) -> PipelinePlan:
    """Return the plan of a document. Raises InvalidDocument where it has no stages."""
    if document.schedule is None:
        raise InvalidDocument("the plan has no stages", where="plan", got=document.solver.status)
    return load_pipeline(document)


def load_stages(document: PipelineDocument) -> list[tuple[StageGraph, Program]]:
    """Return each stage's graph and program. Raises InvalidDocument for stages that are none of the graph's."""
    return load_pipeline(document).programs


def load_pipeline(document: PipelineDocument) -> PipelinePlan:
    """Return the plan of a document, without its verdict; figures are computed again.

    Raises InvalidDocument for stages that are none of the graph's.
    """
    mesh, hardware = load_mesh(document.mesh), load_planned_hardware(document)
    graph = load_graph(document.graph.document, mesh)
    request = load_request(document)
    units = _load_units(document, build_step(graph, mesh, layout=request.layout))
    solver, listed = document.solver, document.schedule
    certificate = PipelineCertificate(**solver.model_dump(exclude={"versions"}) | {"wall_s": solver.wall_s or 0.0})
    schedule = None if listed is None else load_schedule(listed)
    meshes = load_pipeline_request(document).list_meshes(graph, mesh, request.layout)
    models = price_ranks(meshes, hardware)
    stages = [
        _load_stage(document, number, units, model=models[number % len(models)])
        for number in range(len(document.stages))
    ]
    return PipelinePlan(graph, models[0], request, certificate, schedule, tuple(stages), units.ties)


def _load_units(document: PipelineDocument, step: Graph) -> Units:
    if document.tied and (unknown := sorted(set(document.tied) - set(find_tied(step)))):
        what, wanted = "a tied parameter", "parameters that two units read"
        raise InvalidDocument(what, where="tied", got=unknown[0], wanted=wanted)
    units = find_tied_units(step, document.tied)
    if document.stages and (end := document.stages[-1].units[1]) != units.count:
        raise InvalidDocument("last unit of all stages", where="stages", got=end, wanted=units.count)
    return units


def load_pipeline_request(document: PipelineDocument) -> PipelineRequest:
    """Return which pipelines a document's plan was chosen from."""
    asked = document.request.pipeline
    meshes = None if asked.meshes is None else tuple(map(Mesh.parse, asked.meshes))
    return PipelineRequest(asked.stages, asked.schedule, asked.virtual_stages, meshes)


def _load_stage(document: PipelineDocument, number: int, units: Units, *, model: CostModel) -> PlannedStage:
    entry = document.stages[number]
    first, last = entry.units
    if document.schedule is None or not 0 <= first < last <= units.count:
        what, wanted = "units of a stage", f"a span within 0 to {units.count}"
        raise InvalidDocument(what, where=f"stages: {number}", got=entry.units, wanted=wanted)
    stage = extract_stage(units, first, last)
    held = entry.in_flight[0], entry.in_flight[1]
    step = stage.make_step(document.schedule.microbatches, held, is_split=document.schedule.name == "zb-h1")
    program = load_program(entry.plan)
    if program.mesh != model.mesh:
        got, wanted = program.mesh.notation, model.mesh.notation
        raise InvalidDocument("mesh of a stage", where=f"stages: {number}", got=got, wanted=wanted)
    if program.graph.outputs != step.outputs or not step.types.keys() <= program.graph.types.keys():
        raise InvalidDocument("the plan of a stage", where=f"stages: {number}", got="another graph's", wanted="its own")
    program = replace(program, graph=replace(program.graph, in_flight=step.in_flight, sent=step.sent))
    solver = entry.plan.solver
    proven = solver.model_dump(exclude={"versions", "seed", "folding"}) | {"wall_s": solver.wall_s or 0.0}
    choice, analysis = recover_choice(program), Analysis(program, model)
    request = load_request(entry.plan)
    return PlannedStage(stage, Plan(step, model, request, Certificate(**proven), choice, analysis, ()))
