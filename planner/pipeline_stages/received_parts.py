"""Stages that receive values in parts: each device a part of its own, which the stage itself then gathers.

A stage is planned for the least time of its own work, in which what it receives may be in any layout, also one of which
many devices receive the same. Between ranks that takes as many times longer, on a slower network than that within a
stage. Here the layout of a received value is split further, over the mesh axes that it is replicated over. All else
moves as it did in the plan, and what is received moves in the least time to what reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import Choice
from planner.ir.collectives import Collective
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.ir.sharding import Sharding
from planner.judge.analysis import Analysis
from planner.pipeline_stages.content import describe_ops, rename_plan
from planner.pipeline_stages.stage_plans import prove_longer
from planner.planning.plan_types import Plan
from planner.reshard.cheapest_path import find_cheapest_path
from planner.rewrite.materialize import materialize


@dataclass(frozen=True)
class PartsReceiver:
    """Plans of stages that receive in parts, found once for stages that differ in names or in what is in flight."""

    known: dict[object, Plan] = field(default_factory=dict)

    def receive_in_parts(self, plan: Plan, values: Sequence[str]) -> Plan:
        """Return the plan of a stage with received values split further, where that fits in memory.

        It stays as it is where ops may be computed again. What is passed on is sent in the layout that it is received
        in.
        """
        values = [value for value in values if value not in plan.graph.sent]
        if not values or plan.request.recompute != "none":
            return plan
        places = tuple(number for number, entry in enumerate(plan.graph.inputs) if entry.id in values)
        key = describe_ops(plan.graph), plan.model.mesh, plan.certificate.objective_s, places
        if key not in self.known:
            self.known[key] = _split_all(plan, values)
        found = rename_plan(self.known[key], plan.graph)
        assert found.analysis is not None, "a rewritten plan is feasible"
        if found.analysis.peak_bytes > plan.limit_bytes:
            return plan
        step_s, gap = found.analysis.step_ps * PICO, plan.request.gap
        return replace(found, request=plan.request, certificate=prove_longer(plan.certificate, step_s, gap))


@dataclass(frozen=True)
class _ProgramRoutes:
    """The moves between layouts of the values of a program: its own, and the fastest where it has none."""

    program: Program
    model: CostModel
    found: dict[object, Sequence[Collective]] = field(default_factory=dict)

    def route(self, value: str, source: Sharding, target: Sharding) -> Sequence[Collective]:
        if source == target:
            return ()
        if (value, source, target) in self._own:
            return self._own[value, source, target]
        kind = self.program.graph.types[value]
        if (kind, source, target) not in self.found:
            self.found[kind, source, target] = find_cheapest_path(source, target, kind, model=self.model).moves
        return self.found[kind, source, target]

    @cached_property
    def _own(self) -> dict[tuple[str, Sharding, Sharding], Sequence[Collective]]:
        """The moves from each copy of a value to each that is made of it."""
        own: dict[tuple[str, Sharding, Sharding], Sequence[Collective]] = {}
        copied: dict[str, tuple[str, list[Sharding], list[Collective]]] = {}
        for done in self.program.instructions:
            if isinstance(done, Reshard):
                layout = self.program.values[done.operand].sharding
                value, layouts, moves = copied.get(done.operand, (done.operand, [], []))
                layouts, moves = [*layouts, layout], [*moves, done.collective]
                copied[done.result] = value, layouts, moves
                for place, source in enumerate(layouts):
                    own.setdefault((value, source, self.program.values[done.result].sharding), moves[place:])
        return own


def _split_all(plan: Plan, values: Sequence[str]) -> Plan:
    """Return the plan with each value in the further split that costs the stage's work least."""
    for value in values:
        assert plan.choice is not None, "only a feasible plan has a choice"
        assert plan.analysis is not None, "a feasible plan has a program"
        inputs, routes = plan.choice.inputs, _ProgramRoutes(plan.analysis.program, plan.model)
        splits = _split_further(inputs[value], plan.graph.types[value].shape, plan.model.mesh)
        choices = [replace(plan.choice, inputs=inputs | {value: split}) for split in splits]
        priced = [(choice, _write(plan, choice, routes)) for choice in choices]
        if priced:
            choice, analysis = min(priced, key=lambda each: each[1].step_ps)
            plan = replace(plan, choice=choice, analysis=analysis)
    return plan


def _split_further(layout: Sharding, shape: Sequence[int], mesh: Mesh) -> Iterator[Sharding]:
    """Yield the layout with all mesh axes that it is replicated over on one more dim, which they split evenly."""
    used = {axis for axes in layout.split_axes for axis in axes}
    free = tuple(axis for axis in range(len(mesh.shape)) if axis not in used)
    for dim, size in enumerate(shape if free and not layout.partial else ()):
        split = (*layout.split_axes[:dim], (*layout.split_axes[dim], *free), *layout.split_axes[dim + 1 :])
        if size % mesh.group_size(split[dim]) == 0:
            yield replace(layout, split_axes=split)


def _write(plan: Plan, choice: Choice, routes: _ProgramRoutes) -> Analysis:
    program = materialize(
        plan.graph,
        plan.model.mesh,
        choice.inputs,
        options=choice.options,
        shared=choice.shared,
        outputs=choice.outputs,
        route=routes.route,
    )
    return Analysis(program, plan.model)
