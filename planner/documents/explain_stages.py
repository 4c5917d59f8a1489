"""Explanations of plans in pipeline stages as JSON. Times are whole picoseconds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from planner.choose.cost import PICO
from planner.documents.pipeline_sections import PipelineDocument
from planner.documents.pipelines import load_feasible_pipeline, load_pipeline
from planner.errors import InvalidRequest
from planner.pipeline_stages.explain import PipelineExplanation, explain_pipeline
from planner.pipeline_stages.pipeline_plan import PipelinePlan
from planner.planning.deadline import ProgressReporter
from planner.usecases.explain import PlanExplanation

Document = dict[str, Any]


def dump_stages_overview(document: PipelineDocument, report: ProgressReporter) -> Document:
    """Return why the cuts of a plan are where they are and where its time goes, or why there is no plan."""
    if document.schedule is None:
        limit = document.request.memory_limit_bytes
        solver = document.solver
        return {"plan": document.id, "status": solver.status, "reason": solver.reason, "limit_bytes": limit}
    plan = load_pipeline(document)
    return {"plan": document.id, **dump_pipeline_explanation(plan, explain_pipeline(plan, report.deadline, report))}


def dump_pipeline_explanation(plan: PipelinePlan, explained: PipelineExplanation) -> Document:
    """Return the document of an explanation.

    `step_ps` is `slowest_ps` + `fill_ps` + `sends_ps`. Each cut has the steps with it moved by one unit: `step_ps` is
    that of the best plans known, null where none is, and no step with these cuts is below `bound_ps`.
    """
    assert plan.schedule is not None, "an infeasible plan has no explanation"
    ranks, bound = plan.schedule.ranks, explained.bound
    stages = [
        {
            "stage": number,
            "rank": number % ranks,
            "layers": list(one.stage.layers),
            "work_ps": explained.stages_ps[number],
            "bound_ps": bound.stages_ps[number],
            "peak_bytes": one.analysis.peak_bytes,
        }
        for number, one in enumerate(plan.stages)
    ]
    parts = asdict(explained.parts) | {"idle_ps": list(explained.parts.idle_ps)}
    cuts = [asdict(cut) | {"values": list(cut.values), "moves": list(map(asdict, cut.moves))} for cut in explained.cuts]
    rest = {"bound_ps": bound.bound_ps, "cuts_ps": bound.cuts_ps, "path_stage": bound.path_stage}
    reason = {"status": plan.certificate.status, "reason": plan.certificate.reason}
    return {**parts, "bubble": plan.timeline.bubble, "stages": stages, "cuts": cuts, "bound": {**rest, **reason}}


def explain_stage(document: PipelineDocument, name: str, report: ProgressReporter) -> PlanExplanation:
    """Return the explanation of the first stage that has an op or graph input. Raises InvalidRequest where none has."""
    plan = load_feasible_pipeline(document)
    for stage, entry in zip(plan.stages, document.stages, strict=True):
        program = stage.analysis.program
        if name in program.graph.dag:
            bound, limit = round(entry.plan.solver.bound_s / PICO), entry.plan.request.memory_limit_bytes
            return PlanExplanation(program, plan.model, limit, bound, stage.plan.request, report)
    names = [op.id for stage in plan.stages for op in stage.analysis.program.graph.ops]
    raise InvalidRequest("no such op or input in any stage", got=name, wanted=f"one such as {', '.join(names[:3])}")
