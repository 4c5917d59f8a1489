"""The standard layouts of a step, one of which is the plan where there is no time for a search."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planner.choose.cost import CostModel
from planner.choose.rematerialization import find_recomputable_ops
from planner.ir.graph import Graph
from planner.ir.rematerialization import clone_ops
from planner.judge.analysis import Analysis
from planner.judge.baseline_choice import write_baseline
from planner.judge.peak_estimate import estimate_peak_bytes
from planner.judge.pinned_layouts import list_pinned_layouts
from planner.judge.standard_layouts import LAYOUTS, Baseline, LayoutName, build_layout, can_have_layout, list_baselines
from planner.planning.certify import PricedLayout, describe_layout, keep_bounds, leave_layout
from planner.planning.deadline import Deadline, ProgressReporter
from planner.planning.infeasible import TIME_LIMIT
from planner.planning.plan_search import is_pinned
from planner.planning.plan_types import Plan, Request

WRITE_SHARE = 8.0
"""Writing a plan, its figures and its document take about so many times as long as finding the standard layouts."""

DOCUMENT_SHARE = 3.0
"""Writing the document of a layout takes about so many times as long as writing its program and counting it."""

SPARING: LayoutName = "fsdp+tp"
"""The layout that splits parameters, states and activations over all axes, so that little is held."""
RECOMPUTED = "{}, everything recomputed"
"""The name of a layout in which everything is recomputed that may be."""
MARGIN = 1.05
"""A layout is likely to fit where the estimate of its peak does with this factor."""


GraphLayout = tuple[Graph, Baseline]
"""A layout, and the graph that it is one of: the step's, or that with clones of ops."""


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

    def plan_best(self, deadline: Deadline, report: ProgressReporter, searched: Plan | None = None) -> Plan:
        """Return the best layout that fits as the plan; one without a choice where none fits.

        At least one is priced, and those that can be before the deadline. Where no compared layout seems to fit, there
        is one more (SPARING), and, where the request allows it, each with everything recomputed. `searched`: the
        answer of a search that found no plan in its time, whose bounds hold for this one.
        """
        wall_s = deadline.elapsed_s
        report.begin("pricing standard layouts")
        layouts = self._write_layouts(deadline)
        ended = TIME_LIMIT if searched is None else searched.certificate.reason
        plan = leave_layout(self.graph, self.model, self.request, layouts=layouts, wall_s=wall_s, ended=ended)
        return plan if searched is None else keep_bounds(plan, searched.certificate)

    def _write_layouts(self, deadline: Deadline) -> list[PricedLayout]:
        """Return the layouts with their figures, in the order in which they are compared.

        The first is priced in any case; another where the time is enough for it and for the document of one.
        """
        listed, limit, longest_s = self._order_layouts(), self.request.find_limit(self.model.hardware), 0.0
        written: dict[str, PricedLayout] = {}
        for graph, layout in listed:
            began_s = time.monotonic()
            if written and deadline.is_within((1 + DOCUMENT_SHARE) * longest_s):
                break
            choice, program = write_baseline(graph, self.model, layout)
            analysis = Analysis(program, self.model)
            written[layout.name] = PricedLayout(choice, analysis, describe_layout(layout.name, analysis, limit))
            longest_s = max(longest_s, time.monotonic() - began_s)
        compared = [each.name for each in self.pinned or self.baselines if each.name in written]
        return [written[name] for name in dict.fromkeys([*compared, *written])]

    def _order_layouts(self) -> list[GraphLayout]:
        """Return the layouts to price: the first that seems to fit, then those listed before it and with it.

        Where none seems to fit, those that seem to hold least come first.
        """
        limit = self.request.find_limit(self.model.hardware)
        listed, peaks = list[GraphLayout](), dict[str, int]()
        for more in self._list_layouts():
            listed += more
            for graph, layout in more:
                peaks[layout.name] = estimate_peak_bytes(graph, self.model, layout)
                if MARGIN * peaks[layout.name] <= limit:
                    return [(graph, layout), *(each for each in listed if each[1] is not layout)]
        return sorted(listed, key=lambda each: peaks[each[1].name])

    def _list_layouts(self) -> Iterator[list[GraphLayout]]:
        """Yield the compared layouts, those that store least first, then what is only tried where none of them fits."""
        listed = [(self.graph, each) for each in sorted(self.pinned or self.baselines, key=self._count_stored_bytes)]
        yield listed
        if not self.pinned and can_have_layout(LAYOUTS[SPARING], self.model.mesh):
            sparing = self.graph, replace(build_layout(self.graph, self.model.mesh, SPARING), name=SPARING)
            yield [sparing]
            listed = [*listed, sparing]
        if self.request.recompute == "auto":
            cloned = clone_ops(self.graph, find_recomputable_ops(self.graph))
            yield [(cloned, recompute_layout(layout, cloned)) for _, layout in listed]

    def _count_stored_bytes(self, layout: Baseline) -> int:
        return sum(self.model.shard_bytes(entry.type, layout.inputs[entry.id]) for entry in self.graph.inputs)


def recompute_layout(layout: Baseline, cloned: Graph) -> Baseline:
    """Return a layout with each clone split like its original."""
    options = {op.id: layout.options[op.recompute_of or op.id] for op in cloned.ops}
    return replace(layout, name=RECOMPUTED.format(layout.name), options=options)
