"""What differs between two plan documents: totals, and the values that are sharded otherwise."""

from __future__ import annotations

from typing import Any

from planner.documents.schemas import PlanDocument

TOTALS = ("step_s", "compute_s", "communication_s", "collective_bytes")


def comparison_document(base: PlanDocument, new: PlanDocument) -> dict[str, Any]:
    """Totals with their change, new - base, None where a plan has none; changed values in the order of the plans."""
    numbers = [{**_numbers(plan), "objective_s": plan.solver.objective_s} for plan in (base, new)]
    keys = ("objective_s", *TOTALS, "peak_bytes")
    return {
        "base": base.id,
        "new": new.id,
        "totals": {key: _total(numbers[0].get(key), numbers[1].get(key)) for key in keys},
        "changes": _changes(base, new),
    }


def _numbers(plan: PlanDocument) -> dict[str, float]:
    return {**plan.cost.model_dump(include=set(TOTALS)), **plan.memory.model_dump(include={"peak_bytes"})}


def _total(base: float | None, new: float | None) -> dict[str, float | None]:
    return {"base": base, "new": new, "change": None if base is None or new is None else new - base}


def _changes(base: PlanDocument, new: PlanDocument) -> list[dict[str, Any]]:
    mine, theirs = (
        {value: sharding.model_dump(exclude_defaults=True) for value, sharding in plan.shardings.items()}
        for plan in (base, new)
    )
    return [
        {"value": value, "base": mine.get(value), "new": theirs.get(value)}
        for value in dict.fromkeys([*mine, *theirs])
        if mine.get(value) != theirs.get(value)
    ]
