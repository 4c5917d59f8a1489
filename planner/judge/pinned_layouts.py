"""Standard layouts under the pins of a graph, for when there is no time to search what the pins leave open.

A graph input, an output or an op that the pins allow as in the layout stays as it is. Another input or output has the
pinned sharding. Another op takes, of the options that its pins allow, the one under which its own time and the reshards
of what it reads, by the documents' collectives, are least.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from planner.choose.axis_units import AxisUnits
from planner.choose.cost import CostModel
from planner.choose.liveness import Liveness
from planner.choose.rematerialization import GraphWithClones
from planner.choose.variables import PinnedVariables, Variable
from planner.ir.graph import OUTPUTS, Annotation, Graph, Op
from planner.ir.indexing import Option
from planner.ir.pins import list_pins
from planner.ir.sharding import Sharding
from planner.judge.standard_layouts import Baseline, LayoutName, build_layout
from planner.reshard.cheapest_path import ReshardPath
from planner.reshard.documented_path import plan_collectives

WITH_PINS = "{}, with the pins"
"""The name of a standard layout that the pins may have changed."""


def list_pinned_layouts(
    graph: Graph, model: CostModel, baselines: Sequence[Baseline], *, layout: LayoutName | None
) -> list[Baseline]:
    """Return the requested layout, or else the given ones, with the pins of the graph.

    Raises InvalidSharding for a pin that no option meets.
    """
    if layout is not None:
        named = replace(build_layout(graph, model.mesh, layout), name=layout)
        return [_PinnedCompletion(graph, model, named).complete()]
    named_apart = (replace(each, name=WITH_PINS.format(each.name)) for each in baselines)
    return [_PinnedCompletion(graph, model, each).complete() for each in named_apart]


@dataclass(frozen=True)
class _PinnedCompletion:
    """A layout and the pins that it has to meet."""

    graph: Graph
    model: CostModel
    layout: Baseline

    @cached_property
    def _pins(self) -> dict[str, list[Annotation]]:
        return list_pins(self.graph, self.model.mesh)

    @cached_property
    def _variables(self) -> PinnedVariables:
        liveness = Liveness(GraphWithClones.of(self.graph, {}))
        return PinnedVariables(liveness, self.model, AxisUnits.of(self.model.mesh))

    def complete(self) -> Baseline:
        inputs = {value: self._pinned(value, None) or held for value, held in self.layout.inputs.items()}
        produced, options = dict(inputs), dict[str, Option]()
        for op in self.graph.ops:
            option = self.layout.options[op.id]
            if not self._allows(op, option):
                option = self._choose(op, produced)
            options[op.id] = option
            produced |= {value: op.rule.result_sharding(k, option) for k, value in enumerate(op.values)}
        pinned = ((number, self._pinned(value, OUTPUTS, number)) for number, value in enumerate(self.graph.outputs))
        outputs = {number: wanted for number, wanted in pinned if wanted is not None}
        return replace(self.layout, inputs=inputs, options=options, outputs=outputs)

    def _pinned(self, value: str, user: str | None, operand: int | None = None) -> Sharding | None:
        """Return the sharding that a value is pinned to where it is defined (no user) or read."""
        rank = len(self.graph.types[value].shape)
        for pin in self._pins.get(value, ()):
            if pin.user == user and pin.operand in (None, operand):
                return pin.sharding.complete(rank, self.model.mesh)
        return None

    def _allows(self, op: Op, option: Option) -> bool:
        if op.option is not None and option != op.rule.complete_option(op.option, self.model.mesh):
            return False
        return all(wanted in (None, held) for wanted, held in self._list_uses(op, option))

    def _list_uses(self, op: Op, option: Option) -> Iterator[tuple[Sharding | None, Sharding]]:
        """Yield the pinned sharding and the one under an option, of each value that an op computes or reads."""
        if not any(value in self._pins for value in (*op.values, *op.inputs)):
            return
        for result, value in enumerate(op.values):
            yield self._pinned(value, None), op.rule.result_sharding(result, option)
        for operand, value in enumerate(op.inputs):
            yield self._pinned(value, op.id, operand), op.rule.read_sharding(operand, option, self.model.mesh)

    def _choose(self, op: Op, produced: dict[str, Sharding]) -> Option:
        allowed = self._variables.find_op(op)
        costs = [self._price(op, allowed, strategy, produced=produced) for strategy in range(len(allowed.options))]
        return allowed.options[costs.index(min(costs))]

    def _price(self, op: Op, allowed: Variable, strategy: int, *, produced: dict[str, Sharding]) -> int:
        """Return the time in ps of an op under an option and of the reshards of what it reads."""
        time_ps = int(allowed.costs[strategy])
        for value, port in zip(op.inputs, allowed.operands, strict=True):
            kind, source, target = self.graph.types[value], produced[value], port.states[port.classes[strategy]]
            moves = plan_collectives(source, target, kind.shape, mesh=self.model.mesh)
            time_ps += sum(ReshardPath(source, tuple(moves), kind, self.model).times_ps)
        return time_ps
