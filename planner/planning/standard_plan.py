"""The standard layouts of a step, one of which is the plan where there is no time for a search."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.choose.cost import CostModel
from planner.choose.formulate import Choice
from planner.choose.rematerialization import find_recomputable_ops
from planner.ir.graph import Graph
from planner.ir.rematerialization import clone_ops
from planner.judge.analysis import Analysis
from planner.judge.baseline_choice import write_baseline
from planner.judge.peak_estimate import estimate_peak_bytes
from planner.judge.pinned_layouts import list_pinned_layouts
from planner.judge.standard_layouts import LAYOUTS, Baseline, LayoutName, build_layout, can_have_layout, list_baselines
from planner.planning.certify import leave_layout
from planner.planning.deadline import Deadline, ProgressReporter
from planner.planning.plan_search import is_pinned
from planner.planning.plan_types import Plan, Request

WRITE_SHARE = 6.0
"""Writing a plan, its figures and its document take about so many times as long as finding the standard layouts."""

SPARING: LayoutName = "fsdp+tp"
"""The layout that splits parameters, states and activations over all axes, so that little is held."""
RECOMPUTED = "{}, everything recomputed"
"""The name of a layout in which everything is recomputed that may be."""
MARGIN = 1.05
"""A layout is likely to fit where the estimate of its peak does with this factor."""


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

        At least one is priced, and those that can be before the deadline. Where no compared layout seems to fit, there
        is one more (SPARING), and, where the request allows it, each with everything recomputed.
        """
        wall_s = deadline.elapsed_s
        report.begin("pricing standard layouts")
        layouts = self._write_layouts(deadline)
        return leave_layout(self.graph, self.model, self.request, layouts=layouts, wall_s=wall_s)

    def _write_layouts(self, deadline: Deadline) -> dict[str, tuple[Choice, Analysis]]:
        """Return the layouts with their figures.

        Those that are likely to fit come first.
        """
        listed = self._list_layouts()
        written: dict[str, tuple[Choice, Analysis]] = {}
        for each in sorted(listed, key=lambda one: one.rank):
            if written and deadline.left_s == 0.0:
                break
            choice, program = write_baseline(each.graph, self.model, each.layout)
            written[each.layout.name] = choice, Analysis(program, self.model)
        return {each.layout.name: written[each.layout.name] for each in listed if each.layout.name in written}

    def _list_layouts(self) -> list[_LikelyLayout]:
        """Return the layouts to price, with more than the compared ones where none of these is likely to fit."""
        listed = [self._judge(self.graph, each) for each in self.pinned or self.baselines]
        is_likely, has_axes = any(each.is_likely for each in listed), can_have_layout(LAYOUTS[SPARING], self.model.mesh)
        if not is_likely and has_axes and not self.pinned:
            sparing = replace(build_layout(self.graph, self.model.mesh, SPARING), name=SPARING)
            listed.append(self._judge(self.graph, sparing))
        if not any(each.is_likely for each in listed) and self.request.recompute == "auto":
            cloned = clone_ops(self.graph, find_recomputable_ops(self.graph))
            listed += [self._judge(cloned, _recompute(each.layout, cloned)) for each in listed]
        return listed

    def _judge(self, graph: Graph, layout: Baseline) -> _LikelyLayout:
        peak = MARGIN * estimate_peak_bytes(graph, self.model, layout)
        limit = self.request.memory_limit_bytes or self.model.hardware.memory_bytes
        stored = sum(self.model.shard_bytes(entry.type, layout.inputs[entry.id]) for entry in graph.inputs)
        return _LikelyLayout(graph, layout, (peak > limit, stored if peak <= limit else peak))


@dataclass(frozen=True)
class _LikelyLayout:
    """A layout of a graph, which may have clones of ops; `rank`: whether it is likely not to fit, then bytes."""

    graph: Graph
    layout: Baseline
    rank: tuple[bool, float]

    @property
    def is_likely(self) -> bool:
        return not self.rank[0]


def _recompute(layout: Baseline, cloned: Graph) -> Baseline:
    """Return a layout with each clone split like its original."""
    options = {op.id: layout.options[op.recompute_of or op.id] for op in cloned.ops}
    return replace(layout, name=RECOMPUTED.format(layout.name), options=options)
