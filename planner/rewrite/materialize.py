"""The chosen layouts as an SPMD program with explicit collectives.

Follows `planner.model.steps` step by step: a shared value is brought into its hub sharding, an operand into the
sharding its op reads, by the chain of moves `route` gives; then the op runs. `%v` is a value as its op makes
it, `%v.1`, `%v.2`, ... are what moves make of it, in the order of the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from planner.model.collectives import Collective
from planner.model.graph import Graph, Op
from planner.model.indexing import Option
from planner.model.mesh import Mesh
from planner.model.program import Instruction, Move, Program, Run
from planner.model.sharding import Sharding
from planner.model.steps import Execute, Read, Share, steps

Route = Callable[[str, Sharding, Sharding], Sequence[Collective]]
"""(value, source, target) -> the moves that lead from one to the other."""


def materialize(
    graph: Graph,
    mesh: Mesh,
    inputs: Mapping[str, Sharding],
    options: Mapping[str, Option],
    shared: Mapping[str, Sharding],
    outputs: Sequence[Sharding],
    route: Route,
) -> Program:
    """The program of a graph under a layout per input and output, an option per op, a sharding per shared value."""
    writer = _Writer(graph, route, dict(inputs))
    names: list[str] = []
    for step in steps(graph):
        match step:
            case Share(value):
                writer.start[value] = writer.moved(value, shared[value])
            case Read(value, reader):
                if reader.op is None:
                    names.append(writer.moved(value, outputs[reader.operand]))
                else:
                    op = graph.ops[reader.op]
                    wanted = op.rule.operand_sharding(reader.operand, options[op.id])
                    writer.operands.append(writer.moved(value, wanted))
            case Execute(position):
                writer.run(graph.ops[position], options)
    arguments = tuple((i.id, inputs[i.id]) for i in graph.inputs)
    return Program(graph, mesh, arguments, tuple(writer.instructions), tuple(names))


@dataclass
class _Writer:
    graph: Graph
    route: Route
    sharding: dict[str, Sharding]
    start: dict[str, str] = field(default_factory=dict)
    operands: list[str] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    copies: Counter[str] = field(default_factory=Counter)

    def moved(self, value: str, target: Sharding) -> str:
        """The name of a value in the target sharding, after the moves that takes."""
        name = self.start.get(value, value)
        for collective in self.route(value, self.sharding[name], target):
            result = self._copy(value)
            self.instructions.append(Move(collective, name, result))
            self.sharding[result] = collective.target(self.sharding[name])
            name = result
        return name

    def _copy(self, value: str) -> str:
        """A name for the next copy that no value of the graph has: a graph may hold both `a` and `a.1`."""
        while True:
            self.copies[value] += 1
            if (name := f"{value}.{self.copies[value]}") not in self.graph.types:
                return name

    def run(self, op: Op, options: Mapping[str, Option]) -> None:
        option = options[op.id]
        self.instructions.append(Run(op, option, tuple(self.operands), op.values))
        self.operands.clear()
        for position, value in enumerate(op.values):
            self.sharding[value] = op.rule.result_sharding(position, option)
