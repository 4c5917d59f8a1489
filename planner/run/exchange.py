"""The tile exchange on arrays: `planner.model.exchange` says who sends what to whom, here it is done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.model.exchange import Pieces, Transfers, part_bounds
from planner.run.transfer import Reducer, Wire

Array = Any
Integers = NDArray[np.int64]
Part = tuple[int, int, int]
"""A cell, one of the parts of it, and the device that reduces the part."""


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """An array a device; their first elements are those at `origins` [devices, dims] of the tensor."""

    arrays: Sequence[Array]
    origins: Integers

    def window(self, box: Integers, device: int) -> Array:
        """The part of a device's array that is a box of the tensor."""
        local = (box - self.origins[device][:, None]).tolist()
        return self.arrays[device][(..., *(slice(start, stop) for start, stop in local))]


def exchange_tiles(xp: Any, wire: Wire, reducer: Reducer, done: Transfers, held: Placed, wanted: Placed) -> None:
    """Fill what is wanted from what is held; what no tile reaches stays as it was."""
    if done.ends.terms > 1:
        _share(xp, wire, done, _reduced(wire, reducer, done, held), wanted)
        return
    for device, box in _kept(done):
        wanted.window(box, device)[...] = held.window(box, device)
    for cell, _, _, sender, receiver in _rows(done.copy):
        box = done.cells[cell]
        wanted.window(box, receiver)[...] = wire.take(held.window(box, sender), sender, receiver)


def _kept(done: Transfers) -> list[tuple[int, Integers]]:
    """What every device holds of what it wants."""
    held, wanted = done.ends.held, done.ends.wanted
    low, high = np.maximum(held[..., 0], wanted[..., 0]), np.minimum(held[..., 1], wanted[..., 1])
    boxes = np.stack([low, high], axis=-1)
    kept = (low < high).all(axis=1) & done.ends.holds & done.ends.wants
    return [(int(device), boxes[device]) for device in np.flatnonzero(kept)]


def _reduced(wire: Wire, reducer: Reducer, done: Transfers, held: Placed) -> dict[Part, Array]:
    """Every part, its terms combined in order."""
    terms: dict[Part, dict[int, Array]] = defaultdict(dict)

    def part_of(cell: int, part: int, parts: int, device: int) -> Array:
        start, stop = part_bounds(done.sizes[cell], part, parts)
        return held.window(done.cells[cell], device).reshape(-1)[int(start) : int(stop)]

    for cell, part, parts, sender, device in _rows(done.reduce):
        found = terms[cell, part, device]
        found[int(done.ends.term[sender])] = wire.take(part_of(cell, part, parts, sender), sender, device)
        if (
            len(found) == done.ends.terms - 1
            and (own := int(done.ends.term[device])) not in found
            and _holds(done, cell, device)
        ):
            found[own] = part_of(cell, part, parts, device)
    return {key: _combined(reducer, [found[term] for term in range(done.ends.terms)]) for key, found in terms.items()}


def _holds(done: Transfers, cell: int, device: int) -> bool:
    box, held = done.cells[cell], done.ends.held[device]
    return bool(done.ends.holds[device] and (held[:, 0] <= box[:, 0]).all() and (box[:, 1] <= held[:, 1]).all())


def _combined(reducer: Reducer, terms: list[Array]) -> Array:
    total = terms[0]
    for term in terms[1:]:
        total = reducer.combine(total, term)
    return reducer.finish(total, len(terms))


def _share(xp: Any, wire: Wire, done: Transfers, totals: dict[Part, Array], wanted: Placed) -> None:
    """Every device that wants a cell joins its parts."""
    joined: dict[tuple[int, int], dict[int, Array]] = defaultdict(dict)
    for (cell, part, reducer), total in totals.items():
        joined[cell, reducer][part] = total
    for cell, part, _, sender, receiver in _rows(done.copy):
        joined[cell, receiver][part] = wire.take(totals[cell, part, sender], sender, receiver)
    for (cell, device), parts in joined.items():
        window = wanted.window(done.cells[cell], device)
        window[...] = xp.concatenate([parts[part] for part in sorted(parts)]).reshape(window.shape)


def _rows(pieces: Pieces) -> list[list[int]]:
    """cell, part, parts, sender, receiver of every piece."""
    columns = (pieces.cell, pieces.part, pieces.parts, pieces.sender, pieces.receiver)
    rows: list[list[int]] = np.stack(columns, axis=1).tolist()
    return rows
