"""Finds where a run begins to differ: the first instruction, device and index, and the shards that were read for it.

The program runs once more on logical devices. After every instruction of the last micro-batch its results are compared
with their parts of the graph run whole, terms combined. The reported shards are those of all devices that take part in
the number: of the terms combined in it, and of the members of a collective. Where all values agree, the report names
the first count that is not as predicted, or the first wrong output of the run itself, in which case the backend alone
is at fault.
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
from planner.run.executor import Execution, Executor, LaterData
from planner.run.transport import LocalTransport

Array = Any
Integers = NDArray[np.int64]
MAX_ELEMENTS = 4096
"""Elements up to which an input shard is written out; of a larger one only the shape is."""
MAX_SHARDS = 64
"""Input shards that are written out."""


@dataclass(frozen=True)
class ShardRecord:
    """A shard that a device read: its elements row by row, or None where they are too many to write out."""

    device: int
    value: str
    shape: tuple[int, ...]
    elements: tuple[float, ...] | None


@dataclass(frozen=True)
class Difference:
    """What differs (`what`): a value, the bytes received, or the peak of bytes held; `got` and `wanted` are its
    numbers.

    `instruction` counts from 0, `operation` is its op id or collective, `value` what it made. `index` is the place in
    the device's shard. `inputs` are the shards that were read for it.
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
    later: LaterData = (),
) -> Difference | None:
    """Return the first wrong value of a run on logical devices; None where every value is right."""
    # Always on logical devices: an MPI run would have to gather every value.
    executor = Executor(program, arrays, xp, precision, LocalTransport(program.mesh.devices), later=later)
    graph_value = {name: name for name, _ in program.arguments}
    for place in executor.visit_instructions():
        done = program.instructions[place]
        graph_value |= _graph_values(done, graph_value)
        # The whole graph's values are those of the last micro-batch, and sums over all.
        compared = done.results if executor.microbatch + 1 == program.graph.microbatches else ()
        for name in compared:
            shards = [held[name] for held in executor.held.values()]
            for error, device, pair in find_differences(program, name, whole[graph_value[name]], shards=shards, xp=xp):
                if error > tolerance:
                    inputs = _inputs(program, done, name, device=device, held=executor.held, xp=xp)
                    return _describe_difference(place, done, name, device=device, pair=pair, inputs=inputs, xp=xp)
        executor.end_instruction(place, (*done.operands, *done.results))
    return None


def find_first_output(
    program: Program, whole: Mapping[str, Array], done: Execution, *, xp: Any, tolerance: float
) -> Difference | None:
    """Return the first wrong output, at the instruction that made it; None where every output is right."""
    makers = {name: (place, made) for place, made in enumerate(program.instructions) for name in made.results}
    for number, (value, name) in enumerate(zip(program.graph.outputs, program.outputs, strict=True)):
        shards = [held[number] for held in done.outputs]
        for error, device, pair in find_differences(program, name, whole[value], shards=shards, xp=xp):
            if error > tolerance:
                place, made = makers.get(name, (0, None))
                return _describe_difference(place, made, name, device=device, pair=pair, inputs=(), xp=xp)
    return None


def find_first_miscount(program: Program, done: Execution) -> Difference | None:
    """Return the first count that is not as predicted: bytes that a device receives, or a device's peak.

    Return None where all counts are as predicted.
    """
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
    """Describe a wrong count; `got` and `wanted` are by device.

    The place after the last instruction is the return.
    """
    listed = program.instructions[place : place + 1]
    name, value = (_name(listed[0]), listed[0].results[0]) if listed else ("return", program.outputs[0])
    return Difference(what, place, name, value, device, (), float(got[device]), float(wanted[device]))


def _graph_values(done: Instruction, means: Mapping[str, str]) -> dict[str, str]:
    """Return the graph's values that results stand for. A recomputed value stands for the original."""
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
    """Return the shards that were read for a value, by all devices that share terms with a device or its collective."""
    devices = _group_devices(program.mesh, program.values[name].sharding.partial, [device])
    if isinstance(done, Reshard):
        exchanged = done.collective.is_exchange
        axes = tuple(range(len(program.mesh.axes))) if exchanged else done.collective.axes
        devices = _group_devices(program.mesh, axes, devices)
    read = [(member, operand) for member in devices for operand in dict.fromkeys(done.operands)]
    return tuple(_shard(member, operand, held[member][operand], xp=xp) for member, operand in read[:MAX_SHARDS])


def _group_devices(mesh: Mesh, axes: Axes, devices: Sequence[int]) -> list[int]:
    """Return devices and all who are in a group with one of them."""
    groups: list[list[int]] = mesh.groups(axes).tolist()
    return sorted({member for group in groups if not set(group).isdisjoint(devices) for member in group})


def _shard(device: int, name: str, array: Array, *, xp: Any) -> ShardRecord:
    few = array.size <= MAX_ELEMENTS
    elements = tuple(map(float, to_host(xp, array).reshape(-1).tolist())) if few else None
    return ShardRecord(device, name, tuple(array.shape), elements)
