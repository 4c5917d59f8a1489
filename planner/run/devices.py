"""All devices of a mesh as logical devices in one process; and the graph run whole, which they must equal.

The executor knows arrays, not predictions: it counts the elements that cross between devices and the bytes
alive on each, at the declared element size, from the arrays it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import RunFailed
from planner.model.graph import Graph, Op
from planner.model.indexing import LoopKind, Option
from planner.model.mesh import Mesh, MeshAxis
from planner.model.ops import OPS, Local, Span
from planner.model.program import Move, Program, Run
from planner.model.sharding import Reduction, block_bounds, shard_bounds
from planner.run.backend import run_dtype
from planner.run.transfer import transfer

Array = Any
Progress = Callable[[int, int], None]
NEUTRAL = {Reduction.SUM: 0, Reduction.PRODUCT: 1, Reduction.BITWISE_XOR: 0}
"""What changes nothing, for the reductions to which a second copy of a term does."""
ALONE = Mesh((MeshAxis("all", 1),))


@dataclass(frozen=True)
class Execution:
    """What the devices hold at the end ([device][output]) and what was counted on the way."""

    outputs: list[list[Array]]
    received: NDArray[np.int64]
    peak: NDArray[np.int64]


def run_whole(graph: Graph, arrays: Mapping[str, Array], xp: Any, precision: str) -> dict[str, Array]:
    """Every value of the graph, computed unsharded."""
    values = dict(arrays)
    for op in graph.ops:
        option: Option = ((),) * len(op.rule.loops)
        made = run_op(op, option, ALONE, 0, [values[name] for name in op.inputs], xp, precision)
        values.update(zip(op.values, made, strict=True))
    return values


def run_program(
    program: Program,
    arrays: Mapping[str, Array],
    xp: Any,
    precision: str,
    on_progress: Progress | None = None,
) -> Execution:
    """Run a program on every device. `arrays` are the whole inputs; each device is given its shard."""
    machine = _Machine(program, xp, precision)
    for name, _ in program.arguments:
        machine.load(name, arrays[name])
    for place, done in enumerate(program.instructions):
        if isinstance(done, Move):
            machine.move(done, place)
        else:
            machine.run(done)
        machine.settle(place, (*done.operands, *done.results))
        if on_progress:
            on_progress(place + 1, len(program.instructions))
    outputs = [[held[name] for name in program.outputs] for held in machine.held]
    return Execution(outputs, machine.received, machine.peak)


class _Machine:
    def __init__(self, program: Program, xp: Any, precision: str) -> None:
        devices = program.mesh.devices
        self.program, self.xp, self.precision = program, xp, precision
        self.held: list[dict[str, Array]] = [{} for _ in range(devices)]
        self.alive = np.zeros(devices, np.int64)
        self.peak = np.zeros(devices, np.int64)
        self.received = np.zeros((len(program.instructions), devices), np.int64)

    def load(self, name: str, array: Array) -> None:
        """Every device its shard; of partial terms the first holds the array, the others what changes nothing."""
        value, mesh = self.program.values[name], self.program.mesh
        bounds = shard_bounds(value.sharding, value.type.shape, mesh)
        neutral = NEUTRAL.get(value.sharding.reduction)
        for device, (part, term) in enumerate(zip(bounds, mesh.group_index(value.sharding.partial), strict=True)):
            shard = array[tuple(slice(int(low), int(high)) for low, high in part)]
            self._keep(name, device, shard if term == 0 or neutral is None else self.xp.full_like(shard, neutral))

    def move(self, done: Move, place: int) -> None:
        source, target = self.program.values[done.operand], self.program.values[done.result]
        mesh, shape = self.program.mesh, source.type.shape
        held, wanted = shard_bounds(source.sharding, shape, mesh), shard_bounds(target.sharding, shape, mesh)
        for group in mesh.groups(done.collective.axes):
            shards = [self.held[device][done.operand] for device in group]
            results, received = transfer(
                self.xp, done.collective, source.sharding.reduction, shards, held[group], wanted[group]
            )
            self.received[place, group] = np.array(received) * source.type.itemsize
            for device, result in zip(group, results, strict=True):
                self._keep(done.result, int(device), result)

    def run(self, done: Run) -> None:
        for device, held in enumerate(self.held):
            operands = [held[name] for name in done.operands]
            made = run_op(done.op, done.option, self.program.mesh, device, operands, self.xp, self.precision)
            for name, array in zip(done.results, made, strict=True):
                self._keep(name, device, array)

    def settle(self, place: int, names: tuple[str, ...]) -> None:
        """Take the peak while operands and results are alive, then drop what nobody reads again."""
        self.peak = np.maximum(self.peak, self.alive)
        for name in dict.fromkeys(names):
            if self.program.last_use[name] == place:
                for device, held in enumerate(self.held):
                    self.alive[device] -= self._bytes(name, held.pop(name))

    def _keep(self, name: str, device: int, array: Array) -> None:
        self.held[device][name] = array
        self.alive[device] += self._bytes(name, array)
        self.peak[device] = max(self.peak[device], self.alive[device])

    def _bytes(self, name: str, array: Array) -> int:
        return int(array.size) * self.program.values[name].type.itemsize


def run_op(
    op: Op, option: Option, mesh: Mesh, device: int, operands: list[Array], xp: Any, precision: str
) -> tuple[Array, ...]:
    """What a device makes of its parts of the operands: its span of each loop. Raises RunFailed."""
    row = OPS.get(op.op)
    if row is None:
        raise RunFailed("op has a rule but no array function", where=f"node {op.id!r}", got=op.op)
    local = Local(
        xp,
        op.attrs,
        _spans(op, option, mesh, device),
        tuple(
            tuple(int(high - low) for low, high in _result_bounds(op, i, option, mesh)[device])
            for i in range(len(op.results))
        ),
        tuple(run_dtype(xp, kind.dtype, precision) for kind in op.results),
    )
    try:
        made = row.compute(local, *operands)
    except (ArithmeticError, IndexError, TypeError, ValueError) as error:
        raise RunFailed(f"{op.op} failed on device {device}", where=f"node {op.id!r}", got=str(error)) from error
    results = made if isinstance(made, tuple) else (made,)
    arrays = tuple(xp.asarray(array) for array in results)
    for array, shape in zip(arrays, local.shapes, strict=True):
        if array.shape != shape:
            raise RunFailed(
                f"{op.op} made another shape on device {device}",
                where=f"node {op.id!r}",
                got=array.shape,
                wanted=shape,
            )
    return arrays


def _spans(op: Op, option: Option, mesh: Mesh, device: int) -> dict[str, Span]:
    spans = {}
    for loop, axes in zip(op.rule.loops, option, strict=True):
        if loop.kind is not LoopKind.LINEAR:
            start, stop = block_bounds(loop.size, mesh.group_size(axes), mesh.group_index(axes)[device])
            spans[loop.name] = Span(int(start), int(stop), loop.size)
    return spans


def _result_bounds(op: Op, result: int, option: Option, mesh: Mesh) -> NDArray[np.int64]:
    return shard_bounds(op.rule.result_sharding(result, option), op.results[result].shape, mesh)
