"""Formulate a choice problem until a deadline, with progress."""

from __future__ import annotations

from collections.abc import Mapping

from planner.choose.axis_units import AxisUnits
from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.ir.graph import Graph
from planner.planning.deadline import Deadline, ProgressReporter


def formulate_in_time(
    graph: Graph,
    model: CostModel,
    limit: int | None,
    *,
    late: Mapping[str, int] | None = None,
    units: AxisUnits | None = None,
    deadline: Deadline,
    report: ProgressReporter,
) -> Formulation:
    """Return the problem of `planner.choose.formulate`. Raises TimeLimitReached when the time is up before."""
    report.begin("pricing reshards")
    values = len(graph.types)

    def on_built(done: int) -> None:
        deadline.check()
        report.count(min(done, values), values)

    return formulate(graph, model, limit, late=late, units=units, on_built=on_built)
