"""Writes an SPMD program value by value: `%v` is a value as its op makes it, `%v.1`, `%v.2`, ... are what moves
make of it, in the order of the program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from planner.model.collectives import Collective
from planner.model.cuts import Cuts
from planner.model.graph import Graph, Op
from planner.model.indexing import Option
from planner.model.mesh import Mesh
from planner.model.program import Instruction, Move, Program, Run
from planner.model.sharding import Sharding

Route = Callable[[str, Sharding, Sharding], Sequence[Collective]]
"""(value, source, target) -> the moves that lead from one to the other."""


@dataclass
class Writer:
    """The instructions so far. Moves of a value begin at its latest `settle`, or at what its op made."""

    graph: Graph
    mesh: Mesh
    route: Route
    inputs: Mapping[str, Sharding]
    instructions: list[Instruction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sharding = dict(self.inputs)
        self._start: dict[str, str] = {}
        self._operands: list[str] = []
        self._copies: Counter[str] = Counter()

    def moved(self, value: str, target: Sharding) -> str:
        """The name of a value in the target sharding, after the moves that takes."""
        name = self._start.get(value, value)
        for collective in self.route(value, self._sharding[name], target):
            result = self._copy(value)
            self.instructions.append(Move(collective, name, result))
            self._sharding[result] = collective.target(self._sharding[name])
            name = result
        return name

    def _copy(self, value: str) -> str:
        """A name for the next copy that no value of the graph has: a graph may hold both `a` and `a.1`."""
        while True:
            self._copies[value] += 1
            if (name := f"{value}.{self._copies[value]}") not in self.graph.types:
                return name

    def settle(self, value: str, target: Sharding) -> None:
        """Move a value for everyone who reads it from here on."""
        self._start[value] = self.moved(value, target)

    def read(self, op: Op, operand: int, option: Option, cuts: Cuts = ()) -> None:
        """Move the next operand of an op into the sharding in which it reads it."""
        reads = Run(op, option, (), (), cuts).reads(operand, self.mesh)
        self._operands.append(self.moved(op.inputs[operand], reads))

    def run(self, op: Op, option: Option, cuts: Cuts = ()) -> None:
        done = Run(op, option, tuple(self._operands), op.values, cuts)
        self.instructions.append(done)
        self._operands.clear()
        for position, value in enumerate(op.values):
            self._sharding[value] = done.leaves(position, self.mesh)

    def program(self, outputs: Sequence[str]) -> Program:
        arguments = tuple((i.id, self.inputs[i.id]) for i in self.graph.inputs)
        return Program(self.graph, self.mesh, arguments, tuple(self.instructions), tuple(outputs))
