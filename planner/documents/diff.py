"""The differences between two plan documents: totals, layouts, terms of time, memory at the peaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from planner.choose.cost import CostModel
from planner.documents.graphs import dump_sharding
from planner.documents.hardware import load_planned_hardware
from planner.documents.pipeline_sections import AnyPlanDocument, PipelineDocument
from planner.documents.pipelines import load_pipeline
from planner.documents.programs import load_program
from planner.documents.stage_changes import dump_stage_changes, find_fullest_stage, list_stage_totals
from planner.ir.sharding import Sharding
from planner.judge.analysis import Analysis
from planner.judge.analyzed_plan import AnalyzedPlan
from planner.judge.diff import DiffSide, LayoutChange, PlanDiff

TOTALS = ("step_s", "compute_s", "communication_s", "collective_bytes")
KEYS = ("objective_s", *TOTALS, "peak_bytes")
STAGE_KEYS = ("objective_s", "bound_s", "step_s", "bubble_s", "collective_bytes", "sent_bytes", "peak_bytes")
"""The totals where a plan is in stages: `bubble_s` of a step, and `sent_bytes` between stages, which all receive."""
NOTHING_KNOWN: Mapping[str, AnalyzedPlan] = MappingProxyType({})
NO_CHANGE: dict[str, Any] = {"changes": [], "options": [], "terms": []}


def dump_unchanged(base: AnyPlanDocument | None, new: AnyPlanDocument | None) -> dict[str, Any]:
    """Return the comparison of a plan with itself; None stands for a plan that was not made."""
    numbers, keys = {} if base is None else _totals_of(base), _list_keys(base, new)
    return {
        "base": base and base.id,
        "new": new and new.id,
        "versions": {"base": base and base.solver.versions, "new": new and new.solver.versions},
        "totals": {key: {"base": numbers.get(key), "new": numbers.get(key), "change": 0} for key in keys},
        **NO_CHANGE,
        "memory": None if base is None else _dump_memory(base, base),
        **({} if base is None else dump_stage_changes(base, base, None)),
    }


def load_regression(
    base: AnyPlanDocument, new: AnyPlanDocument, known: Mapping[str, AnalyzedPlan] = NOTHING_KNOWN
) -> PlanDiff | None:
    """Return the programs of two plans side by side, with recomputed figures; None where one is infeasible.

    known  figures of programs that need not be read, by the plan's id
    """
    if not (has_program(base) and has_program(new)):
        return None
    one, other = (known.get(plan.id) or _analyze(plan) for plan in (base, new))
    return PlanDiff(one, other)


def has_program(plan: AnyPlanDocument) -> bool:
    """Return whether a plan document has a program, or stages with their programs."""
    return bool(plan.stages if isinstance(plan, PipelineDocument) else plan.program)


def compare_documents(base: AnyPlanDocument, new: AnyPlanDocument) -> dict[str, Any]:
    """Return the differences between two plans: totals with change = new - base, None where a plan has no number.

    `changes` are values with another sharding, `options` ops with another split, under their name in the new plan
    (`base_name` where the base has another), None on a side that lacks them. `terms` are changed times of ops and of
    the collectives of values; their changes add up to the step's, in ps; of stages, to what all of them compute.
    `memory` says what fills each peak. `stages`, where a plan has some, are those of both, with the cuts that are
    elsewhere.
    """
    return dump_regression(base, new, load_regression(base, new))


def dump_regression(base: AnyPlanDocument, new: AnyPlanDocument, diff: PlanDiff | None) -> dict[str, Any]:
    """Return the comparison of programs that are side by side already."""
    return {
        "base": base.id,
        "new": new.id,
        "versions": {"base": base.solver.versions, "new": new.solver.versions},
        "totals": totals_document(base, new),
        **(NO_CHANGE if diff is None else _dump_differences(diff)),
        "memory": _dump_memory(base, new),
        **dump_stage_changes(base, new, diff),
    }


def totals_document(base: AnyPlanDocument, new: AnyPlanDocument) -> dict[str, dict[str, float | None]]:
    """Return the figures of two plans as recorded, and their changes."""
    numbers = _totals_of(base), _totals_of(new)
    return {key: _dump_total(numbers[0].get(key), numbers[1].get(key)) for key in _list_keys(base, new)}


def _list_keys(*plans: AnyPlanDocument | None) -> tuple[str, ...]:
    return STAGE_KEYS if any(isinstance(plan, PipelineDocument) for plan in plans) else KEYS


def _totals_of(plan: AnyPlanDocument) -> dict[str, float | None]:
    proven: dict[str, float | None] = {"objective_s": plan.solver.objective_s, "bound_s": plan.solver.bound_s}
    if isinstance(plan, PipelineDocument):
        return proven | list_stage_totals(plan)
    totals = {**plan.cost.model_dump(include=set(TOTALS)), **plan.memory.model_dump(include={"peak_bytes"})}
    return proven | totals | (dict.fromkeys(("bubble_s", "sent_bytes"), 0) if plan.program else {})


def _dump_total(base: float | None, new: float | None) -> dict[str, float | None]:
    return {"base": base, "new": new, "change": None if base is None or new is None else new - base}


def _dump_differences(diff: PlanDiff) -> dict[str, Any]:
    changes = diff.changes()
    changed_layouts = [change for change in changes if _dump_layout(change.base) != _dump_layout(change.new)]
    return {
        "changes": [_dump_sharding_change(change, "value") for change in changed_layouts if change.what == "value"],
        "options": [_dump_sharding_change(change, "op") for change in changed_layouts if change.what == "op"],
        "terms": [_dump_term(change) for change in changes if change.change_ps],
    }


def _analyze(plan: AnyPlanDocument) -> AnalyzedPlan:
    if isinstance(plan, PipelineDocument):
        return load_pipeline(plan).analyzed
    program = load_program(plan)
    return AnalyzedPlan.of(Analysis(program, CostModel(program.mesh, load_planned_hardware(plan))))


def _dump_sharding_change(change: LayoutChange, what: str) -> dict[str, Any]:
    return {
        what: _changed_name(change),
        "base_name": _base_name(change),
        "base": _dump_layout(change.base),
        "new": _dump_layout(change.new),
    }


def _changed_name(change: LayoutChange) -> str:
    side = change.new or change.base
    assert side is not None
    return side.name


def _base_name(change: LayoutChange) -> str | None:
    """Return the name in the base where it differs, else None."""
    return change.base.name if change.base and change.base.name != _changed_name(change) else None


def _dump_layout(side: DiffSide | None) -> Any:
    if side is None:
        return None
    if isinstance(side.layout, Sharding):
        return dump_sharding(side.layout, side.mesh)
    return [[side.mesh.names[axis] for axis in axes] for axes in side.layout]


def _dump_term(change: LayoutChange) -> dict[str, Any]:
    sides = {
        key: None if side is None else {"time_ps": side.time_ps, "collectives": [asdict(term) for term in side.terms]}
        for key, side in (("base", change.base), ("new", change.new))
    }
    return {
        "what": change.what,
        "name": _changed_name(change),
        "base_name": _base_name(change),
        **sides,
        "change_ps": change.change_ps,
    }


def _dump_memory(base: AnyPlanDocument, new: AnyPlanDocument) -> dict[str, Any] | None:
    """Return both peaks, and the change of each kind of memory at them; of stages, those of the fullest one."""
    parts = [find_fullest_stage(plan) if isinstance(plan, PipelineDocument) else plan for plan in (base, new)]
    peaks = [part.memory.model_dump(include={"at", "peak_bytes", "by_kind"}) if part else {} for part in parts]
    if not all(peaks):
        return None
    before, after = (each["by_kind"] for each in peaks)
    change = {kind: after.get(kind, 0) - before.get(kind, 0) for kind in dict.fromkeys([*before, *after])}
    return {"base": peaks[0], "new": peaks[1], "change_bytes": change}
