"""Runs a program on the devices of a mesh, and the graph whole, which the program must equal.

All devices are logical devices of one process, or a process has those that its transport says
(`planner.run.transport`). The executor works on arrays and knows no predictions: from the arrays it makes it counts
the elements that cross between devices and the bytes alive on each, at the declared element size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import RunFailed
from planner.ir.collectives import Collective
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh, MeshAxis
from planner.ir.program import Instruction, OpCall, Program, Reshard, is_accumulation
from planner.ir.redistribution import plan_transfers
from planner.ir.sharding import Sharding, held_bounds, shard_bounds
from planner.run.backend import round_to_dtype
from planner.run.collectives import Reducer, run_collective
from planner.run.device_memory import make_device_memory
from planner.run.local_op import prepare_op, run_op
from planner.run.redistribution import PlacedArrays, exchange_cells
from planner.run.ring import run_ring
from planner.run.transport import LocalTransport, Transport
from planner.run.undef import poison_value

Array = Any
LaterData = Sequence[Mapping[str, Array]]
"""The data of each micro-batch of a step after the first: whole arrays by input."""
Progress = Callable[[int, int], None]
SINGLE_DEVICE = Mesh((MeshAxis("all", 1),))


@dataclass(frozen=True)
class Execution:
    """The outputs that the devices here hold at the end, `[device][output]`, and what was counted on the way.

    `received` is `[instructions, devices]` in bytes, `peak` `[devices]` in bytes; entries of devices that are not here
    are 0. `seconds` `[instructions, devices]` are those of ops. `measured_peaks` are, per device, the peak bytes of its
    memory pool, measured and computed from its live values, or None without a pool (`planner.run.device_memory`).
    """

    outputs: list[list[Array]]
    received: NDArray[np.int64]
    peak: NDArray[np.int64]
    seconds: NDArray[np.float64]
    measured_peaks: list[tuple[int, int] | None]


def run_whole(
    graph: Graph,
    arrays: Mapping[str, Array],
    xp: Any,
    *,
    precision: str,
    later: LaterData = (),
    on_progress: Progress | None = None,
) -> dict[str, Array]:
    """Compute every value of the graph unsharded; `later` are the data of the micro-batches after the first.

    What a micro-batch computes is that of the last one, and of an accumulator the sum over all.
    """
    values: dict[str, Array] = {}
    runs, ops = 1 + len(later), len(graph.ops)
    for number, data in enumerate((arrays, *later)):
        values |= data
        for place, op in enumerate(graph.ops, 1):
            if on_progress is not None:
                on_progress(number * ops + place, runs * ops)
            if op.phase == "update" and number < len(later):
                continue
            done = OpCall(op, ((),) * len(op.rule.loops), op.inputs, op.values)
            operands = [values[name] for name in op.inputs]
            results = run_op(done, SINGLE_DEVICE, 0, operands=operands, xp=xp, precision=precision)
            if op.accumulates and number:
                before = zip(op.values, op.results, results, strict=True)
                results = tuple(
                    round_to_dtype(xp, values[name] + more, kind.dtype, precision=precision)
                    for name, kind, more in before
                )
            values.update(zip(op.values, results, strict=True))
    return values


def run_program(
    program: Program,
    arrays: Mapping[str, Array],
    xp: Any,
    *,
    precision: str,
    on_progress: Progress | None = None,
    fabric: Transport | None = None,
    later: LaterData = (),
) -> Execution:
    """Run a program on the devices here (without a transport: all of them).

    `arrays` are the whole inputs, and `later` the data of the micro-batches after the first; each device is given its
    shard of them.
    """
    transport, total = fabric or LocalTransport(program.mesh.devices), sum(program.trips)
    report = on_progress or (lambda _done, _total: None)
    executor = Executor(program, arrays, xp, precision, transport, later=later, on_argument=partial(report, 0, total))
    for count, place in enumerate(executor.visit_instructions(), 1):
        done = program.instructions[place]
        executor.end_instruction(place, (*done.operands, *done.results))
        report(count, total)
    outputs = [[held[name] for name in program.outputs] for held in executor.held.values()]
    measured_peaks = [each.measured_peak for each in executor.homes.values()]
    return Execution(outputs, executor.received, executor.peak, executor.seconds(), measured_peaks)


class Executor:
    """The devices here during a run: the values they hold by name, the bytes they have received, and their peak.

    `microbatch` is the number of the current one. `on_argument` is called before the shards of each argument are
    loaded.
    """

    def __init__(
        self,
        program: Program,
        arrays: Mapping[str, Array],
        xp: Any,
        precision: str,
        fabric: Transport,
        *,
        later: LaterData = (),
        on_argument: Callable[[], None] = lambda: None,
    ) -> None:
        if len(later) + 1 != program.graph.microbatches:
            got, wanted = len(later) + 1, program.graph.microbatches
            raise RunFailed("data of micro-batches", got=got, wanted=wanted)
        self.later, self.microbatch = later, 0
        devices = program.mesh.devices
        self.program, self.xp, self.precision, self.fabric = program, xp, precision, fabric
        self.held: dict[int, dict[str, Array]] = {device: {} for device in fabric.here}
        self.homes = {device: make_device_memory(xp) for device in fabric.here}
        self.alive = np.zeros(devices, np.int64)
        self.peak = np.zeros(devices, np.int64)
        self.received = np.zeros((len(program.instructions), devices), np.int64)
        for name, _ in program.arguments:
            on_argument()
            self._load_shards(name, arrays[name])

    def visit_instructions(self) -> Iterator[int]:
        """Run the instructions in order, those of a micro-batch once for each, and yield the place of each."""
        program = self.program
        for self.microbatch in range(program.graph.microbatches):
            if self.microbatch:
                self._begin_microbatch()
            is_last = self.microbatch + 1 == program.graph.microbatches
            for place in range(len(program.instructions) if is_last else program.loop_end):
                self.execute(place, program.instructions[place])
                yield place

    def _begin_microbatch(self) -> None:
        """Drop what the micro-batch before made, except for what accumulates, and load the next data."""
        data = self.program.graph.data
        made = {name for done in self.program.instructions if not is_accumulation(done) for name in done.results}
        for name in (made | data) & next(iter(self.held.values())).keys():
            self._drop(name)
        for name in sorted(data):
            self._load_shards(name, self.later[self.microbatch - 1][name])

    def execute(self, place: int, done: Instruction) -> None:
        """Run an instruction. Its operands and results are held until `end_instruction`."""
        if isinstance(done, Reshard):
            self._move(done, place)
        else:
            self._run(done, place)

    def seconds(self) -> NDArray[np.float64]:
        """Return the seconds of ops: `[instructions, devices]`."""
        op_seconds = np.zeros(self.received.shape)
        for device, each in self.homes.items():
            each.finish()
            op_seconds[list(each.seconds), device] = list(each.seconds.values())
        return op_seconds

    def _load_shards(self, name: str, array: Array) -> None:
        """Give every device its shard: an exchange from an array that all hold, in which nothing is sent."""
        shards, whole = dict.fromkeys(self.held, array), Sharding.replicated(array.ndim)
        self._exchange(Collective.exchange(whole, self.program.values[name].sharding), whole, shards, name=name)

    def _move(self, done: Reshard, place: int) -> None:
        source, target = self.program.values[done.operand], self.program.values[done.result]
        mesh, shape = self.program.mesh, source.type.shape
        if done.collective.is_exchange:
            shards = {device: held[done.operand] for device, held in self.held.items()}
            received = self._exchange(done.collective, source.sharding, shards, name=done.result)
            self.received[place] += np.array(received) * source.type.itemsize
            return
        held, wanted = shard_bounds(source.sharding, shape, mesh), shard_bounds(target.sharding, shape, mesh)
        for group in mesh.groups(done.collective.axes):
            if self.held.keys().isdisjoint(group.tolist()):
                continue
            wire = self.fabric.communicator(group.tolist())
            here = group[list(wire.here)].tolist()
            arrays = [self.held[device][done.operand] for device in here]
            bounds = {"held": held[group], "wanted": wanted[group]}
            reduction = source.sharding.reduction
            results, received = run_collective(self.xp, done.collective, reduction, shards=arrays, **bounds, wire=wire)
            self.received[place, group] += np.array(received) * source.type.itemsize
            for device, result in zip(here, results, strict=True):
                self._store(done.result, device, self._round(done.result, result))

    def _exchange(self, move: Collective, source: Sharding, shards: Mapping[int, Array], *, name: str) -> list[int]:
        """Make a value from shards laid out as `source`, and return the elements that every device receives."""
        value, mesh = self.program.values[name], self.program.mesh
        shape, target, wire = value.type.shape, value.sharding, self.fabric.communicator(range(mesh.devices))
        bounds = held_bounds(target, shape, mesh)
        dtype = next(iter(shards.values())).dtype
        fills = [poison_value(self.xp, dtype), target.reduction.neutral or 0]
        others = (mesh.group_index(target.partial) > 0).tolist()
        sizes = (bounds[..., 1] - bounds[..., 0]).tolist()
        targets = {device: self.xp.full(sizes[device], fills[others[device]], dtype) for device in shards}
        held = PlacedArrays(shards, held_bounds(source, shape, mesh)[..., 0])
        results = PlacedArrays(targets, bounds[..., 0])
        reducer = Reducer.of(self.xp, source.reduction)
        transfers = plan_transfers(source, target, shape, mesh, move.axes)
        exchange_cells(self.xp, wire, reducer, done=transfers, held=held, wanted=results)
        for device, array in targets.items():
            self._store(name, device, self._round(name, array))
        return wire.received

    def _round(self, name: str, array: Array) -> Array:
        """Return an array with the precision of a value."""
        return round_to_dtype(self.xp, array, self.program.values[name].type.dtype, precision=self.precision)

    def _run(self, done: OpCall, place: int) -> None:
        mesh, axes = self.program.mesh, done.op.rule.ring_axes(done.option)
        if axes:
            for group in mesh.groups(axes).tolist():
                if not self.held.keys().isdisjoint(group):
                    self._run_ring(done, place, group)
            return
        for device, held in self.held.items():
            operands = [held[name] for name in done.operands]
            with self.homes[device].time_op(place):
                results = run_op(done, mesh, device, operands=operands, xp=self.xp, precision=self.precision)
            self._keep_results(done, device, results)

    def _run_ring(self, done: OpCall, place: int, group: list[int]) -> None:
        """Run an op whose blocks travel on the devices of one ring that are here."""
        mesh, wire, runs = self.program.mesh, self.fabric.communicator(group), {}
        for number in wire.here:
            device = group[number]
            operands = [self.held[device][name] for name in done.operands]
            runs[number] = prepare_op(done, mesh, device, operands=operands, xp=self.xp, precision=self.precision)
        sizes = [self.program.values[name].type.itemsize for name in done.operands]
        for member in run_ring(runs, sizes, wire=wire, timer=lambda device: self.homes[device].time_op(place)):
            device = member.run.device
            self._keep_results(done, device, member.results)
            self.received[place, device] += member.received
            self.peak[device] = max(self.peak[device], self.alive[device] + member.buffers)

    def _keep_results(self, done: OpCall, device: int, results: Sequence[Array]) -> None:
        held = self.held[device]
        operands = [held[name] for name in done.operands]
        for name, array in zip(done.results, results, strict=True):
            if done.op.accumulates and self.microbatch:
                held[name][...] = self._round(name, held[name] + array)
            else:
                self._store(name, device, array, beside=operands)

    def end_instruction(self, place: int, names: tuple[str, ...]) -> None:
        """Update the peak while operands and results are alive, then drop what nobody reads again."""
        self.peak = np.maximum(self.peak, self.alive)
        for each in self.homes.values():
            each.end_instruction()
        for name in dict.fromkeys(names):
            if self.program.last_use[name] == place:
                self._drop(name)

    def _drop(self, name: str) -> None:
        for device, held in self.held.items():
            array = held.pop(name)
            self.homes[device].remove_live(array)
            self.alive[device] -= self._bytes(name, array)

    def _store(self, name: str, device: int, array: Array, *, beside: list[Array] | None = None) -> None:
        array = self.homes[device].adopt(array, beside)
        self.homes[device].add_live(array)
        self.held[device][name] = array
        self.alive[device] += self._bytes(name, array)
        self.peak[device] = max(self.peak[device], self.alive[device])

    def _bytes(self, name: str, array: Array) -> int:
        return int(array.size) * self.program.values[name].type.itemsize
