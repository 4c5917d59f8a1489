"""The tiles of two shardings of one tensor: the boxes between the cuts of both.

A split of a dim of size K over n devices cuts it at 0 = c_0 <= c_1 <= ... <= c_n = K; shard g holds [c_g, c_(g+1)).
By the block rule c_g = min(g * S, K) with S = ceil(K / n), so that with floor division

    element i  <->  (shard i // S, local i % S);        shard g, local k  <->  element g * S + k

(the ceil-div maps of the mesh dialect's resharding note; with offsets, the last cut at or before i takes the place of
i // S). The two maps composed tell where an element goes from one sharding to another: local element k of shard g goes
to shard (g * S + k) // T, at the place (g * S + k) % T, where T is the target's block.

Both sets of cuts together divide a dim into intervals, each within one source shard and one target shard. The products
of the intervals over the dims are the *tiles*. A source shard and a target shard share at most one tile, from the later
of their starts to the earlier of their stops. A tile stays on a device that holds its source shard and wants its target
shard. Every other device that wants it has to receive it, however it is sent. The pattern of cuts of two block sizes S
and T repeats every S * T / gcd(S, T) elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.errors import InvalidSharding
from planner.ir.mesh import Mesh
from planner.ir.sharding import Shape, Sharding, block_bounds, shard_bounds

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Grid:
    """The cuts of a sharding along every dim: shard (g0, g1, ...) holds [cuts[d][g_d], cuts[d][g_d + 1])."""

    cuts: tuple[Integers, ...]

    @classmethod
    def of(cls, sharding: Sharding, shape: Shape, mesh: Mesh) -> Grid:
        """Return the cuts of a sharding.

        Raises InvalidSharding where the tensor cannot have the sharding, or where it is partial or has halos.
        """
        full = _check_split_only(sharding, shape, mesh)
        offsets = dict(zip(full.split_dims, full.sharded_dims_offsets, strict=False))
        cuts = []
        for dim, (size, axes) in enumerate(zip(shape, full.split_axes, strict=True)):
            parts = mesh.group_size(axes)
            start, _ = block_bounds(size, parts, np.arange(parts + 1))
            cuts.append(np.array(offsets.get(dim, start), np.int64))
        return cls(tuple(cuts))

    def locate(self, element: Integers) -> tuple[Integers, Integers]:
        """Return the shards of elements and their places in them, `[..., dims]` each.

        Raises InvalidSharding for an element outside the tensor.
        """
        self._check(element, [cut[-1] for cut in self.cuts], "element")
        shard = _along_dims([np.searchsorted(cut, i, "right") - 1 for cut, i in self._by_dim(element)], element)
        return shard, element - self._starts(shard)

    def element(self, shard: Integers, local: Integers) -> Integers:
        """Return the elements at places in shards, `[..., dims]`.

        Raises InvalidSharding for a shard or a place that does not exist.
        """
        self._check(shard, [len(cut) - 1 for cut in self.cuts], "shard")
        sizes = self._starts(shard + 1) - self._starts(shard)
        self._check(local, list(np.moveaxis(sizes, -1, 0)), "place in the shard")
        return self._starts(shard) + local

    def _starts(self, shard: Integers) -> Integers:
        return _along_dims([cut[at] for cut, at in self._by_dim(shard)], shard)

    def _by_dim(self, index: Integers) -> list[tuple[Integers, Integers]]:
        return list(zip(self.cuts, np.moveaxis(index, -1, 0), strict=True))

    def _check(self, index: Integers, limits: Sequence[ArrayLike], what: str) -> None:
        """Raise InvalidSharding for an index out of range; numpy would count a negative one from the end."""
        for dim, (limit, (_, at)) in enumerate(zip(limits, self._by_dim(index), strict=True)):
            bound = np.broadcast_to(limit, at.shape)
            wrong = (at < 0) | (at >= bound)
            if wrong.any():
                got, wanted = int(at[wrong][0]), f"0 or more, below {bound[wrong][0]}"
                raise InvalidSharding(f"{what} out of range", where=f"dim {dim}", got=got, wanted=wanted)


@dataclass(frozen=True, eq=False, slots=True)
class Tiles:
    """Tiles in row-major order, none of them empty.

    start, stop     bounds in elements of the tensor, `[tiles, dims]`
    source, target  index of the shard that contains the tile, `[tiles, dims]`
    """

    start: Integers
    stop: Integers
    source: Integers
    target: Integers

    @classmethod
    def intersect(cls, source: Grid, target: Grid) -> Tiles:
        """Return the tiles of two grids over one tensor."""
        cuts = [np.union1d(*pair) for pair in zip(source.cuts, target.cuts, strict=True)]
        start, stop = _product([cut[:-1] for cut in cuts]), _product([cut[1:] for cut in cuts])
        return cls(start, stop, source.locate(start)[0], target.locate(start)[0])

    @property
    def elements(self) -> Integers:
        """The number of elements of each tile, `[tiles]`."""
        sizes: Integers = (self.stop - self.start).prod(axis=1)
        return sizes


def cut_period(source_block: int, target_block: int) -> int:
    """Return the number of elements after which the cuts of two block sizes repeat."""
    return math.lcm(source_block, target_block)


def shard_indices(sharding: Sharding, shape: Shape, mesh: Mesh) -> Integers:
    """Return the index of the shard that each device holds, `[devices, dims]`."""
    full = _check_split_only(sharding, shape, mesh)
    return _along_dims([mesh.group_index(axes) for axes in full.split_axes], np.empty((mesh.devices, len(shape))))


def count_kept_elements(source: Sharding, target: Sharding, shape: Shape, *, mesh: Mesh) -> Integers:
    """Count the elements of its target shard that each device holds already, `[devices]`."""
    held, wanted = (shard_bounds(_check_split_only(each, shape, mesh), shape, mesh) for each in (source, target))
    common = np.minimum(held[..., 1], wanted[..., 1]) - np.maximum(held[..., 0], wanted[..., 0])
    kept: Integers = np.maximum(common, 0).prod(axis=1)
    return kept


def count_wanted_elements(target: Sharding, shape: Shape, mesh: Mesh) -> Integers:
    """Count the elements of the target shard of each device, `[devices]`."""
    bounds = shard_bounds(_check_split_only(target, shape, mesh), shape, mesh)
    wanted: Integers = (bounds[..., 1] - bounds[..., 0]).prod(axis=1)
    return wanted


def min_received_elements(source: Sharding, target: Sharding, shape: Shape, *, mesh: Mesh) -> Integers:
    """Return the fewest elements that each device can receive, `[devices]`: what it wants and does not hold."""
    return count_wanted_elements(target, shape, mesh) - count_kept_elements(source, target, shape, mesh=mesh)


def _check_split_only(sharding: Sharding, shape: Shape, mesh: Mesh) -> Sharding:
    full = sharding.checked(shape, mesh)
    if full.partial or full.halo_sizes:
        raise InvalidSharding("tiles of a tensor that is partial or has halos", got=str(full), wanted="dims split only")
    return full


def _product(parts: list[Integers]) -> Integers:
    """Return every combination of one entry per dim, `[product of lengths, dims]`; the last dim varies fastest."""
    counts = [len(each) for each in parts]
    place = np.indices(counts).reshape(len(parts), math.prod(counts))
    return _along_dims([each[at] for each, at in zip(parts, place, strict=True)], place.T)


def _along_dims(columns: Sequence[Integers], like: NDArray[Any]) -> Integers:
    """Stack one array per dim along a last dim, in the shape of `like`."""
    # np.stack needs at least one array, and a tensor may have no dims.
    stacked = np.empty(like.shape, np.int64)
    for dim, column in enumerate(columns):
        stacked[..., dim] = column
    return stacked
