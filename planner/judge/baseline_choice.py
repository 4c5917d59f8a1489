"""The choice of a standard layout without the choice problem, for when there is no time to formulate that.

A graph input is brought anew into the sharding that each reader wants, which needs the least memory. Another value with
several readers is brought into the sharding from which all of them are reached in the least time. Reshards
are the collectives of the dialect's documents (`planner.reshard.documented_path`), which need no table of all pairs, so
the program can be slower than that of the same layout in a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.choose.cost import CostModel
from planner.choose.formulate import Choice
from planner.ir.execution_order import Reader, find_readers
from planner.ir.graph import Graph, TensorType
from planner.ir.program import Program
from planner.ir.sharding import Sharding
from planner.judge.standard_layouts import Baseline
from planner.reshard.cheapest_path import ReshardPath
from planner.reshard.documented_path import make_documented_path, plan_collectives
from planner.rewrite.materialize import materialize

Ends = tuple[Sharding, ...]


def write_baseline(graph: Graph, model: CostModel, baseline: Baseline) -> tuple[Choice, Program]:
    """Return the choice of a standard layout, and its program."""
    choice = _BaselineCompletion(graph, model, baseline).complete()
    program = materialize(
        graph,
        model.mesh,
        choice.inputs,
        options=choice.options,
        shared=choice.shared,
        outputs=choice.outputs,
        route=make_documented_path(graph, model.mesh),
    )
    return choice, program


@dataclass(frozen=True)
class _BaselineCompletion:
    """Shared copies and outputs of a layout. Values of one type with equal readers are decided once."""

    graph: Graph
    model: CostModel
    layout: Baseline
    decided: dict[tuple[TensorType, Sharding, Ends], Sharding] = field(default_factory=dict)
    times: dict[tuple[TensorType, Sharding, Sharding], int] = field(default_factory=dict)

    def complete(self) -> Choice:
        produced = dict(self.layout.inputs)
        for op in self.graph.ops:
            option = self.layout.options[op.id]
            produced |= {value: op.rule.result_sharding(k, option) for k, value in enumerate(op.values)}
        outputs = tuple(
            self._find_output(number, value, produced[value]) for number, value in enumerate(self.graph.outputs)
        )
        shared = {
            value: self._decide(value, produced[value], tuple(self._find_read(reader, outputs) for reader in readers))
            for value, readers in find_readers(self.graph).items()
            if len(readers) > 1
        }
        return Choice(dict(self.layout.inputs), dict(self.layout.options), shared, outputs)

    def _find_output(self, number: int, value: str, produced: Sharding) -> Sharding:
        """Return an output's sharding: that of the state that it replaces or of its pin, else as it is computed.

        Partial sums are added up, but for those that leave before (`Graph.sent`).
        """
        state = self.graph.state_outputs.get(number)
        if state is not None:
            return self.layout.inputs[state]
        if value in self.graph.sent:
            return produced
        return self.layout.outputs.get(number) or Sharding(produced.split_axes)

    def _find_read(self, reader: Reader, outputs: Sequence[Sharding]) -> Sharding:
        if reader.op is None:
            return outputs[reader.operand]
        op = self.graph.ops[reader.op]
        return op.rule.read_sharding(reader.operand, self.layout.options[op.id], self.model.mesh)

    def _decide(self, value: str, produced: Sharding, ends: Ends) -> Sharding:
        kind = self.graph.types[value]
        if value in self.layout.inputs or value in self.graph.sent:
            return produced
        key = kind, produced, ends
        if key not in self.decided:
            self.decided[key] = min(
                dict.fromkeys((produced, *ends)),
                key=lambda copy: (
                    self._time_ps(kind, produced, copy) + sum(self._time_ps(kind, copy, end) for end in ends)
                ),
            )
        return self.decided[key]

    def _time_ps(self, kind: TensorType, source: Sharding, target: Sharding) -> int:
        key = kind, source, target
        if key not in self.times:
            moves = plan_collectives(source, target, kind.shape, mesh=self.model.mesh)
            self.times[key] = sum(ReshardPath(source, tuple(moves), kind, self.model).times_ps)
        return self.times[key]
