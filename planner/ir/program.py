"""The SPMD program: one list of instructions that every device runs, in single-assignment form.

A value is live from the instruction that makes it to the last one that reads it. Arguments and accumulators are live
from the start, results of the program until the end. Every value has its own buffer. An op whose option lets blocks
travel sends them itself (`planner.ir.ring`); all else that is sent is a collective of its own.

In a step of several micro-batches the instructions up to `loop_end` run once for each; what they make is dropped after
each but the last, except for accumulators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planner.errors import InvalidGraph, InvalidSharding
from planner.ir.collectives import Collective
from planner.ir.graph import Graph, Op, TensorType
from planner.ir.indexing import Option
from planner.ir.loop_partition import LoopPartitions, partitioned_sharding
from planner.ir.mesh import Mesh
from planner.ir.ring import RingBlocks, list_ring_blocks
from planner.ir.sharding import Axes, Sharding, shard_shape

GROUPS_SHOWN = 4
MEMBERS_SHOWN = 64


@dataclass(frozen=True, slots=True)
class OpCall:
    """A device's part of an op: its span of each loop under `option`, cut as `loop_partitions` say."""

    op: Op
    option: Option
    operands: tuple[str, ...]
    results: tuple[str, ...]
    loop_partitions: LoopPartitions = ()

    def list_ring_blocks(self, mesh: Mesh) -> list[tuple[str, RingBlocks]]:
        """Return the values whose blocks travel while the op runs; none: it sends nothing."""
        listed = list_ring_blocks(self.op.rule, self.option, mesh)
        return [((self.results if each.is_result else self.operands)[each.place], each) for each in listed]

    def check_no_ring(self) -> None:
        """Raise InvalidSharding where blocks travel while the op runs."""
        if axes := self.op.rule.ring_axes(self.option):
            got, wanted = f"a ring along axes {list(axes)}", "an op that sends nothing, or the format shard-map"
            raise InvalidSharding("blocks travel while an op runs", where=f"op {self.op.id!r}", got=got, wanted=wanted)

    def operand_sharding(self, operand: int, mesh: Mesh) -> Sharding:
        """Return the sharding in which the op reads an operand."""
        rule = self.op.rule
        read = rule.read_sharding(operand, self.option, mesh)
        return partitioned_sharding(
            read, rule.operands[operand], self.loop_partitions, shape=rule.shapes[operand], mesh=mesh
        )

    def result_sharding(self, result: int, mesh: Mesh) -> Sharding:
        """Return the sharding in which the op leaves a result."""
        rule = self.op.rule
        left = rule.result_sharding(result, self.option)
        return partitioned_sharding(
            left, rule.results[result], self.loop_partitions, shape=self.op.results[result].shape, mesh=mesh
        )


@dataclass(frozen=True, slots=True)
class Reshard:
    """A collective that makes one value of another."""

    collective: Collective
    operand: str
    result: str

    @property
    def operands(self) -> tuple[str, ...]:
        return (self.operand,)

    @property
    def results(self) -> tuple[str, ...]:
        return (self.result,)


Instruction = OpCall | Reshard


def is_accumulation(done: Instruction) -> bool:
    """Return whether an instruction adds what it computes to what earlier micro-batches left there."""
    return isinstance(done, OpCall) and done.op.accumulates


@dataclass(frozen=True, slots=True)
class ShardedValue:
    """A tensor laid out over the mesh."""

    type: TensorType
    sharding: Sharding


