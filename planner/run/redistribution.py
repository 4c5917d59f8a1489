"""Runs the tile exchange on arrays. `planner.ir.redistribution` decides who sends what to whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.ir.transfers import PieceTable, Transfers, flat_part_bounds
from planner.run.collectives import Reducer, combine_terms
from planner.run.transport import Communicator

Array = Any
Integers = NDArray[np.int64]
PieceRow = list[int]
"""cell, part, parts, sender, receiver"""
Part = tuple[int, int, int]
"""A cell, one of the parts of it, and the device that reduces the part."""


@dataclass(frozen=True, slots=True, eq=False)
class PlacedArrays:
    """An array for each device that is here.

    Their first elements are those at `origins` `[devices, dims]` of the tensor.
    """

    arrays: Sequence[Array] | Mapping[int, Array]
    origins: Integers

    def read_box(self, box: Integers, device: int) -> Array:
        """Return the part of a device's array that covers a box of the tensor."""
        local = (box - self.origins[device][:, None]).tolist()
        return self.arrays[device][(..., *(slice(start, stop) for start, stop in local))]


def exchange_cells(
    xp: Any, wire: Communicator, reducer: Reducer, done: Transfers, held: PlacedArrays, wanted: PlacedArrays
) -> None:
    """Fill the wanted arrays of the devices here from the held ones. Elements that no tile reaches are not changed."""
    if done.endpoints.terms > 1:
        _gather_parts(xp, wire, done, totals=_reduce_parts(xp, wire, reducer, done=done, held=held), wanted=wanted)
        return
    for device, box in _local_cells(done, wire.here):
        wanted.read_box(box, device)[...] = held.read_box(box, device)
    for (cell, _, _, _, receiver), flat in _send_pieces(
        xp, wire, done, pieces=done.copy, take=lambda row: _part(done, held, row)
    ):
        window = wanted.read_box(done.cells[cell], receiver)
        window[...] = flat.reshape(window.shape)


def _send_pieces(
    xp: Any, wire: Communicator, done: Transfers, *, pieces: PieceTable, take: Callable[[PieceRow], Array]
) -> Iterator[tuple[PieceRow, Array]]:
    """Send all pieces and yield each piece for a device here with its flat elements.

    What one device sends another is one message.
    """
    here, rows = set(wire.here), _rows(pieces)
    messages: dict[tuple[int, int], list[PieceRow]] = defaultdict(list)
    for row in rows:
        messages[row[3], row[4]].append(row)
    sent: list[list[Array | None]] = [[None] * wire.members for _ in wire.here]
    for (sender, receiver), listed in messages.items():
        if sender in here:
            sent[wire.here.index(sender)][receiver] = xp.concatenate([take(row) for row in listed])
    arrived = wire.exchange(sent)
    for (sender, receiver), listed in messages.items():
        if receiver in here:
            flat, sizes = arrived[wire.here.index(receiver)][sender], [_part_size(done, row) for row in listed]
            yield from zip(listed, _cut_flat(flat, sizes), strict=True)


def _cut_flat(flat: Array, sizes: Sequence[int]) -> list[Array]:
    ends = list(accumulate(sizes, initial=0))
    return [flat[start:stop] for start, stop in pairwise(ends)]


def _part_size(done: Transfers, row: PieceRow) -> int:
    start, stop = flat_part_bounds(done.cell_sizes[row[0]], row[1], row[2])
    return int(stop - start)


def _part(done: Transfers, held: PlacedArrays, row: PieceRow, *, device: int | None = None) -> Array:
    """Return the part of a flattened cell that its sender (or another device) holds."""
    cell, part, parts, sender, _ = row
    start, stop = flat_part_bounds(done.cell_sizes[cell], part, parts)
    flat = held.read_box(done.cells[cell], sender if device is None else device).reshape(-1)
    return flat[int(start) : int(stop)]


def _local_cells(done: Transfers, here: Sequence[int]) -> list[tuple[int, Integers]]:
    """Return the box of what every device here holds of what it wants."""
    boxes, has_some = done.endpoints.overlaps()
    return [(device, boxes[device]) for device in here if has_some[device]]


def _reduce_parts(
    xp: Any, wire: Communicator, reducer: Reducer, *, done: Transfers, held: PlacedArrays
) -> dict[Part, Array]:
    """Return every part that a device here reduces, its terms combined in order."""
    terms: dict[Part, dict[int, Array]] = defaultdict(dict)
    for row, flat in _send_pieces(xp, wire, done, pieces=done.reduce, take=lambda row: _part(done, held, row)):
        cell, part, _, sender, device = row
        by_term, own = terms[cell, part, device], int(done.endpoints.term[device])
        by_term[int(done.endpoints.term[sender])] = flat
        # A reducer's own term never travels; it is added when its first part of the cell arrives.
        if own not in by_term and _holds(done, cell, device):
            by_term[own] = _part(done, held, row, device=device)
    return {
        key: combine_terms(xp, reducer, [by_term[term] for term in range(done.endpoints.terms)])
        for key, by_term in terms.items()
    }


def _holds(done: Transfers, cell: int, device: int) -> bool:
    box, held = done.cells[cell], done.endpoints.held[device]
    return bool(
        done.endpoints.is_holder[device] and (held[:, 0] <= box[:, 0]).all() and (box[:, 1] <= held[:, 1]).all()
    )


def _gather_parts(
    xp: Any, wire: Communicator, done: Transfers, *, totals: dict[Part, Array], wanted: PlacedArrays
) -> None:
    """Let every device here that wants a cell join its parts."""
    joined: dict[tuple[int, int], dict[int, Array]] = defaultdict(dict)
    for (cell, part, reducer), total in totals.items():
        joined[cell, reducer][part] = total
    for (cell, part, _, _, receiver), flat in _send_pieces(
        xp, wire, done, pieces=done.copy, take=lambda row: totals[row[0], row[1], row[3]]
    ):
        joined[cell, receiver][part] = flat
    for (cell, device), parts in joined.items():
        window = wanted.read_box(done.cells[cell], device)
        window[...] = xp.concatenate([parts[part] for part in sorted(parts)]).reshape(window.shape)


def _rows(pieces: PieceTable) -> list[PieceRow]:
    columns = (pieces.cell, pieces.part, pieces.parts, pieces.sender, pieces.receiver)
    rows: list[PieceRow] = np.stack(columns, axis=1).tolist()
    return rows
