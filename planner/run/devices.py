"""The devices of a mesh, each with its arrays; and the graph run whole, which they must equal.

All are logical devices of one process, or a process has those that its fabric says (`planner.run.fabric`). The executor
knows arrays, not predictions: it counts the elements that cross between devices and the bytes alive on each, at the
declared element size, from the arrays it makes.
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
from planner.model.program import Instruction, Move, Program, Run
from planner.model.sharding import Reduction, Sharding, held_bounds, shard_bounds
from planner.run.backend import rounded
from planner.run.exchange import Placed, exchange_tiles
from planner.run.fabric import Fabric, OneProcess
from planner.run.homes import home
from planner.run.local import run_op
from planner.run.transfer import Reducer, transfer
from planner.run.undefined import poison

Array = Any
Progress = Callable[[int, int], None]
NEUTRAL = {Reduction.SUM: 0, Reduction.PRODUCT: 1, Reduction.BITWISE_XOR: 0}
"""What changes nothing, for the reductions to which a second copy of a term does."""
ALONE = Mesh((MeshAxis("all", 1),))


@dataclass(frozen=True)
class Execution:
    """What the devices here hold at the end ([device][output]) and what was counted on the way.

    `received` is [instructions, devices], `peak` [devices]; of devices that are not here nothing is known. `seconds`
    [instructions, devices] are those of ops; `pools` the peak bytes of every device's memory pool, measured and as its
    live values say, where it has one (`planner.run.homes`).
    """

    outputs: list[list[Array]]
    received: NDArray[np.int64]
    peak: NDArray[np.int64]
    seconds: NDArray[np.float64]
    pools: list[tuple[int, int] | None]


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
    fabric: Fabric | None = None,
) -> Execution:
    """Run a program on the devices here (without a fabric: all). `arrays` are the whole inputs; each device is given
    its shard."""
    machine = Machine(program, arrays, xp, precision, fabric or OneProcess(program.mesh.devices))
    for place, done in enumerate(program.instructions):
        machine.do(place, done)
        machine.settle(place, (*done.operands, *done.results))
        if on_progress:
            on_progress(place + 1, len(program.instructions))
    outputs = [[held[name] for name in program.outputs] for held in machine.held.values()]
    pools = [each.pool for each in machine.homes.values()]
    return Execution(outputs, machine.received, machine.peak, machine.seconds(), pools)


class Machine:
    """The devices here in the midst of a program: what they hold by name, have received, and at most held."""

    def __init__(self, program: Program, arrays: Mapping[str, Array], xp: Any, precision: str, fabric: Fabric) -> None:
        devices = program.mesh.devices
        self.program, self.xp, self.precision, self.fabric = program, xp, precision, fabric
        self.held: dict[int, dict[str, Array]] = {device: {} for device in fabric.here}
        self.homes = {device: home(xp) for device in fabric.here}
        self.alive = np.zeros(devices, np.int64)
        self.peak = np.zeros(devices, np.int64)
        self.received = np.zeros((len(program.instructions), devices), np.int64)
        for name, _ in program.arguments:
            self._load(name, arrays[name])

    def do(self, place: int, done: Instruction) -> None:
        """The next instruction; operands and results are held until it is settled."""
        if isinstance(done, Move):
            self._move(done, place)
        else:
            self._run(done, place)

    def seconds(self) -> NDArray[np.float64]:
        """[instructions, devices]: what ops took."""
        taken = np.zeros(self.received.shape)
        for device, each in self.homes.items():
            each.finish()
            taken[list(each.seconds), device] = list(each.seconds.values())
        return taken

    def _load(self, name: str, array: Array) -> None:
        """Every device its shard: an exchange from an array that all hold, in which nothing is sent."""
        shards = dict.fromkeys(self.held, array)
        self._exchange(Sharding.replicated(array.ndim), shards, name)

    def _move(self, done: Move, place: int) -> None:
        source, target = self.program.values[done.operand], self.program.values[done.result]
        mesh, shape = self.program.mesh, source.type.shape
        if done.collective.kind is Kind.EXCHANGE:
            shards = {device: held[done.operand] for device, held in self.held.items()}
            received = self._exchange(source.sharding, shards, done.result)
            self.received[place] = np.array(received) * source.type.itemsize
            return
        held, wanted = shard_bounds(source.sharding, shape, mesh), shard_bounds(target.sharding, shape, mesh)
        for group in mesh.groups(done.collective.axes):
            if self.held.keys().isdisjoint(group.tolist()):
                continue
            wire = self.fabric.wire(group.tolist())
            here = group[list(wire.here)].tolist()
            arrays = [self.held[device][done.operand] for device in here]
            results, received = transfer(
                self.xp, done.collective, source.sharding.reduction, arrays, held[group], wanted[group], wire
            )
            self.received[place, group] = np.array(received) * source.type.itemsize
            for device, result in zip(here, results, strict=True):
                self._keep(done.result, device, rounded(self.xp, result, source.type.dtype, self.precision))

    def _exchange(self, source: Sharding, shards: Mapping[int, Array], name: str) -> list[int]:
        """Make a value out of shards laid out as `source`; elements that every device receives."""
        value, mesh = self.program.values[name], self.program.mesh
        shape, target, wire = value.type.shape, value.sharding, self.fabric.wire(range(mesh.devices))
        bounds = held_bounds(target, shape, mesh)
        dtype = next(iter(shards.values())).dtype
        fills = [poison(self.xp, dtype), NEUTRAL.get(target.reduction, 0)]
        others = (mesh.group_index(target.partial) > 0).tolist()
        sizes = (bounds[..., 1] - bounds[..., 0]).tolist()
        made = {device: self.xp.full(sizes[device], fills[others[device]], dtype) for device in shards}
        held, results = Placed(shards, held_bounds(source, shape, mesh)[..., 0]), Placed(made, bounds[..., 0])
        reducer = Reducer.of(self.xp, source.reduction)
        exchange_tiles(self.xp, wire, reducer, exchange(source, target, shape, mesh), held, results)
        for device, array in made.items():
            self._keep(name, device, rounded(self.xp, array, value.type.dtype, self.precision))
        return wire.received

    def _run(self, done: Run, place: int) -> None:
        for device, held in self.held.items():
            operands = [held[name] for name in done.operands]
            with self.homes[device].running(place):
                made = run_op(done, self.program.mesh, device, operands, self.xp, self.precision)
            for name, array in zip(done.results, made, strict=True):
                self._keep(name, device, array, operands)

    def settle(self, place: int, names: tuple[str, ...]) -> None:
        """Take the peak while operands and results are alive, then drop what nobody reads again."""
        self.peak = np.maximum(self.peak, self.alive)
        for each in self.homes.values():
            each.settle()
        for name in dict.fromkeys(names):
            if self.program.last_use[name] == place:
                for device, held in self.held.items():
                    array = held.pop(name)
                    self.homes[device].drops(array)
                    self.alive[device] -= self._bytes(name, array)

    def _keep(self, name: str, device: int, array: Array, beside: list[Array] | None = None) -> None:
        array = self.homes[device].own(array, beside)
        self.homes[device].keeps(array)
        self.held[device][name] = array
        self.alive[device] += self._bytes(name, array)
        self.peak[device] = max(self.peak[device], self.alive[device])

    def _bytes(self, name: str, array: Array) -> int:
        return int(array.size) * self.program.values[name].type.itemsize