@dataclass(frozen=True)
class Program:
    """Arguments (graph inputs with shardings), instructions and outputs. Raises InvalidGraph where they do not fit."""

    graph: Graph
    mesh: Mesh
    arguments: tuple[tuple[str, Sharding], ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[str, ...]

    @cached_property
    def values(self) -> dict[str, ShardedValue]:
        """Type and sharding of every value, checked against what the instructions need."""
        values = {name: ShardedValue(self.graph.types[name], sharding) for name, sharding in self.arguments}
        for instruction in self.instructions:
            if unknown := [name for name in instruction.operands if name not in values]:
                raise InvalidGraph("use of an undefined value", where="program", got=unknown[0])
            values |= infer_results(instruction, values, self.mesh)
        return values

    @cached_property
    def loop_end(self) -> int:
        """The number of instructions that run once per micro-batch: all through the last op before the update."""
        places = (
            p for p, run in enumerate(self.instructions, 1) if isinstance(run, OpCall) and run.op.phase != "update"
        )
        return max(places, default=0)

    @cached_property
    def stacked(self) -> frozenset[str]:
        """The arguments with a part for each of several micro-batches, in a first dim of their own where exported."""
        return self.graph.data if self.graph.microbatches > 1 else frozenset()

    @cached_property
    def carried(self) -> tuple[str, ...]:
        """What lives on after a micro-batch: accumulators, and data and results that are read after the last one."""
        once = self.instructions[self.loop_end :]
        read = {*self.outputs, *(name for done in once for name in done.operands)}
        repeated = self.instructions[: self.loop_end]
        computed = [name for done in repeated for name in done.results if is_accumulation(done) or name in read]
        return *(name for name, _ in self.arguments if name in self.graph.data & read), *computed

    @cached_property
    def pass_ends(self) -> tuple[int, int]:
        """The number of instructions of the forward pass, and of it and the backward pass without late ops."""
        late, ends = self.graph.in_flight.late, [0, 0]
        for place, run in enumerate(self.instructions[: self.loop_end], 1):
            if isinstance(run, OpCall) and run.op.recompute_of is None and run.op.id not in late:
                ends[run.op.phase != "forward"] = place
        return ends[0], max(ends) if late else self.loop_end

    @cached_property
    def trips(self) -> tuple[int, ...]:
        """How often each instruction runs in a step."""
        once = len(self.instructions) - self.loop_end
        return (self.graph.microbatches,) * self.loop_end + (1,) * once

    @cached_property
    def first_held(self) -> dict[str, int]:
        """Position of the instruction from which each value is held: of arguments and accumulators, the first."""
        first = {name: 0 for name, _ in self.arguments}
        for place, done in enumerate(self.instructions):
            first |= dict.fromkeys(done.results, 0 if is_accumulation(done) else place)
        return first

    @cached_property
    def last_use(self) -> dict[str, int]:
        """Position of the last instruction that reads each value.

        Arguments and outputs never die: theirs is the number of instructions.
        """
        last = {result: place for place, done in enumerate(self.instructions) for result in done.results}
        last |= {name: place for place, done in enumerate(self.instructions) for name in done.operands}
        return last | dict.fromkeys((*(name for name, _ in self.arguments), *self.outputs), len(self.instructions))

    def __str__(self) -> str:
        lines = [f"mesh {self.mesh.notation}"]
        lines += [f"argument {self._typed(name)}" for name, _ in self.arguments]
        lines += [self._line(instruction) for instruction in self.instructions]
        return "\n".join([*lines, "return " + ", ".join(f"%{name}" for name in self.outputs)])

    def _line(self, instruction: Instruction) -> str:
        results = ", ".join(map(self._typed, instruction.results))
        operands = ", ".join(f"%{name}" for name in instruction.operands)
        if isinstance(instruction, OpCall):
            return f"{results} = {instruction.op.op}({operands}){self._split_loops(instruction)}"
        shown = self._list_groups(instruction.collective.axes)
        named = ",".join(self.mesh.names[axis] for axis in instruction.collective.axes)
        text = str(instruction.collective)
        text = text.replace(f"[{','.join(map(str, instruction.collective.axes))}]", f"[{named}]")
        return f"{results} = {text} (%{instruction.operand}) groups {{{shown}}}"

    def _list_groups(self, axes: Axes) -> str:
        """The first groups of devices over some axes; larger meshes have too many to number all devices."""
        members = self.mesh.group_size(axes)
        groups = self.mesh.devices // members
        order = [*(axis for axis in range(len(self.mesh.shape)) if axis not in axes), *axes]
        sizes = [self.mesh.shape[axis] for axis in order]
        listed = np.arange(min(groups, GROUPS_SHOWN))[:, None] * members + np.arange(min(members, MEMBERS_SHOWN))
        place = dict(zip(order, np.unravel_index(listed, sizes), strict=True))
        devices = np.ravel_multi_index([place[axis] for axis in range(len(order))], self.mesh.shape)
        more = ",…" if members > MEMBERS_SHOWN else ""
        shown = "; ".join(",".join(map(str, group)) + more for group in devices.tolist())
        return shown + ("; …" if groups > GROUPS_SHOWN else "")

    def _split_loops(self, run: OpCall) -> str:
        split = [
            f"{loop.name}:{'/'.join(self.mesh.names[axis] for axis in axes)}"
            for loop, axes in zip(run.op.rule.loops, run.option, strict=True)
            if axes
        ]
        return f" [{', '.join(split)}]" if split else ""

    def _typed(self, name: str) -> str:
        value = self.values[name]
        local = shard_shape(value.sharding, value.type.shape, self.mesh)
        return f"%{name}: {value.type} {value.sharding.format_axes(self.mesh)} local {list(local)}"


def infer_results(instruction: Instruction, values: Mapping[str, ShardedValue], mesh: Mesh) -> dict[str, ShardedValue]:
    """Return the values that an instruction makes. Raises InvalidGraph where an operand is not as it reads it."""
    match instruction:
        case Reshard(collective, operand, result):
            source = values[operand]
            return {result: ShardedValue(source.type, collective.target(source.sharding))}
        case OpCall(op, _, operands, results):
            for position, operand in enumerate(operands):
                _check_sharding(
                    op, position, values[operand].sharding, wanted=instruction.operand_sharding(position, mesh)
                )
            return {
                result: ShardedValue(op.results[position], instruction.result_sharding(position, mesh))
                for position, result in enumerate(results)
            }


def follow_update(program: Program, parameter: str) -> list[Reshard]:
    """Return the moves from the parameter as it is updated to the parameter as the next step reads it."""
    number = next(number for number, name in program.graph.state_outputs.items() if name == parameter)
    made_by = {result: done for done in program.instructions for result in done.results}
    value, moves = program.outputs[number], list[Reshard]()
    while isinstance(done := made_by.get(value), Reshard):
        moves.insert(0, replace(done, result=moves[0].operand if moves else parameter))
        value = done.operand
    return moves


def _check_sharding(op: Op, position: int, got: Sharding, *, wanted: Sharding) -> None:
    if got != wanted:
        raise InvalidGraph(
            f"operand {position} has another sharding than the op reads",
            where=f"program, op {op.id!r}",
            got=str(got),
            wanted=str(wanted),
        )
