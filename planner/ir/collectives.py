"""Collectives as moves between shardings of one tensor (MLIR mesh dialect; the basis moves of its resharding note).

    all_gather      drops the tail (minor-most axes) of a dim's list
    all_slice       appends axes to a dim's list; nothing is sent
    all_to_all      takes the tail of one dim's list and appends it to another's
    all_reduce      drops partial axes
    reduce_scatter  drops partial axes and appends them to a dim's list
    exchange        leads to any sharding of the tensor (`planner.ir.redistribution`); never one of the basis

A move that changes a dim's list between A and A + t is exact only where the blocks nest: a block over A is the
union of its blocks over A + t. They do when A is empty, or ceil(K/|A|) = |t| ceil(K/(|A||t|)).

Bytes are what a device receives with ring algorithms; B = its input bytes, n = group size (all blocks even):
all_gather (n-1)B, reduce_scatter and all_to_all B(n-1)/n, all_reduce 2B(n-1)/n, all_slice 0.
Rings after Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH" (2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidSharding
from planner.ir.mesh import Mesh
from planner.ir.redistribution import differing_axes, plan_transfers
from planner.ir.sharding import Axes, Shape, Sharding, block_size, shard_bounds


class Kind(StrEnum):
    """Names of the collectives."""

    ALL_GATHER = "all_gather"
    ALL_SLICE = "all_slice"
    ALL_TO_ALL = "all_to_all"
    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    EXCHANGE = "exchange"


@dataclass(frozen=True, slots=True)
class Collective:
    """One move over the group of `axes`. `dim` gains or loses the axes; an all_to_all takes them from `source_dim`.

    An exchange leads `to` a sharding.
    """

    kind: Kind
    axes: Axes
    dim: int | None = None
    source_dim: int | None = None
    to: Sharding | None = None

    @classmethod
    def exchange(cls, source: Sharding, target: Sharding) -> Collective:
        return cls(Kind.EXCHANGE, differing_axes(source, target), to=target)

    def target(self, source: Sharding) -> Sharding:
        """The sharding after the move. Raises InvalidSharding when the source has not what the move takes."""
        if self.to is not None:
            return self.to
        if not self.axes:  # groups of one
            return source
        if source.halo_sizes or source.sharded_dims_offsets:
            raise InvalidSharding("no basis move of halos or offsets", where=str(self), got=str(source))
        split = list(source.split_axes)
        partial = source.partial
        if self.kind in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER):
            if not set(self.axes) <= set(partial):
                raise InvalidSharding("not partial over the axes", where=str(self), got=str(source))
            partial = tuple(axis for axis in partial if axis not in self.axes)
        taken = {Kind.ALL_GATHER: self.dim, Kind.ALL_TO_ALL: self.source_dim}.get(self.kind)
        if taken is not None:
            if split[taken][-len(self.axes) :] != self.axes:
                raise InvalidSharding("axes are not the tail of the dim", where=str(self), got=str(source))
            split[taken] = split[taken][: -len(self.axes)]
        if self.dim is not None and self.kind is not Kind.ALL_GATHER:
            split[self.dim] = (*split[self.dim], *self.axes)
        return Sharding(tuple(split), partial, source.reduction)

    def __str__(self) -> str:
        dims = "" if self.dim is None else f" dim {self.dim}"
        dims = dims if self.source_dim is None else f" dim {self.source_dim} -> {self.dim}"
        dims = dims if self.to is None else f" to {self.to}"
        return f"{self.kind} [{','.join(map(str, self.axes))}]{dims}"


def blocks_nest(size: int, outer: int, inner: int) -> bool:
    """Whether blocks over outer * inner devices tile the blocks over the outer ones."""
    return outer == 1 or block_size(size, outer) == inner * block_size(size, outer * inner)


def list_basis_moves(source: Sharding, shape: Shape, mesh: Mesh) -> list[tuple[Collective, Sharding]]:
    """Every exact basis move from a sharding, with where it leads.

    Several axes move at once where that is one collective (a tail gathered, a partial reduced) and, for the
    moves that append axes to a dim, also where one axis after another would leave blocks that do not nest.
    From halos or offsets there is none.
    """
    if source.halo_sizes or source.sharded_dims_offsets:
        return []
    found = [*_gathers(source), *_exchanges(source), *_reductions(source), *_slices(source, mesh)]
    return [
        (move, target)
        for move in found
        for target in [move.target(source)]
        if is_exact(move, source, target, shape=shape, mesh=mesh)
    ]


def _tails(source: Sharding) -> list[tuple[int, Axes]]:
    return [(dim, axes[-n:]) for dim, axes in enumerate(source.split_axes) for n in range(1, len(axes) + 1)]


def _gathers(source: Sharding) -> list[Collective]:
    return [Collective(Kind.ALL_GATHER, tail, dim) for dim, tail in _tails(source)]


def _exchanges(source: Sharding) -> list[Collective]:
    return [
        Collective(Kind.ALL_TO_ALL, tail, dim, taken)
        for taken, tail in _tails(source)
        for dim in range(len(source.split_axes))
        if dim != taken
    ]


def _axis_orders(axes: Axes) -> list[Axes]:
    return [order for n in range(1, len(axes) + 1) for order in permutations(axes, n)]


def _reductions(source: Sharding) -> list[Collective]:
    reduced = [
        Collective(Kind.ALL_REDUCE, order) for order in _axis_orders(source.partial) if list(order) == sorted(order)
    ]
    scattered = [
        Collective(Kind.REDUCE_SCATTER, order, dim)
        for order in _axis_orders(source.partial)
        for dim in range(len(source.split_axes))
    ]
    return reduced + scattered


def _slices(source: Sharding, mesh: Mesh) -> list[Collective]:
    used = {axis for axes in (*source.split_axes, source.partial) for axis in axes}
    free = tuple(axis for axis, size in enumerate(mesh.shape) if size > 1 and axis not in used)
    return [
        Collective(Kind.ALL_SLICE, order, dim) for order in _axis_orders(free) for dim in range(len(source.split_axes))
    ]


def is_exact(move: Collective, source: Sharding, target: Sharding, *, shape: Shape, mesh: Mesh) -> bool:
    """Whether the move leads from every block of the source to the blocks of the target, by the block rule."""
    if move.to is not None:
        return move.axes == differing_axes(source, target)
    inner = mesh.group_size(move.axes)
    for dim, (before, after) in enumerate(zip(source.split_axes, target.split_axes, strict=True)):
        if before == after:
            continue
        outer = mesh.group_size(min(before, after, key=len))
        if not blocks_nest(shape[dim], outer, inner):
            return False
    return True


def count_received_elements(move: Collective, source: Sharding, shape: Shape, *, mesh: Mesh) -> NDArray[np.int64]:
    """[devices]: elements every device receives, uneven blocks included.

    A reduction in a ring passes n-1 terms of a device's own block; an all_reduce cuts the flat shard into n
    blocks, reduces and then gathers them.
    """
    n = mesh.group_size(move.axes)
    held = shard_bounds(source, shape, mesh)
    wanted = shard_bounds(move.target(source), shape, mesh)
    have, want = _bounds_volume(held), _bounds_volume(wanted)
    match move.kind:
        case Kind.ALL_SLICE:
            return np.zeros_like(have)
        case Kind.ALL_GATHER:
            return want - have
        case Kind.REDUCE_SCATTER:
            return (n - 1) * want
        case Kind.ALL_TO_ALL:
            low = np.maximum(held[..., 0], wanted[..., 0])
            high = np.minimum(held[..., 1], wanted[..., 1])
            kept: NDArray[np.int64] = np.maximum(high - low, 0).prod(axis=1)
            return want - kept
        case Kind.ALL_REDUCE:
            return have + (n - 2) * _own_block(have, n, mesh.group_index(move.axes))
        case Kind.EXCHANGE:
            return plan_transfers(source, move.target(source), shape, mesh).received


def _own_block(size: NDArray[np.int64], parts: int, index: NDArray[np.int64]) -> NDArray[np.int64]:
    block = -(-size // parts)
    own: NDArray[np.int64] = np.minimum((index + 1) * block, size) - np.minimum(index * block, size)
    return own


def _bounds_volume(bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    volume: NDArray[np.int64] = (bounds[..., 1] - bounds[..., 0]).prod(axis=1)
    return volume
