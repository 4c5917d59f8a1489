"""What differs between two plans beside their programs where one is in pipeline stages: the stages and their cuts."""

from __future__ import annotations

from typing import Any

from planner.documents.pipeline_sections import AnyPlanDocument, PipelineDocument, StageDocument
from planner.documents.schemas import PlanDocument
from planner.judge.diff import PlanDiff

Document = dict[str, Any]


def list_stage_totals(plan: PipelineDocument) -> dict[str, float | None]:
    """Return the figures of a plan in stages; none where it is infeasible."""
    if (cost := plan.cost) is None:
        return {}
    sizes = {"collective_bytes": cost.collective_bytes, "sent_bytes": cost.sent_bytes}
    times = {"step_s": cost.step_s, "bubble_s": cost.bubble * cost.step_s}
    return {**times, **sizes, "peak_bytes": cost.peak_memory_bytes}


def find_fullest_stage(plan: PipelineDocument) -> PlanDocument | None:
    """Return the plan of the stage that holds most; None where there are no stages."""
    return max((stage.plan for stage in plan.stages), key=_peak_bytes, default=None)


def _peak_bytes(plan: PlanDocument) -> int:
    return int(plan.memory.model_dump().get("peak_bytes", 0))


def dump_stage_changes(base: AnyPlanDocument, new: AnyPlanDocument, diff: PlanDiff | None) -> Document:
    """Return the stages of both plans and the cuts that are elsewhere; nothing where neither is in stages.

    `moved_cuts`: where as many stages begin elsewhere, each with the layer at which it begins. `units`: by how many
    units it moved, null where the graphs differ.
    """
    if not any(isinstance(plan, PipelineDocument) for plan in (base, new)):
        return {}
    stages = {side: _list_stages(plan) for side, plan in (("base", base), ("new", new))}
    moved = []
    if isinstance(base, PipelineDocument) and isinstance(new, PipelineDocument) and diff:
        moved = _list_moved_cuts(base, new, diff)
    return {"stages": {**stages, "moved_cuts": moved}}


def _list_stages(plan: AnyPlanDocument) -> list[Document]:
    return [_dump_stage(stage) for stage in plan.stages] if isinstance(plan, PipelineDocument) else []


def _dump_stage(stage: StageDocument) -> Document:
    figures = {"step_s": stage.step_s, "peak_bytes": stage.peak_memory_bytes}
    return {"rank": stage.rank, "units": list(stage.units), "layers": list(stage.layers), **figures}


def _list_moved_cuts(base: PipelineDocument, new: PipelineDocument, diff: PlanDiff) -> list[Document]:
    """Return the cuts after which another value is sent up, by the stage that begins there."""
    if len(base.stages) != len(new.stages):
        return []
    is_same_graph = base.graph.digest == new.graph.digest
    moved = []
    for number in range(1, len(new.stages)):
        sent = [plan.stages[number - 1].sent[0] for plan in (base, new)]
        if diff.matching.values.get(sent[1]) == sent[0]:
            continue
        begins = [plan.stages[number] for plan in (base, new)]
        layers = {side: next(iter(stage.layers), None) for side, stage in zip(("base", "new"), begins, strict=True)}
        units = begins[1].units[0] - begins[0].units[0] if is_same_graph else None
        moved.append({"stage": number, **layers, "units": units})
    return moved
