"""Bytes that a program moves and holds, device by device, counted before it runs.

Received bytes are those of every collective, uneven blocks included, and of blocks that travel while an op runs, which
have buffers of their own in the meantime (`planner.ir.ring`). Every value has its own buffer, live from the instruction
that makes it through the last that reads it; arguments and outputs are live throughout, accumulators from the start.
The executor counts both while it runs, and the two counts must agree to the byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.ir.device_classes import DeviceClasses, held_elements, received_elements
from planner.ir.graph import TensorType
from planner.ir.left_values import find_left_values
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program, Reshard
from planner.ir.ring import RingBlocks
from planner.ir.sharding import Sharding, shard_shapes

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Accounting:
    """What the devices of a program receive and hold, one column for each class of devices that are alike in both."""

    program: Program

    @cached_property
    def classes(self) -> DeviceClasses:
        """The classes of devices, by all that the program holds and moves."""
        grids = [*self._held.values(), *self._moved.values()]
        return DeviceClasses.of({id(grid): grid for grid in grids}.values(), self.program.mesh)

    @cached_property
    def _held(self) -> dict[str, Integers]:
        """Elements of every value, as grids; equal shardings share one grid."""
        values = self.program.values.items()
        return {name: held_elements(value.sharding, value.type.shape, self.program.mesh) for name, value in values}

    @cached_property
    def _moved(self) -> dict[int, Integers]:
        """Elements received, as grids, by the place of the collective."""
        moved = {}
        for place, done in enumerate(self.program.instructions):
            if isinstance(done, Reshard):
                held = self.program.values[done.operand]
                moved[place] = received_elements(
                    done.collective, held.sharding, held.type.shape, mesh=self.program.mesh
                )
        return moved

    @cached_property
    def received(self) -> Integers:
        """Bytes that every device receives in every instruction, in all of its trips: `[instructions, classes]`."""
        received = np.zeros((len(self.program.instructions), len(self.classes)), np.int64)
        picked = self._pick(self._moved.values())
        for place, grid in self._moved.items():
            done = self.program.instructions[place]
            itemsize = self.program.values[done.operands[0]].type.itemsize
            received[place] = picked[id(grid)] * itemsize * self.program.trips[place]
        for place, name, blocks in self._travelling:
            received[place] += blocks.received * self.value_bytes[name] * self.program.trips[place]
        return received

    @cached_property
    def _travelling(self) -> list[tuple[int, str, RingBlocks]]:
        """The blocks that travel while ops run, each with the instruction and the value."""
        ops = ((p, done) for p, done in enumerate(self.program.instructions) if isinstance(done, OpCall))
        return [(p, *each) for p, done in ops for each in done.list_ring_blocks(self.program.mesh)]

    @cached_property
    def value_bytes(self) -> dict[str, Integers]:
        """Bytes of a device's shard of every value: `[classes]` by value."""
        return dict(zip(self._held, self._sizes, strict=True))

    @cached_property
    def _sizes(self) -> Integers:
        """Bytes of a device's shard of every value: `[values, classes]`."""
        values, picked = self.program.values.values(), self._pick(self._held.values())
        rows = {grid: row for row, grid in enumerate(picked)}
        held = np.array([*picked.values()], np.int64).reshape(len(picked), len(self.classes))
        itemsizes = np.array([value.type.itemsize for value in values], np.int64)
        return held[[rows[id(grid)] for grid in self._held.values()]] * itemsizes[:, None]

    def _pick(self, grids: Iterable[Integers]) -> dict[int, Integers]:
        """Return the numbers of every class, by the id of the grid: values share a few grids."""
        return {number: self.classes.pick(grid) for number, grid in {id(grid): grid for grid in grids}.items()}

    @cached_property
    def live(self) -> Integers:
        """Bytes that every device holds while each instruction runs, and at the end: `[instructions + 1, classes]`."""
        live: Integers = np.where(self.most_waiting[:, None] == 0, self._sides[0], self._sides[1])
        return live

    @cached_property
    def most_waiting(self) -> Integers:
        """Which of the counts of left values holds for each instruction: in the backward pass, what holds more."""
        forward, backward = self.program.pass_ends
        more, place = self._sides.max(axis=2), np.arange(len(self.program.instructions) + 1)
        is_late = (place >= backward) | ((place >= forward) & (more[1] > more[0]))
        return np.asarray(is_late, np.int64)

    @cached_property
    def _sides(self) -> Integers:
        """The bytes with most other micro-batches waiting for their backward pass, and with most for late ops."""
        count = len(self.program.instructions)
        change = np.zeros((count + 2, len(self.classes)), np.int64)
        first, last = self.program.first_held, self.program.last_use
        np.add.at(change, [first[name] for name in self._held], self._sizes)
        np.subtract.at(change, [last[name] + 1 for name in self._held], self._sizes)
        sides: Integers = np.cumsum(change + self._in_flight_changes, axis=1)[:, : count + 1]
        for place, name, blocks in self._travelling:
            sides[:, place] += blocks.buffers * self.value_bytes[name]
        return sides

    @cached_property
    def _in_flight_changes(self) -> Integers:
        """By how many bytes more is held from each instruction on, for other micro-batches in flight: `[2, ...]`.

        The first are with most of these waiting for their backward pass, the second with most waiting for late ops.
        """
        changes = np.zeros((2, len(self.program.instructions) + 2, len(self.classes)), np.int64)
        for left in find_left_values(self.program):
            held = np.array(left.counts)[:, None] * self.value_bytes[left.name]
            for start, stop in left.spans:
                changes[:, start] += held
                changes[:, stop] -= held
        return changes


def count_received_bytes(program: Program) -> Integers:
    """Count the bytes that every device receives in all trips of every instruction: `[instructions, devices]`."""
    account = Accounting(program)
    return account.classes.expand(account.received)


def count_live_bytes(program: Program) -> Integers:
    """Count the bytes that every device holds.

    Return `[instructions + 1, devices]`: while each instruction runs, and at the end.
    """
    account = Accounting(program)
    return account.classes.expand(account.live)


def count_value_bytes(program: Program, name: str) -> Integers:
    """Count the bytes of every device's shard of a value: `[devices]`."""
    held = program.values[name]
    return count_held_bytes(held.sharding, held.type, program.mesh)


def count_held_bytes(sharding: Sharding, kind: TensorType, mesh: Mesh) -> Integers:
    """Count the bytes of every device's shard of a tensor, halos included: `[devices]`."""
    size: Integers = shard_shapes(sharding, kind.shape, mesh).prod(axis=1) * kind.itemsize
    return size
