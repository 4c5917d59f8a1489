"""update_halo on arrays: fills every device's halos from its neighbours' cores, corners from the diagonal ones.

Where there is no neighbour the halo stays as the destination held it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from planner.errors import RunFailed
from planner.run.transport import Communicator

Array = Any
Halos = Sequence[tuple[int, int]]


def update_halos(
    wire: Communicator,
    sources: Sequence[Array],
    into: Sequence[Array],
    *,
    grid: Sequence[int],
    old: Halos,
    new: Halos,
    where: str,
) -> list[Array]:
    """Return the destinations with cores and halos written.

    Members stand row-major on `grid`, which has a number of devices per dim. `old` and `new` are the halos of sources
    and destinations.
    """
    cores = [_core(source, old) for source in sources]
    results, sent = [array.copy() for array in into], [[None] * wire.members for _ in sources]
    for member, sides, other in _pairs(wire.members, grid):
        _check(sides, cores[member], cores[other], halos=new, where=f"{where}, members {member} and {other}")
        strip = [_core_strip(*each) for each in zip(sides, cores[other].shape, new, strict=True)]
        # Strips are cut from cores alone, corners included, so one exchange fills all halos.
        sent[other][member] = cores[other][tuple(strip)]
    arrived = wire.exchange(sent)
    for member, sides, other in _pairs(wire.members, grid):
        place = [_halo_place(*each) for each in zip(sides, cores[member].shape, new, strict=True)]
        results[member][tuple(place)] = arrived[member][other]
    return results


def _pairs(members: int, grid: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...], int]]:
    """List every member with each side of it and the member on that side."""
    return ((member, sides, other) for member in range(members) for sides, other in _neighbours(member, grid))


def _core(source: Array, halos: Halos) -> Array:
    return source[tuple(slice(before, size - after) for size, (before, after) in zip(source.shape, halos, strict=True))]


def _neighbours(member: int, grid: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """List (side of every dim, member there) for the member itself and those beside it that exist."""
    place = np.unravel_index(member, grid) if grid else ()
    for sides in product(*((-1, 0, 1) if size > 1 else (0,) for size in grid)):
        index = [int(at) + side for at, side in zip(place, sides, strict=True)]
        if all(0 <= at < size for at, size in zip(index, grid, strict=True)):
            yield sides, int(np.ravel_multi_index(index, grid))


def _core_strip(side: int, core: int, halo: tuple[int, int]) -> slice:
    """Return the slice of the core on that side that is needed: its end if it is before us, its beginning if after."""
    before, after = halo
    return {-1: slice(core - before, core), 0: slice(0, core), 1: slice(0, after)}[side]


def _halo_place(side: int, core: int, halo: tuple[int, int]) -> slice:
    before, after = halo
    start = {-1: 0, 0: before, 1: before + core}[side]
    return slice(start, start + {-1: before, 0: core, 1: after}[side])


def _check(sides: Sequence[int], mine: Array, theirs: Array, *, halos: Halos, where: str) -> None:
    """Raise RunFailed unless cores beside each other are alike and the core on each side covers the halo."""
    for dim, (side, size, (before, after)) in enumerate(zip(sides, theirs.shape, halos, strict=True)):
        if side == 0 and size != mine.shape[dim]:
            raise RunFailed(f"cores differ in dim {dim}", where=where, got=size, wanted=mine.shape[dim])
        width = {-1: before, 0: 0, 1: after}[side]
        if width > size:
            raise RunFailed(
                f"halo of dim {dim} is wider than the neighbour's core",
                where=where,
                got=width,
                wanted=f"at most {size}",
            )
