"""The tile exchange on arrays: `planner.model.exchange` says who sends what to whom, here it is done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.model.exchange import Pieces, Transfers, part_bounds
from planner.run.fabric import Wire
from planner.run.transfer import Reducer, combined

Array = Any
Integers = NDArray[np.int64]
Row = list[int]
"""cell, part, parts, sender, receiver"""
Part = tuple[int, int, int]
"""A cell, one of the parts of it, and the device that reduces the part."""


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """An array a device that is here; their first elements are those at `origins` [devices, dims] of the tensor."""

    arrays: Sequence[Array] | Mapping[int, Array]
    origins: Integers

    def window(self, box: Integers, device: int) -> Array:
        """The part of a device's array that is a box of the tensor."""
        local = (box - self.origins[device][:, None]).tolist()
        return self.arrays[device][(..., *(slice(start, stop) for start, stop in local))]


def exchange_tiles(xp: Any, wire: Wire, reducer: Reducer, done: Transfers, held: Placed, wanted: Placed) -> None:
    """Fill what is wanted from what is held, of the devices here; what no tile reaches stays as it was."""
    if done.ends.terms > 1:
        _share(xp, wire, done, _reduced(xp, wire, reducer, done, held), wanted)
        return
    for device, box in _kept(done, wire.here):
        wanted.window(box, device)[...] = held.window(box, device)
    for (cell, _, _, _, receiver), flat in _sent(xp, wire, done, done.copy, lambda row: _part(done, held, row)):
        window = wanted.window(done.cells[cell], receiver)
        window[...] = flat.reshape(window.shape)


def _sent(
    xp: Any, wire: Wire, done: Transfers, pieces: Pieces, take: Callable[[Row], Array]
) -> Iterator[tuple[Row, Array]]:
    """Every piece for a device here, with its flat elements. What one device sends another is one message."""
    here, rows = set(wire.here), _rows(pieces)
    messages: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in rows:
        messages[row[3], row[4]].append(row)
    sent: list[list[Array | None]] = [[None] * wire.members for _ in wire.here]
    for (sender, receiver), listed in messages.items():
        if sender in here:
            sent[wire.here.index(sender)][receiver] = xp.concatenate([take(row) for row in listed])
    got = wire.swap(sent)
    for (sender, receiver), listed in messages.items():
        if receiver in here:
            flat, sizes = got[wire.here.index(receiver)][sender], [_part_size(done, row) for row in listed]
            yield from zip(listed, _cut(flat, sizes), strict=True)


def _cut(flat: Array, sizes: Sequence[int]) -> list[Array]:
    ends = list(accumulate(sizes, initial=0))
    return [flat[start:stop] for start, stop in pairwise(ends)]


def _part_size(done: Transfers, row: Row) -> int:
    start, stop = part_bounds(done.sizes[row[0]], row[1], row[2])
    return int(stop - start)


def _part(done: Transfers, held: Placed, row: Row, device: int | None = None) -> Array:
    """The part of a flattened cell, as its sender (or another device) holds it."""
    cell, part, parts, sender, _ = row
    start, stop = part_bounds(done.sizes[cell], part, parts)
    flat = held.window(done.cells[cell], sender if device is None else device).reshape(-1)
    return flat[int(start) : int(stop)]


def _kept(done: Transfers, here: Sequence[int]) -> list[tuple[int, Integers]]:
    """What every device here holds of what it wants."""
    held, wanted = done.ends.held, done.ends.wanted
    low, high = np.maximum(held[..., 0], wanted[..., 0]), np.minimum(held[..., 1], wanted[..., 1])
    boxes = np.stack([low, high], axis=-1)
    kept = (low < high).all(axis=1) & done.ends.holds & done.ends.wants
    return [(device, boxes[device]) for device in here if kept[device]]


def _reduced(xp: Any, wire: Wire, reducer: Reducer, done: Transfers, held: Placed) -> dict[Part, Array]:
    """Every part that a device here reduces, its terms combined in order."""
    terms: dict[Part, dict[int, Array]] = defaultdict(dict)
    for row, flat in _sent(xp, wire, done, done.reduce, lambda row: _part(done, held, row)):
        cell, part, _, sender, device = row
        found, own = terms[cell, part, device], int(done.ends.term[device])
        found[int(done.ends.term[sender])] = flat
        if own not in found and _holds(done, cell, device):
            found[own] = _part(done, held, row, device)
    return {
        key: combined(xp, reducer, [found[term] for term in range(done.ends.terms)]) for key, found in terms.items()
    }


def _holds(done: Transfers, cell: int, device: int) -> bool:
    box, held = done.cells[cell], done.ends.held[device]
    return bool(done.ends.holds[device] and (held[:, 0] <= box[:, 0]).all() and (box[:, 1] <= held[:, 1]).all())


def _share(xp: Any, wire: Wire, done: Transfers, totals: dict[Part, Array], wanted: Placed) -> None:
    """Every device here that wants a cell joins its parts."""
    joined: dict[tuple[int, int], dict[int, Array]] = defaultdict(dict)
    for (cell, part, reducer), total in totals.items():
        joined[cell, reducer][part] = total
    for (cell, part, _, _, receiver), flat in _sent(
        xp, wire, done, done.copy, lambda row: totals[row[0], row[1], row[3]]
    ):
        joined[cell, receiver][part] = flat
    for (cell, device), parts in joined.items():
        window = wanted.window(done.cells[cell], device)
        window[...] = xp.concatenate([parts[part] for part in sorted(parts)]).reshape(window.shape)


def _rows(pieces: Pieces) -> list[Row]:
    columns = (pieces.cell, pieces.part, pieces.parts, pieces.sender, pieces.receiver)
    rows: list[Row] = np.stack(columns, axis=1).tolist()
    return rows
