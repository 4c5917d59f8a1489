"""What devices send in a redistribution: boxes held and wanted, pieces of cells, messages and their counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class Endpoints:
    """What every device holds and wants; the first dim of every array is `[devices]`.

    `held` and `wanted` are boxes `[devices, dims, 2]`, empty where `is_holder` or `is_receiver` is False. `group`
    numbers the group in which a device exchanges, `term` says which of the `terms` terms of a partial tensor it holds.
    """

    held: Integers
    is_holder: Flags
    wanted: Integers
    is_receiver: Flags
    group: Integers
    term: Integers
    terms: int = 1

    def overlaps(self) -> tuple[Integers, Flags]:
        """Return the boxes `[devices, dims, 2]` that devices hold of what they want, and whether there is one."""
        low = np.maximum(self.held[..., 0], self.wanted[..., 0])
        high = np.minimum(self.held[..., 1], self.wanted[..., 1])
        return np.stack([low, high], axis=-1), (low < high).all(axis=1) & self.is_holder & self.is_receiver

    def restricted_to_first_group(self) -> Endpoints:
        """Return the endpoints of the devices that exchange with the first device."""
        members = self.group == self.group[0]
        flags = self.is_holder[members], self.is_receiver[members]
        return Endpoints(
            self.held[members],
            flags[0],
            self.wanted[members],
            flags[1],
            self.group[members],
            self.term[members],
            self.terms,
        )


@dataclass(frozen=True, eq=False, slots=True)
class PieceTable:
    """Pieces to send, an array `[pieces]` per column.

    Part number `part` of the `parts` equal parts of a flattened cell goes from sender to receiver.
    """

    cell: Integers
    part: Integers
    parts: Integers
    sender: Integers
    receiver: Integers

    @classmethod
    def none(cls) -> PieceTable:
        return cls(*np.zeros((5, 0), np.int64))


@dataclass(frozen=True, eq=False, slots=True)
class DeviceMessages:
    """Messages, an array `[messages]` per column: all that a device sends to another at once, sorted by both."""

    sender: Integers
    receiver: Integers
    elements: Integers


@dataclass(frozen=True, eq=False)
class Transfers:
    """What is sent in an exchange: first the terms to reduce, then the copies.

    `cells` are boxes `[cells, dims, 2]`.
    """

    endpoints: Endpoints
    cells: Integers
    reduce: PieceTable
    copy: PieceTable

    @cached_property
    def cell_sizes(self) -> Integers:
        """Elements of each cell: `[cells]`."""
        return box_volumes(self.cells)

    @cached_property
    def messages(self) -> tuple[DeviceMessages, DeviceMessages]:
        """Messages from device to device: those of terms, then those of copies."""
        return self._group_messages(self.reduce), self._group_messages(self.copy)

    @property
    def received(self) -> Integers:
        """Elements that each device receives: `[devices]`."""
        return self._total("receiver")

    @property
    def sent(self) -> Integers:
        """Elements that each device sends: `[devices]`."""
        return self._total("sender")

    @property
    def devices(self) -> int:
        return len(self.endpoints.held)

    def _total(self, end: str) -> Integers:
        count = np.zeros(self.devices, np.int64)
        for messages in self.messages:
            np.add.at(count, getattr(messages, end), messages.elements)
        return count

    def _group_messages(self, pieces: PieceTable) -> DeviceMessages:
        start, stop = flat_part_bounds(self.cell_sizes[pieces.cell], pieces.part, pieces.parts)
        sent = stop > start
        pair = (pieces.sender * self.devices + pieces.receiver)[sent]
        order = np.argsort(pair, kind="stable")
        first = np.flatnonzero(np.diff(pair[order], prepend=-1))
        elements = np.add.reduceat((stop - start)[sent][order], first) if len(first) else first
        sender, receiver = np.divmod(pair[order][first], self.devices)
        return DeviceMessages(sender, receiver, elements)


def box_volumes(boxes: Integers) -> Integers:
    volumes: Integers = (boxes[..., 1] - boxes[..., 0]).prod(axis=1)
    return volumes


def flat_part_bounds(size: Integers, part: ArrayLike, parts: ArrayLike) -> tuple[Integers, Integers]:
    """Return the start and stop of parts of flattened cells, as even as whole elements allow."""
    first, count = np.asarray(part), np.asarray(parts)
    return size * first // count, size * (first + 1) // count
