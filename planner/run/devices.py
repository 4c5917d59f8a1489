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

from planner.model.collectives import Kind
from planner.model.exchange import exchange
from planner.model.graph import Graph
from planner.model.mesh import Mesh, MeshAxis
from planner.model.program import Move, Program, Run
from planner.model.sharding import Reduction, Sharding, held_bounds, shard_bounds
from planner.run.exchange import Placed, exchange_tiles
from planner.run.local import run_op
from planner.run.transfer import Reducer, Wire, transfer
from planner.run.undefined import poison

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
        done = Run(op, ((),) * len(op.rule.loops), op.inputs, op.values)
        made = run_op(done, ALONE, 0, [values[name] for name in op.inputs], xp, precision)
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
        """Every device its shard: an exchange from an array that all hold, in which nothing is sent."""
        shards = [array] * self.program.mesh.devices
        self._exchange(Sharding.replicated(array.ndim), shards, name)

    def move(self, done: Move, place: int) -> None:
        source, target = self.program.values[done.operand], self.program.values[done.result]
        mesh, shape = self.program.mesh, source.type.shape
        if done.collective.kind is Kind.EXCHANGE:
            shards = [held[done.operand] for held in self.held]
            received = self._exchange(source.sharding, shards, done.result)
            self.received[place] = np.array(received) * source.type.itemsize
            return
        held, wanted = shard_bounds(source.sharding, shape, mesh), shard_bounds(target.sharding, shape, mesh)
        for group in mesh.groups(done.collective.axes):
            shards = [self.held[device][done.operand] for device in group]
            results, received = transfer(
                self.xp, done.collective, source.sharding.reduction, shards, held[group], wanted[group]
            )
            self.received[place, group] = np.array(received) * source.type.itemsize
            for device, result in zip(group, results, strict=True):
                self._keep(done.result, int(device), result)

    def _exchange(self, source: Sharding, shards: list[Array], name: str) -> list[int]:
        """Make a value out of shards laid out as `source`; elements that every device receives."""
        value, mesh, wire = self.program.values[name], self.program.mesh, Wire(len(shards))
        shape, target = value.type.shape, value.sharding
        bounds = held_bounds(target, shape, mesh)
        fills = [poison(self.xp, shards[0].dtype), NEUTRAL.get(target.reduction, 0)]
        others = (mesh.group_index(target.partial) > 0).tolist()
        sizes = (bounds[..., 1] - bounds[..., 0]).tolist()
        blank = [self.xp.full(size, fills[other], shards[0].dtype) for size, other in zip(sizes, others, strict=True)]
        held, results = Placed(shards, held_bounds(source, shape, mesh)[..., 0]), Placed(blank, bounds[..., 0])
        reducer = Reducer.of(self.xp, source.reduction)
        exchange_tiles(self.xp, wire, reducer, exchange(source, target, shape, mesh), held, results)
        for device, array in enumerate(results.arrays):
            self._keep(name, device, array)
        return wire.received

    def run(self, done: Run) -> None:
        for device, held in enumerate(self.held):
            operands = [held[name] for name in done.operands]
            made = run_op(done, self.program.mesh, device, operands, self.xp, self.precision)
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
