"""Stages in standard layouts: what is known before any search, and the answer where there is no time for one.

The layouts (`planner.judge.standard_layouts`) are tried in the order of their time on a layer in the middle of the
model, and each stage takes the first that fits. It is written once for all stages that differ in names only or in what
is in flight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from planner.choose.cost import CostModel
from planner.ir.graph import Graph
from planner.judge.analysis import Analysis
from planner.judge.baseline_choice import write_baseline
from planner.judge.standard_layouts import LAYOUTS, LayoutName, build_layout, can_have_layout
from planner.pipeline_stages.content import describe_ops, rename_plan
from planner.planning.certify import PricedLayout, describe_layout, leave_layout
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Plan, Request


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
    written: dict[tuple[object, LayoutName], Plan | None] = field(default_factory=dict)

    def find_plan(self, step: Graph) -> Plan | None:
        """Return the plan of a stage's step in the first layout that fits, or None where none does."""
        content = describe_ops(step)
        for name in self.names:
            if (content, name) not in self.written:
                self.written[content, name] = self._write(step, name)
            written = self.written[content, name]
            if written is None:
                continue
            plan = rename_plan(written, step)
            if plan.analysis is not None and plan.analysis.peak_bytes <= plan.limit_bytes:
                return plan
        return None

    @cached_property
    def names(self) -> Sequence[LayoutName]:
        """The layouts of the mesh, the fastest first."""
        return [name for _, name in sorted(self._price_layouts())]

    def _price_layouts(self) -> Iterator[tuple[int, LayoutName]]:
        for name, layout in LAYOUTS.items():
            if can_have_layout(layout, self.model.mesh):
                _, program = write_baseline(self.sample, self.model, build_layout(self.sample, self.model.mesh, name))
                yield Analysis(program, self.model).step_ps, name

    def _write(self, step: Graph, name: LayoutName) -> Plan | None:
        """Return the plan of a layout whatever it holds in flight, or None where what it stores is over the limit."""
        layout, kinds = build_layout(step, self.model.mesh, name), step.types
        stored = sum(self.model.shard_bytes(kinds[value], sharding) for value, sharding in layout.inputs.items())
        if stored > (self.request.memory_limit_bytes or self.model.hardware.memory_bytes):
            return None
        choice, program = write_baseline(step, self.model, layout)
        analysis = Analysis(program, self.model)
        any_size = replace(self.request, memory_limit_bytes=analysis.peak_bytes)
        priced = PricedLayout(choice, analysis, describe_layout(name, analysis, analysis.peak_bytes))
        plan = leave_layout(step, self.model, any_size, layouts=[priced], wall_s=self.deadline.elapsed_s)
        return replace(plan, request=self.request)
