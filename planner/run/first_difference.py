"""Where a run begins to differ: the first instruction, device and index, and the shards that were read for it.

The program is run once more on logical devices, and after every instruction what it made is compared with its part of
the graph run whole, terms combined. The shards are those of all devices that have a part in the number: of the terms
that are combined in it, and of the members of a collective. Where all values agree, the first count that is not as
predicted is named, or the first output of the run itself: then the backend alone is at fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.ir.accounting import count_live_bytes, count_received_bytes
from planner.ir.mesh import Mesh
from planner.ir.program import Instruction, OpCall, Program, Reshard
from planner.ir.sharding import Axes
from planner.run.backend import to_host
from planner.run.compare import find_differences
from planner.run.executor import Execution, Executor
from planner.run.transport import LocalTransport

Array = Any
Integers = NDArray[np.int64]
MAX_ELEMENTS = 4096
"""Of an input shard that is written out; of a larger one its shape is."""
MAX_SHARDS = 64
"""That are written out."""


@dataclass(frozen=True)
class ShardRecord:
    """What a device read: its elements row by row, nothing where they are too many to write out."""

    device: int
    value: str
    shape: tuple[int, ...]
    elements: tuple[float, ...] | None


@dataclass(frozen=True)
class Difference:
    """`what` differs: a value, the bytes received or the peak of bytes held; `got` and `wanted` are numbers of it.

    `instruction` counts from 0, `operation` is its op id or collective, `value` what it made; `index` is that in the
    device's shard. `inputs` are the shards that were read for it.
    """

    what: str
    instruction: int
    operation: str
    value: str
    device: int
    index: tuple[int, ...]
    got: float
    wanted: float
    inputs: tuple[ShardRecord, ...] = ()


def find_first_difference(
    program: Program,
    arrays: Mapping[str, Array],
    whole: Mapping[str, Array],
    *,
    xp: Any,
    precision: str,
    tolerance: float,
) -> Difference | None:
    """Nothing where every value that the program makes is as it should be."""
    machine = Executor(program, arrays, xp, precision, LocalTransport(program.mesh.devices))
    means = {name: name for name, _ in program.arguments}
    for place, done in enumerate(program.instructions):
        machine.execute(place, done)
        means |= _graph_values(done, means)
        for name in done.results:
            shards = [held[name] for held in machine.held.values()]
            for error, device, pair in find_differences(program, name, whole[means[name]], shards=shards, xp=xp):
                if error > tolerance:
                    inputs = _inputs(program, done, name, device=device, held=machine.held, xp=xp)
                    return _describe_difference(place, done, name, device=device, pair=pair, inputs=inputs, xp=xp)
        machine.end_instruction(place, (*done.operands, *done.results))
    return None


def find_first_output(
    program: Program, whole: Mapping[str, Array], done: Execution, *, xp: Any, tolerance: float
) -> Difference | None:
    """The first output that is not as it should be, at the instruction that made it."""
    makers = {name: (place, made) for place, made in enumerate(program.instructions) for name in made.results}
    for number, (value, name) in enumerate(zip(program.graph.outputs, program.outputs, strict=True)):
        shards = [held[number] for held in done.outputs]
        for error, device, pair in find_differences(program, name, whole[value], shards=shards, xp=xp):
            if error > tolerance:
                place, made = makers.get(name, (0, None))
                return _describe_difference(place, made, name, device=device, pair=pair, inputs=(), xp=xp)
    return None


def find_first_miscount(program: Program, done: Execution) -> Difference | None:
    """The first instruction in which a device receives other bytes than predicted, or the first device that holds
    another peak."""
    predicted = count_received_bytes(program)
    for place, device in np.argwhere(done.received != predicted).tolist():
        return _count_difference(
            program, "received_bytes", place, device=device, got=done.received[place], wanted=predicted[place]
        )
    held = count_live_bytes(program)
    for device in np.flatnonzero(done.peak != held.max(axis=0)).tolist():
        return _count_difference(
            program, "peak_bytes", int(held[:, device].argmax()), device=device, got=done.peak, wanted=held.max(axis=0)
        )
    return None


def _count_difference(
    program: Program, what: str, place: int, *, device: int, got: Integers, wanted: Integers
) -> Difference:
    """Numbers by device. Behind the last instruction stands the return."""
    listed = program.instructions[place : place + 1]
    name, value = (_name(listed[0]), listed[0].results[0]) if listed else ("return", program.outputs[0])
    return Difference(what, place, name, value, device, (), float(got[device]), float(wanted[device]))


def _graph_values(done: Instruction, means: Mapping[str, str]) -> dict[str, str]:
    """What results are of the graph. What is made again means what was made at first."""
    if not isinstance(done, OpCall):
        return {done.result: means[done.operand]}
    first = done.op.recompute_of or done.op.id
    return dict(zip(done.results, (first, *(f"{first}:{k}" for k in range(1, len(done.results)))), strict=True))


def _name(done: Instruction) -> str:
    return done.op.id if isinstance(done, OpCall) else str(done.collective)


def _describe_difference(
    place: int,
    done: Instruction | None,
    name: str,
    *,
    device: int,
    pair: tuple[Array, Array],
    inputs: tuple[ShardRecord, ...],
    xp: Any,
) -> Difference:
    got, wanted = (to_host(xp, each) for each in pair)
    index: Sequence[int] = ()
    if got.shape == wanted.shape and got.size:
        with np.errstate(invalid="ignore"):
            apart = np.where(np.isfinite(got) & np.isfinite(wanted), np.abs(got - wanted), np.inf)
        apart[(got == wanted) | (np.isnan(got) & np.isnan(wanted))] = 0
        index = [int(at) for at in np.unravel_index(int(apart.argmax()), got.shape)]
        got, wanted = got[tuple(index)], wanted[tuple(index)]
    one, other = (float(each) if each.ndim == 0 else float("nan") for each in (got, wanted))
    what = _name(done) if done else "argument"
    return Difference("value", place, what, name, device, tuple(index), one, other, inputs)


def _inputs(
    program: Program, done: Instruction, name: str, *, device: int, held: Mapping[int, Mapping[str, Array]], xp: Any
) -> tuple[ShardRecord, ...]:
    """What was read, by whom, for a value as the devices hold it that have the terms of a device's shard."""
    devices = _group_devices(program.mesh, program.values[name].sharding.partial, [device])
    if isinstance(done, Reshard):
        exchanged = done.collective.is_exchange
        axes = tuple(range(len(program.mesh.axes))) if exchanged else done.collective.axes
        devices = _group_devices(program.mesh, axes, devices)
    read = [(member, operand) for member in devices for operand in dict.fromkeys(done.operands)]
    return tuple(_shard(member, operand, held[member][operand], xp=xp) for member, operand in read[:MAX_SHARDS])


def _group_devices(mesh: Mesh, axes: Axes, devices: Sequence[int]) -> list[int]:
    """Devices and who is in a group with one of them."""
    groups: list[list[int]] = mesh.groups(axes).tolist()
    return sorted({member for group in groups if not set(group).isdisjoint(devices) for member in group})


def _shard(device: int, name: str, array: Array, *, xp: Any) -> ShardRecord:
    few = array.size <= MAX_ELEMENTS
    elements = tuple(map(float, to_host(xp, array).reshape(-1).tolist())) if few else None
    return ShardRecord(device, name, tuple(array.shape), elements)
