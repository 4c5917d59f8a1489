"""Count what the busiest device of every exchange between many shardings moves, device by device.

The numbers are those of `planner.reshard.traffic`, for any blocks, halos and offsets. Time and memory grow with
sources * targets * devices * dims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.ir.mesh import Mesh
from planner.ir.sharding import Shape, Sharding
from planner.reshard.dim_splits import DimSplit, DimSplits, count_copies, split_bounds, split_intervals, unused_axes

Integers = NDArray[np.int64]
MAX_CHUNK_ELEMENTS = 1 << 18
"""Elements of the largest temporary array."""
MAX_CACHED_DIMS = 8


@dataclass(frozen=True, slots=True, eq=False)
class PairCounts:
    """What the busiest device of every exchange moves.

    received    [sources, targets]: elements that a device receives
    sent_total  [sources, targets]: elements that all holders of one block send together
    messages    [sources, targets]: messages that a device receives
    holders     [sources]: devices that hold the same block
    """

    received: Integers
    sent_total: Integers
    messages: Integers
    holders: Integers


def count_by_device(
    sources: tuple[Sharding, ...], targets: tuple[Sharding, ...], shape: Shape, *, mesh: Mesh
) -> PairCounts:
    rows = max(1, MAX_CHUNK_ELEMENTS // max(1, 3 * len(targets) * mesh.devices))
    ends = [DimSplits.of(each, len(shape)) for each in (sources, targets)]
    dims = zip(ends[0].splits, ends[1].splits, shape, strict=True)
    pairs = [_shared_lengths(source, target, size, mesh) for source, target, size in dims]
    wanted = _wanted_elements(ends[1], shape, mesh)
    starts = range(0, len(sources), rows)
    parts = [
        _count_footprints(ends[0].rows(start, start + rows), ends[1], pairs, wanted=wanted, mesh=mesh)
        for start in starts
    ]
    received, owed, messages = (np.concatenate(part) for part in zip(*parts, strict=True))
    return PairCounts(received, owed, messages, np.array([count_copies(each, mesh) for each in sources], np.int64))


def _count_footprints(
    source: DimSplits, target: DimSplits, pairs: Sequence[_SharedLengths], *, wanted: Integers, mesh: Mesh
) -> tuple[Integers, Integers, Integers]:
    """Return elements received, elements owed and messages of the busiest devices, `[sources, targets]` each."""
    kept, met, demanded = (
        _multiply_dims([each[which] for each in pairs], source, target, mesh=mesh)
        for which in range(len(_SharedLengths._fields))
    )
    copies = np.array([count_copies(each, mesh) for each in target.shardings], np.int64)[None, :, None]
    received = (wanted - kept).max(axis=2)
    met -= kept > 0
    messages = (met * (wanted > 0)).max(axis=2)
    return received, _elements_owed(demanded * copies, kept, source.shardings, mesh=mesh).max(axis=2), messages


def _multiply_dims(along: Sequence[Integers], source: DimSplits, target: DimSplits, *, mesh: Mesh) -> Integers:
    """Multiply along the dims, `[sources, targets, devices]`; `[sources, 1, devices]` where no target counts."""
    wide = len(target.shardings) if not along or any(each.shape[1] > 1 for each in along) else 1
    product = np.ones((len(source.shardings), wide, mesh.devices), np.int64)
    for each, before, after in zip(along, source.split_index, target.split_index, strict=True):
        product *= each[before[:, None], after[None, :] if each.shape[1] > 1 else 0]
    return product


def _wanted_elements(target: DimSplits, shape: Shape, mesh: Mesh) -> Integers:
    """Return the elements that each device wants, `[targets, devices]`."""
    wanted = np.ones((len(target.shardings), mesh.devices), np.int64)
    for splits, number, size in zip(target.splits, target.split_index, shape, strict=True):
        low, high = np.stack([split_bounds(split, size, mesh) for split in splits], axis=1)
        wanted *= (high - low)[number]
    return wanted


class _SharedLengths(NamedTuple):
    """Lengths along a dim, `[source splits, target splits, devices]`: what is kept, source parts met, and demanded.

    The demanded length is the same for all targets, `[source splits, 1, devices]`, where no target has a halo.
    """

    kept: Integers
    parts_met: Integers
    demanded: Integers


@lru_cache(maxsize=MAX_CACHED_DIMS)
def _shared_lengths(
    sources: tuple[DimSplit, ...], targets: tuple[DimSplit, ...], size: int, mesh: Mesh
) -> _SharedLengths:
    low, high = np.stack([split_bounds(split, size, mesh) for split in sources], axis=1)[:, :, None]
    first, last = np.stack([split_bounds(split, size, mesh) for split in targets], axis=1)
    kept = np.maximum(np.minimum(high, last) - np.maximum(low, first), 0)
    parts = [split_intervals(split, size, mesh) for split in sources]
    met = [np.searchsorted(starts, last, "left") - np.searchsorted(stops, first, "right") for starts, stops in parts]
    demanded = high - low
    if any(halo for _, halo, _ in targets):
        demanded = np.concatenate(
            [_demanded_lengths(low, high, split, size=size, mesh=mesh) for split in targets], axis=1
        )
    return _SharedLengths(kept, np.stack(met), demanded)


def _demanded_lengths(low: Integers, high: Integers, target: DimSplit, *, size: int, mesh: Mesh) -> Integers:
    """Return the demanded length, summed over the parts of a target, `[source splits, 1, devices]`."""
    if not target[1]:  # without a halo the parts do not overlap
        return high - low
    parts = split_intervals(target, size, mesh).T
    wants = (np.maximum(np.minimum(high, stop) - np.maximum(low, start), 0) for start, stop in parts)
    return sum(wants, np.zeros_like(low))


def _elements_owed(demanded: Integers, kept: Integers, sources: Sequence[Sharding], *, mesh: Mesh) -> Integers:
    """Return the elements that the holders of each box send in all: what is demanded less what they keep."""
    unused = [unused_axes(each, mesh) for each in sources]
    for axes in dict.fromkeys(unused):
        rows = [row for row, own in enumerate(unused) if own == axes]
        grid = kept[rows].reshape(len(rows), -1, *mesh.shape)
        held = np.broadcast_to(grid.sum(axis=tuple(axis + 2 for axis in axes), keepdims=True), grid.shape)
        demanded[rows] -= held.reshape(len(rows), -1, mesh.devices)
    return demanded
