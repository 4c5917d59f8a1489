"""Builds an SPMD program value by value.

`%v` is a value as its op makes it; `%v.1`, `%v.2`, ... are what moves make of it, in the order of the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from planner.ir.execution_order import shrinks
from planner.ir.graph import Graph, Op
from planner.ir.indexing import Option
from planner.ir.loop_partition import LoopPartitions
from planner.ir.mesh import Mesh
from planner.ir.program import Instruction, OpCall, Program, Reshard
from planner.ir.sharding import Sharding, shard_elements
from planner.reshard.documented_path import ReshardPlanner


@dataclass
class ProgramBuilder:
    """The instructions so far.

    Moves of a value begin at what the latest `reshard_for_all` made of it, or at what its op made.
    """

    graph: Graph
    mesh: Mesh
    route: ReshardPlanner
    inputs: Mapping[str, Sharding]
    instructions: list[Instruction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sharding = dict(self.inputs)
        self._start: dict[str, str] = {}
        self._operands: list[str] = []
        self._copies: Counter[str] = Counter()

    def reshard_to(self, value: str, target: Sharding) -> str:
        """Append the moves that bring a value into the target sharding, and return its name there."""
        name = self._start.get(value, value)
        for collective in self.route(value, self._sharding[name], target):
            result = self._copy_name(value)
            self.instructions.append(Reshard(collective, name, result))
            self._sharding[result] = collective.target(self._sharding[name])
            name = result
        return name

    def shrink(self, value: str, target: Sharding) -> None:
        """Move a value for everyone who reads it from here on, if it takes fewer bytes in the target sharding."""
        shape, source = self.graph.types[value].shape, self._sharding[self._start.get(value, value)]
        if shrinks(shard_elements(source, shape, self.mesh), shard_elements(target, shape, self.mesh)):
            self.reshard_for_all(value, target)

    def _copy_name(self, value: str) -> str:
        """Return a name for the next copy that no value of the graph has: a graph may hold both `a` and `a.1`."""
        while True:
            self._copies[value] += 1
            if (name := f"{value}.{self._copies[value]}") not in self.graph.types:
                return name

    def reshard_for_all(self, value: str, target: Sharding) -> None:
        """Move a value for everyone who reads it from here on."""
        self._start[value] = self.reshard_to(value, target)

    def add_operand(self, op: Op, operand: int, option: Option, *, cuts: LoopPartitions = ()) -> None:
        """Move the next operand of an op into the sharding in which the op reads it."""
        reads = OpCall(op, option, (), (), cuts).operand_sharding(operand, self.mesh)
        self._operands.append(self.reshard_to(op.inputs[operand], reads))

    def add_op_call(self, op: Op, option: Option, cuts: LoopPartitions = ()) -> None:
        done = OpCall(op, option, tuple(self._operands), op.values, cuts)
        self.instructions.append(done)
        # Operands come one by one, between other moves, and belong to the next op call.
        self._operands.clear()
        for position, value in enumerate(op.values):
            self._sharding[value] = done.result_sharding(position, self.mesh)

    def build(self, outputs: Sequence[str]) -> Program:
        arguments = tuple((i.id, self.inputs[i.id]) for i in self.graph.inputs)
        return Program(self.graph, self.mesh, arguments, tuple(self.instructions), tuple(outputs))
