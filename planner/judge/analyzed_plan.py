"""A plan as it is compared: its program with its figures, or one program of each pipeline stage.

Stages are joined to one graph, in which an op of several stages (a mask) is one op with the time of all of them. What a
stage receives is laid out as the stage that computes it has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from planner.ir.graph import PHASES, Graph, Input
from planner.ir.in_flight import ALONE
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.judge.analysis import Analysis


@dataclass(frozen=True)
class AnalyzedPlan:
    """Programs of stages, of which number s is on rank s mod `ranks`, and the time of the whole step.

    outputs  those of the whole graph
    """

    parts: tuple[Analysis, ...]
    step_ps: int
    ranks: int
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, analysis: Analysis) -> AnalyzedPlan:
        """Return a plan without stages."""
        return cls((analysis,), analysis.step_ps, 1, analysis.program.graph.outputs)

    @cached_property
    def graph(self) -> Graph:
        """The graph of all stages."""
        graphs = [part.program.graph for part in self.parts]
        return graphs[0] if len(graphs) == 1 else join_graphs(graphs, self.outputs)

    @cached_property
    def layouts(self) -> dict[str, tuple[Sharding, Mesh]]:
        """The sharding in which each value is computed or given, on which mesh."""
        layouts: dict[str, tuple[Sharding, Mesh]] = {}
        for part in self.parts:
            program = part.program
            made = {value for op in program.graph.ops for value in op.values}
            layouts |= {name: (program.values[name].sharding, program.mesh) for name in made}
            layouts |= {name: (held, program.mesh) for name, held in program.arguments if name not in layouts}
        return layouts


def join_graphs(graphs: Sequence[Graph], outputs: tuple[str, ...]) -> Graph:
    """Return the graph of stages: what one of them computes is no input of another."""
    ops = {op.id: op for graph in graphs for op in graph.ops}
    made = {value for op in ops.values() for value in op.values}
    inputs: dict[str, Input] = {}
    for entry in (entry for graph in graphs for entry in graph.inputs if entry.id not in made):
        if entry.id not in inputs or entry.next is not None:  # a stage that only reads a buffer has no next value of it
            inputs[entry.id] = entry
    ends = {*outputs, *(entry.next for entry in inputs.values())}
    shown = tuple(dict.fromkeys(value for graph in graphs for value in graph.outputs if value in ends))
    ordered = sorted(ops.values(), key=lambda op: PHASES.index(op.phase))
    joined = replace(graphs[0], inputs=tuple(inputs.values()), ops=tuple(ordered), outputs=shown)
    return replace(joined, in_flight=ALONE, sent=frozenset())
