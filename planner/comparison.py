"""Compare two plans: what changes in time and memory from one to the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from planner.choose.cost import PICO
from planner.errors import InvalidRequest
from planner.judge.analysis import Analysis
from planner.judge.analyzed_plan import AnalyzedPlan
from planner.judge.diff import LayoutChange, PlanDiff
from planner.notebook import HtmlTable, notebook_html
from planner.planning.plan_types import Plan
from planner.units import format_bytes, format_time

SHOWN = 12
"""Number of changes that a notebook shows."""


@dataclass(frozen=True)
class Comparison:
    """Two plans of a model, and the values and ops that are sharded, moved or timed differently.

    The times of `changes` add up to the difference of the step times.
    """

    base: Plan
    new: Plan

    @cached_property
    def changes(self) -> list[LayoutChange]:
        return PlanDiff(*(AnalyzedPlan.of(_analysis(plan)) for plan in (self.base, self.new))).changes()

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        sides = [_analysis(self.base), _analysis(self.new)]
        names = [f"{plan.graph.name} on {plan.model.mesh.notation}" for plan in (self.base, self.new)]
        lead = f"{len(self.changes)} ops and values differ in sharding or time"
        largest = sorted(self.changes, key=lambda change: -abs(change.change_ps))[:SHOWN]
        return notebook_html(
            f"{names[1]}, compared with {names[0]}",
            lead,
            HtmlTable("Totals", ("", "base", "new", "change"), _totals(*sides)),
            HtmlTable("Largest changes in time", ("op or value", "base", "new", "change"), map(_row, largest)),
        )


def compare(base: Plan, new: Plan) -> Comparison:
    """Compare two plans. Raises InvalidRequest where one is infeasible."""
    for plan in (base, new):
        _analysis(plan)
    return Comparison(base, new)


def _analysis(plan: Plan) -> Analysis:
    if plan.analysis is None:
        status = plan.certificate.status
        raise InvalidRequest("a comparison of plans", where=plan.graph.name, got=status, wanted="two plans that fit")
    return plan.analysis


def _totals(base: Analysis, new: Analysis) -> list[tuple[str, ...]]:
    communication = base.step_ps - base.compute_ps, new.step_ps - new.compute_ps
    return [
        _total("step", base.step_ps, new.step_ps, shown=_time),
        _total("compute", base.compute_ps, new.compute_ps, shown=_time),
        _total("communication", *communication, _time),
        _total("received per device", base.collective_bytes, new.collective_bytes, shown=format_bytes),
        _total("peak memory", base.peak_bytes, new.peak_bytes, shown=format_bytes),
    ]


def _total(name: str, base: int, new: int, shown: Callable[[int], str]) -> tuple[str, ...]:
    return name, shown(base), shown(new), _signed(new - base, shown(abs(new - base)))


def _row(change: LayoutChange) -> tuple[str, ...]:
    side = change.new or change.base
    shown = ("-" if each is None else _time(each.time_ps) for each in (change.base, change.new))
    return side.name if side else "", *shown, _signed(change.change_ps, _time(abs(change.change_ps)))


def _time(picoseconds: int) -> str:
    return format_time(picoseconds * PICO)


def _signed(change: int, shown: str) -> str:
    return f"{'+' if change > 0 else '-'}{shown}" if change else "same"
