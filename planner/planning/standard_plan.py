"""The standard layouts of a step, one of which is the plan where there is no time for a search."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from planner.choose.cost import CostModel
from planner.choose.formulate import Choice
from planner.ir.graph import Graph
from planner.judge.analysis import Analysis
from planner.judge.baseline_choice import write_baseline
from planner.judge.pinned_layouts import list_pinned_layouts
from planner.judge.standard_layouts import Baseline, list_baselines
from planner.planning.certify import leave_layout
from planner.planning.deadline import Deadline, ProgressReporter
from planner.planning.plan_search import is_pinned
from planner.planning.plan_types import Plan, Request

WRITE_SHARE = 6.0
"""Writing a plan, its figures and its document take about so many times as long as finding the standard layouts."""


@dataclass(frozen=True)
class StandardLayouts:
    """The standard layouts of a step.

    baselines  as they are
    pinned     with the pins of the graph, where it has any
    seconds    how long finding them took
    """

    graph: Graph
    model: CostModel
    request: Request
    baselines: Sequence[Baseline]
    pinned: Sequence[Baseline]
    seconds: float

    @classmethod
    def find(cls, graph: Graph, model: CostModel, request: Request) -> StandardLayouts:
        """Find the layouts. Raises InvalidRequest where the graph cannot have the one that is asked for."""
        began_s = time.monotonic()
        baselines = list_baselines(graph, model.mesh)
        seconds = time.monotonic() - began_s
        pinned = list_pinned_layouts(graph, model, baselines, layout=request.layout) if is_pinned(graph) else []
        return cls(graph, model, request, baselines, pinned, seconds)

    def leave_time(self, deadline: Deadline) -> Deadline:
        """Return when a search has to end so that its plan, or a layout, can be written before the deadline."""
        return deadline.sooner(WRITE_SHARE * self.seconds)

    def plan_best(self, deadline: Deadline, report: ProgressReporter) -> Plan:
        """Return the best layout that fits as the plan; one without a choice where none fits.

        At least one is priced, and those that can be before the deadline.
        """
        wall_s = deadline.elapsed_s
        report.begin("pricing standard layouts")
        layouts = self._write_layouts(deadline)
        return leave_layout(self.graph, self.model, self.request, layouts=layouts, wall_s=wall_s)

    def _write_layouts(self, deadline: Deadline) -> dict[str, tuple[Choice, Analysis]]:
        """Return the layouts with their figures.

        Those that store least per device come first, as they are likely to fit.
        """
        kinds = {entry.id: entry.type for entry in self.graph.inputs}
        listed = self.pinned or self.baselines
        written: dict[str, tuple[Choice, Analysis]] = {}
        for each in sorted(
            listed, key=lambda one: sum(self.model.shard_bytes(kinds[i], s) for i, s in one.inputs.items())
        ):
            if written and deadline.left_s == 0.0:
                break
            choice, program = write_baseline(self.graph, self.model, each)
            written[each.name] = choice, Analysis(program, self.model)
        return {each.name: written[each.name] for each in listed if each.name in written}
