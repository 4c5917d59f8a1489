"""Classes of devices of a mesh that hold and receive alike, so that each class is counted once.

A number per device is kept as a *grid*: an array with a dim for every mesh axis, of length 1 where the number does not
depend on the coordinate on that axis. For evenly split tensors most grids have one element; arithmetic broadcasts
them. Devices on which all grids of a program agree form a class.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from planner.ir.collectives import Collective, count_received_elements
from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes, Shape, Sharding, shard_shapes

Integers = NDArray[np.int64]
MAX_CACHED_GRIDS = 1 << 12


@dataclass(frozen=True, eq=False)
class DeviceClasses:
    """The class of every device, as a grid, and the first device of every class, in the order of these."""

    mesh: Mesh
    index: Integers
    first: Integers

    @classmethod
    def of(cls, grids: Iterable[Integers], mesh: Mesh) -> DeviceClasses:
        """Return the classes of devices on which every grid agrees."""
        index = np.zeros((1,) * len(mesh.shape), np.int64)
        for grid in grids:
            if grid.size > 1:
                values = np.unique(grid, return_inverse=True)[1].reshape(grid.shape)
                # Renumber after every grid, so that the pairs stay below devices squared.
                pairs = index * (int(values.max()) + 1) + values
                index = np.unique(pairs, return_inverse=True)[1].reshape(pairs.shape)
        place, index = np.unique(index, return_index=True, return_inverse=True)[1:]
        order = np.argsort(place)
        shape = np.broadcast_shapes(*(grid.shape for grid in grids), (1,) * len(mesh.shape))
        return cls(mesh, np.argsort(order)[index].reshape(shape), place[order])

    def __len__(self) -> int:
        return len(self.first)

    def pick(self, grid: Integers) -> Integers:
        """Return the number of every class: `[classes]`."""
        return np.broadcast_to(grid, self.index.shape).reshape(-1)[self.first]

    def first_device(self, number: int) -> int:
        """Return the first device of a class."""
        place = np.unravel_index(self.first[number], self.index.shape)
        return int(np.ravel_multi_index(place, self.mesh.shape))

    def find(self, device: int) -> int:
        """Return the class of a device."""
        place = np.unravel_index(device, self.mesh.shape)
        coordinates = tuple(min(int(axis), size - 1) for axis, size in zip(place, self.index.shape, strict=True))
        return int(self.index[coordinates])

    def expand(self, rows: Integers) -> Integers:
        """Return `[..., devices]` from `[..., classes]`."""
        expanded: Integers = rows[..., np.broadcast_to(self.index, self.mesh.shape).reshape(-1)]
        return expanded


@lru_cache(maxsize=MAX_CACHED_GRIDS)
def held_elements(sharding: Sharding, shape: Shape, mesh: Mesh) -> Integers:
    """Count the elements of every device's shard, halos included, as a grid."""
    few = _Few.of((sharding,), shape, mesh, axes=())
    return few.to_grid(shard_shapes(few.ends[0], few.shape, few.mesh).prod(axis=1))


@lru_cache(maxsize=MAX_CACHED_GRIDS)
def received_elements(move: Collective, source: Sharding, shape: Shape, *, mesh: Mesh) -> Integers:
    """Count the elements that every device receives in a collective, as a grid."""
    few = _Few.of((source, move.target(source)), shape, mesh, axes=move.axes)
    same = move if move.to is None else replace(move, to=few.ends[1])
    return few.to_grid(count_received_elements(same, few.ends[0], few.shape, mesh=few.mesh))


@dataclass(frozen=True, slots=True)
class _Few:
    """Shardings of one block of every dim that all of them split alike and evenly.

    The mesh has one device along every axis that is then left over, so counting on it is cheap and the counts are the
    same.
    """

    ends: tuple[Sharding, ...]
    shape: Shape
    mesh: Mesh

    @classmethod
    def of(cls, ends: tuple[Sharding, ...], shape: Shape, mesh: Mesh, *, axes: Axes) -> _Few:
        if any((*each.halo_sizes, *each.sharded_dims_offsets) for each in ends):
            blocks = (1,) * len(shape)
        else:
            blocks = tuple(map(partial(_count_even_blocks, mesh=mesh), shape, *(each.split_axes for each in ends)))
        lists = (
            tuple(() if block > 1 else axes for block, axes in zip(blocks, each.split_axes, strict=True))
            for each in ends
        )
        few = tuple(replace(each, split_axes=split) for each, split in zip(ends, lists, strict=True))
        used = {axis for each in few for axes in (*each.split_axes, each.partial) for axis in axes} | set(axes)
        sizes = tuple(size // block for size, block in zip(shape, blocks, strict=True))
        kept = (axis if number in used else replace(axis, size=1) for number, axis in enumerate(mesh.axes))
        return cls(few, sizes, Mesh(tuple(kept), mesh.device))

    def to_grid(self, counted: Integers) -> Integers:
        """Return a grid from `[devices]`."""
        grid = counted.reshape(self.mesh.shape)
        alike = tuple(slice(1) for _ in grid.shape)
        return grid[alike] if (counted == counted[0]).all() else grid


def _count_even_blocks(size: int, *lists: Axes, mesh: Mesh) -> int:
    """Return into how many blocks of one size all shardings split a dim in the same way, otherwise 1."""
    parts = mesh.group_size(lists[0])
    return parts if size % parts == 0 and all(axes == lists[0] for axes in lists) else 1
