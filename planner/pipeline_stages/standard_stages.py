"""Stages in standard layouts: what is known before any search, and the answer where there is no time for one.

The layouts (`planner.judge.standard_layouts`, and Megatron's with sequence parallelism), and each with everything
recomputed where the request allows it, are tried in the order of their time on a layer in the middle of the model, and
each stage takes the first that fits. It is written once for all stages that differ in names only or in what is in
flight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

from planner.choose.cost import CostModel
from planner.choose.formulate import Choice
from planner.choose.rematerialization import find_recomputable_ops
from planner.ir.graph import Graph
from planner.ir.rematerialization import clone_ops
from planner.judge.analysis import Analysis
from planner.judge.baseline_choice import write_baseline
from planner.judge.standard_layouts import LAYOUTS, StandardLayout, can_have_layout, lay_out
from planner.pipeline_stages.content import describe_ops, rename_plan
from planner.planning.certify import PricedLayout, describe_layout, leave_layout
from planner.planning.deadline import Deadline
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
Variant = tuple[str, bool]
"""The name of a layout, and whether everything is recomputed."""


@dataclass
class StandardStages:
    """The standard layouts of stages, each written when it is first asked for.

    sample   the step of a part of the model, by which the layouts are ordered
    request  that of a stage, with its memory limit
    """

    model: CostModel
    request: Request
    deadline: Deadline
    sample: Graph
    written: dict[tuple[object, Variant], Plan | None] = field(default_factory=dict)

    def find_plan(self, step: Graph) -> Plan | None:
        """Return the plan of a stage's step in the first layout that fits, or None where none does."""
        content = describe_ops(step)
        for variant in self.variants:
            if (content, variant) not in self.written:
                self.written[content, variant] = self._write_plan(step, variant)
            written = self.written[content, variant]
            if written is None:
                continue
            plan = rename_plan(written, step)
            if plan.analysis is not None and plan.analysis.peak_bytes <= plan.limit_bytes:
                return plan
        return None

    @cached_property
    def variants(self) -> Sequence[Variant]:
        """The layouts of the mesh, the fastest first."""
        names = [name for name, layout in STAGE_LAYOUTS.items() if can_have_layout(layout, self.model.mesh)]
        recomputed = (False, True) if self.request.recompute == "auto" else (False,)
        return sorted(product(names, recomputed), key=lambda variant: self._write(self.sample, *variant)[1].step_ps)

    def _write(self, step: Graph, name: str, is_recomputed: bool) -> tuple[Choice, Analysis]:
        layout = lay_out(STAGE_LAYOUTS[name], step, self.model.mesh)
        if is_recomputed:
            step = clone_ops(step, find_recomputable_ops(step))
            layout = recompute_layout(layout, step)
        choice, program = write_baseline(step, self.model, layout)
        return choice, Analysis(program, self.model)

    def _write_plan(self, step: Graph, variant: Variant) -> Plan | None:
        """Return the plan of a layout whatever it holds in flight, or None where what it stores is over the limit."""
        name, is_recomputed = variant
        layout, kinds = lay_out(STAGE_LAYOUTS[name], step, self.model.mesh), step.types
        stored = sum(self.model.shard_bytes(kinds[value], sharding) for value, sharding in layout.inputs.items())
        if stored > self.request.find_limit(self.model.hardware):
            return None
        choice, analysis = self._write(step, name, is_recomputed)
        shown = RECOMPUTED.format(name) if is_recomputed else name
        any_size = replace(self.request, memory_limit_bytes=analysis.peak_bytes)
        priced = PricedLayout(choice, analysis, describe_layout(shown, analysis, analysis.peak_bytes))
        plan = leave_layout(step, self.model, any_size, layouts=[priced], wall_s=self.deadline.elapsed_s)
        return replace(plan, request=self.request)
