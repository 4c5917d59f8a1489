"""What two shardings of one tensor have in common: the tiles between the cuts of both.

A split of a dim of size K over n devices cuts it at 0 = c_0 <= c_1 <= ... <= c_n = K; shard g holds [c_g, c_(g+1)).
By the block rule c_g = min(g * S, K) with S = ceil(K / n), so that with floor division

    element i  <->  (shard i // S, local i % S);        shard g, local k  <->  element g * S + k

(the ceil-div maps of the mesh dialect's resharding note; with offsets the cut at or before i stands for i // S).
From one sharding to another an element goes by the maps of both, composed: to the shard (g * S + k) // T at the
place (g * S + k) % T, where T is the target's block.

Both sets of cuts together part the dim into intervals of one source and one target shard each, and the products of
intervals over the dims are the *tiles*. For a source shard and a target shard there is at most one: from the later
of their starts to the earlier of their stops. A tile stays on a device that holds its source shard and wants its
target shard, and moves to every other device that wants it: what it must receive, however it is sent. Two block
sizes S and T cut alike again after every S * T / gcd(S, T) elements.
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
        """Raises InvalidSharding where the tensor cannot have the sharding, or it is partial or has halos."""
        full = _check_split_only(sharding, shape, mesh)
        offsets = dict(zip(full.split_dims, full.sharded_dims_offsets, strict=False))
        cuts = []
        for dim, (size, axes) in enumerate(zip(shape, full.split_axes, strict=True)):
            parts = mesh.group_size(axes)
            start, _ = block_bounds(size, parts, np.arange(parts + 1))
            cuts.append(np.array(offsets.get(dim, start), np.int64))
        return cls(tuple(cuts))

    def locate(self, element: Integers) -> tuple[Integers, Integers]:
        """[..., dims]: the shards of elements, and where in them they are. Raises InvalidSharding beyond a dim."""
        self._check(element, [cut[-1] for cut in self.cuts], "element")
        shard = _along_dims([np.searchsorted(cut, i, "right") - 1 for cut, i in self._by_dim(element)], element)
        return shard, element - self._starts(shard)

    def element(self, shard: Integers, local: Integers) -> Integers:
        """[..., dims]: the elements at places in shards. Raises InvalidSharding for a shard or place that is not."""
        self._check(shard, [len(cut) - 1 for cut in self.cuts], "shard")
        sizes = self._starts(shard + 1) - self._starts(shard)
        self._check(local, list(np.moveaxis(sizes, -1, 0)), "place in the shard")
        return self._starts(shard) + local

    def _starts(self, shard: Integers) -> Integers:
        return _along_dims([cut[at] for cut, at in self._by_dim(shard)], shard)

    def _by_dim(self, index: Integers) -> list[tuple[Integers, Integers]]:
        return list(zip(self.cuts, np.moveaxis(index, -1, 0), strict=True))

    def _check(self, index: Integers, limits: Sequence[ArrayLike], what: str) -> None:
        """An index out of range is an error, never wrapped."""
        for dim, (limit, (_, at)) in enumerate(zip(limits, self._by_dim(index), strict=True)):
            bound = np.broadcast_to(limit, at.shape)
            wrong = (at < 0) | (at >= bound)
            if wrong.any():
                got, wanted = int(at[wrong][0]), f"0 or more, below {bound[wrong][0]}"
                raise InvalidSharding(f"{what} out of range", where=f"dim {dim}", got=got, wanted=wanted)


@dataclass(frozen=True, eq=False, slots=True)
class Tiles:
    """[tiles, dims] each: bounds in elements of the tensor, source and target shard; row-major, none empty."""

    start: Integers
    stop: Integers
    source: Integers
    target: Integers

    @classmethod
    def intersect(cls, source: Grid, target: Grid) -> Tiles:
        """The tiles of two grids over one tensor."""
        cuts = [np.union1d(*pair) for pair in zip(source.cuts, target.cuts, strict=True)]
        start, stop = _product([cut[:-1] for cut in cuts]), _product([cut[1:] for cut in cuts])
        return cls(start, stop, source.locate(start)[0], target.locate(start)[0])

    @property
    def elements(self) -> Integers:
        """[tiles]: the size of every tile."""
        sizes: Integers = (self.stop - self.start).prod(axis=1)
        return sizes


def cut_period(source_block: int, target_block: int) -> int:
    """Elements after which blocks of two sizes cut a dim alike again."""
    return math.lcm(source_block, target_block)


def shard_indices(sharding: Sharding, shape: Shape, mesh: Mesh) -> Integers:
    """[devices, dims]: which shard every device holds."""
    full = _check_split_only(sharding, shape, mesh)
    return _along_dims([mesh.group_index(axes) for axes in full.split_axes], np.empty((mesh.devices, len(shape))))


def count_kept_elements(source: Sharding, target: Sharding, shape: Shape, *, mesh: Mesh) -> Integers:
    """[devices]: elements of its target shard that a device holds already: the tile of its two shards."""
    held, wanted = (shard_bounds(_check_split_only(each, shape, mesh), shape, mesh) for each in (source, target))
    common = np.minimum(held[..., 1], wanted[..., 1]) - np.maximum(held[..., 0], wanted[..., 0])
    kept: Integers = np.maximum(common, 0).prod(axis=1)
    return kept


def count_wanted_elements(target: Sharding, shape: Shape, mesh: Mesh) -> Integers:
    """[devices]: elements of the target shard."""
    bounds = shard_bounds(_check_split_only(target, shape, mesh), shape, mesh)
    wanted: Integers = (bounds[..., 1] - bounds[..., 0]).prod(axis=1)
    return wanted


def min_received_elements(source: Sharding, target: Sharding, shape: Shape, *, mesh: Mesh) -> Integers:
    """[devices]: the fewest elements a device can receive; never more than its target shard has."""
    return count_wanted_elements(target, shape, mesh) - count_kept_elements(source, target, shape, mesh=mesh)


def _check_split_only(sharding: Sharding, shape: Shape, mesh: Mesh) -> Sharding:
    full = sharding.checked(shape, mesh)
    if full.partial or full.halo_sizes:
        raise InvalidSharding("tiles of a tensor that is partial or has halos", got=str(full), wanted="dims split only")
    return full


def _product(parts: list[Integers]) -> Integers:
    """[product of lengths, dims]: every combination, the last dim fastest."""
    counts = [len(each) for each in parts]
    place = np.indices(counts).reshape(len(parts), math.prod(counts))
    return _along_dims([each[at] for each, at in zip(parts, place, strict=True)], place.T)


def _along_dims(columns: Sequence[Integers], like: NDArray[Any]) -> Integers:
    """[..., dims] of one array per dim, in the shape of another; a tensor may have no dims."""
    made = np.empty(like.shape, np.int64)
    for dim, column in enumerate(columns):
        made[..., dim] = column
    return made
