"""Stages in standard layouts: what is known before any search, and the answer where there is no time for one.

The layouts (`planner.judge.standard_layouts`, and Megatron's with sequence parallelism), and each with everything
recomputed, or all but contractions (Korthikanti et al., "Reducing activation recomputation in large transformer
models", MLSys 2023, keep more of what is cheap to hold), where the request allows it, are tried in the order of their
time on a layer in the middle of the model, and each stage takes the first that fits. It is written once for all stages
that differ in names only or in what is in flight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from planner.choose.cost import CostModel
from planner.choose.formulate import Choice
from planner.choose.rematerialization import find_recomputable_ops
from planner.ir.graph import Graph
from planner.ir.rematerialization import clone_ops
from planner.ir.sharding import Sharding
from planner.judge.analysis import Analysis
from planner.judge.baseline_choice import write_baseline
from planner.judge.pinned_layouts import list_pinned_layouts
from planner.judge.standard_layouts import LAYOUTS, Baseline, StandardLayout, can_have_layout, lay_out
from planner.pipeline_stages.content import describe_ops, rename_plan
from planner.planning.certify import PricedLayout, describe_layout, leave_layout
from planner.planning.deadline import Deadline
from planner.planning.plan_search import is_pinned
from planner.planning.plan_types import Plan, Request
from planner.planning.standard_plan import RECOMPUTED, recompute_layout

MEGATRON = StandardLayout(None, data="first", tensor="others", updated="first", splits_sequences=True)
STAGE_LAYOUTS: Mapping[str, StandardLayout] = {
    **dict[str, StandardLayout](LAYOUTS.items()),
    "zero1+tp+sp": replace(MEGATRON, adds_partial=True),
    "zero2+tp+sp": MEGATRON,
    "fsdp+tp+sp": replace(MEGATRON, stored="first"),
}
"""The layouts of stages: the last ones are tensor and sequence parallel in each of the groups for data."""
KEPT, SELECTIVE, ALL = "{}", "{}, all but contractions recomputed", RECOMPUTED
"""How much is recomputed, with the name of a layout in which so much is, the fastest first."""
Variant = tuple[str, str]
"""The name of a layout, and one of the above."""


@dataclass
class StandardStages:
    """The standard layouts of stages, each written when it is first asked for.

    sample   the step of a part of the model, by which the layouts are ordered, with some micro-batches in flight
    request  that of a stage, with the memory limit of a rank
    """

    model: CostModel
    request: Request
    deadline: Deadline
    sample: Graph
    written: dict[tuple[object, Variant], Plan | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [name for name, layout in STAGE_LAYOUTS.items() if can_have_layout(layout, self.model.mesh)]
        self.ordered: list[Variant] = []
        self.peaks: dict[Variant, tuple[int, int]] = {}
        self.waiting = [(0, number, (name, KEPT), False) for number, name in enumerate(names)]

    def find_plan(self, step: Graph, limit: int) -> Plan | None:
        """Return the plan of a stage's step in the first layout that fits a limit in bytes, or None where none does."""
        return next((plan for plan in self.list_plans(step) if count_peak_bytes(plan) <= limit), None)

    def list_plans(self, step: Graph) -> Iterator[Plan]:
        """Yield the plans of a stage's step, the fastest layout first.

        The caller asks for another where one does not fit. So those that store and hold no less are left out.
        """
        content, tried = describe_ops(step), list[tuple[int, int]]()
        for variant in self._list_variants():
            if any(stored <= self.peaks[variant][0] and peak <= self.peaks[variant][1] for stored, peak in tried):
                continue
            tried.append(self.peaks[variant])
            if (content, variant) not in self.written:
                self.written[content, variant] = self._write_plan(step, variant)
            if (written := self.written[content, variant]) is not None:
                yield rename_plan(written, step)

    def _list_variants(self) -> Iterator[Variant]:
        """Yield the layouts of the mesh, the fastest first.

        Each is timed when all that are faster were tried. Recomputing more is taken to take no less time.
        """
        yield from self.ordered
        while self.waiting:
            least, number, (name, again), is_timed = heappop(self.waiting)
            if not is_timed:
                choice, analysis = self._write(self.sample, name, again)
                self.peaks[name, again] = self._count_stored_bytes(self.sample, choice.inputs), analysis.peak_bytes
                heappush(self.waiting, (max(least, analysis.step_ps), number, (name, again), True))
                continue
            more = [KEPT, SELECTIVE, ALL] if self.request.recompute == "auto" else [KEPT]
            for other in more[more.index(again) + 1 :][:1]:
                heappush(self.waiting, (least, number, (name, other), False))
            self.ordered.append((name, again))
            yield name, again

    def _lay_out(self, step: Graph, name: str) -> Baseline:
        """Return a layout of a step, with its pins."""
        layout = replace(lay_out(STAGE_LAYOUTS[name], step, self.model.mesh), name=name)
        return list_pinned_layouts(step, self.model, [layout], layout=None)[0] if is_pinned(step) else layout

    def _write(self, step: Graph, name: str, again: str) -> tuple[Choice, Analysis]:
        layout = self._lay_out(step, name)
        if again != KEPT:
            step = clone_ops(step, find_recomputable_ops(step, contractions=again == ALL))
            layout = recompute_layout(layout, step)
        choice, program = write_baseline(step, self.model, layout)
        return choice, Analysis(program, self.model)

    def _write_plan(self, step: Graph, variant: Variant) -> Plan | None:
        """Return the plan of a layout whatever it holds in flight, or None where what it stores is over the limit."""
        name, again = variant
        layout = self._lay_out(step, name)
        if self._count_stored_bytes(step, layout.inputs) > self.request.find_limit(self.model.hardware):
            return None
        choice, analysis = self._write(step, name, again)
        any_size = replace(self.request, memory_limit_bytes=analysis.peak_bytes)
        priced = PricedLayout(
            choice, analysis, describe_layout(again.format(layout.name), analysis, analysis.peak_bytes)
        )
        plan = leave_layout(step, self.model, any_size, layouts=[priced], wall_s=self.deadline.elapsed_s)
        return replace(plan, request=self.request)

    def _count_stored_bytes(self, step: Graph, inputs: Mapping[str, Sharding]) -> int:
        return sum(self.model.shard_bytes(step.types[value], sharding) for value, sharding in inputs.items())


def count_peak_bytes(plan: Plan) -> int:
    """Return what a device holds at most with the plan of a layout."""
    assert plan.analysis is not None, "a layout has a program"
    return plan.analysis.peak_bytes


def count_step_ps(plan: Plan) -> int:
    """Return the time of a stage's own work in a step with the plan of a layout."""
    assert plan.analysis is not None, "a layout has a program"
    return plan.analysis.step_ps
