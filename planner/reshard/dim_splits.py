"""The distinct splits of each dim among many shardings of one tensor, and which of them each sharding has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes, Sharding, held_bounds

Integers = NDArray[np.int64]
DimSplit = tuple[Axes, tuple[int, ...], tuple[int, ...]]
"""The split of a dim: its mesh axes, its halo (empty without one), and its halo or offsets."""
MAX_CACHED_SPLITS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class DimSplits:
    """The distinct splits of every dim, and [shardings] per dim the number of the split that a sharding has."""

    shardings: Sequence[Sharding]
    splits: tuple[tuple[DimSplit, ...], ...]
    split_index: tuple[Integers, ...]

    @classmethod
    def of(cls, shardings: Sequence[Sharding], rank: int) -> DimSplits:
        ways, numbers = [], []
        for dim in range(rank):
            found: dict[DimSplit, int] = {}
            numbers.append(
                np.array([found.setdefault(split_along(each, dim), len(found)) for each in shardings], np.int64)
            )
            ways.append(tuple(found))
        return cls(shardings, tuple(ways), tuple(numbers))

    def rows(self, start: int, stop: int) -> DimSplits:
        return DimSplits(self.shardings[start:stop], self.splits, tuple(way[start:stop] for way in self.split_index))


def split_along(sharding: Sharding, dim: int) -> DimSplit:
    """Return the split of one dim."""
    cut = sharding.halo_or_offsets(dim)
    return sharding.split_axes[dim], () if sharding.sharded_dims_offsets else cut, cut


@lru_cache(maxsize=MAX_CACHED_SPLITS)
def split_bounds(way: DimSplit, size: int, mesh: Mesh) -> Integers:
    """Return [2, devices]: start and stop of every device's block along a dim, halo included, clipped to the dim."""
    axes, halo, cut = way
    along = Sharding((axes,), halo_sizes=halo, sharded_dims_offsets=() if halo or not cut else (cut,))
    return np.ascontiguousarray(held_bounds(along, (size,), mesh)[:, 0].clip(0, size).T)


@lru_cache(maxsize=MAX_CACHED_SPLITS)
def split_intervals(way: DimSplit, size: int, mesh: Mesh) -> Integers:
    """Return [2, parts]: the distinct intervals that devices hold, in rising order, without empty ones."""
    bounds = split_bounds(way, size, mesh)
    low, high = bounds[:, bounds[0] < bounds[1]]
    if not way[1]:  # no two of them overlap
        return np.stack([np.unique(low), np.unique(high)])
    return np.unique(np.stack([low, high]), axis=1)


def unused_axes(sharding: Sharding, mesh: Mesh) -> tuple[int, ...]:
    """Return the mesh axes over which a sharding holds copies."""
    used = {axis for axes in (*sharding.split_axes, sharding.partial) for axis in axes}
    return tuple(axis for axis in range(len(mesh.shape)) if axis not in used)


def count_copies(sharding: Sharding, mesh: Mesh) -> int:
    """Return how many devices hold every block."""
    return mesh.group_size(unused_axes(sharding, mesh))
