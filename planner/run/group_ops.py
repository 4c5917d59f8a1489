"""The dialect's group collectives on one group, with attributes resolved to numbers and members in group order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from planner.errors import RunFailed
from planner.ir.collectives import BASIS, COLLECTIVES, AxesFrom, Kind
from planner.run.collectives import (
    ARRAY_FUNCTIONS,
    BlockRanges,
    GroupShards,
    Reducer,
    combine_terms,
    gather_to_root,
    permute,
    scatter_from_root,
    split_blocks,
)
from planner.run.transport import Communicator
from planner.spmd.collectives import DIM_NAMES

Array = Any
Results = Sequence[Array | None]


@dataclass(frozen=True, slots=True)
class CollectiveGroup:
    """One group that runs a collective; `sizes` are those of its mesh axes as listed."""

    xp: Any
    communicator: Communicator
    axes: Sequence[int]
    sizes: Sequence[int]
    attrs: Mapping[str, Any]
    where: str

    @property
    def members(self) -> range:
        return range(self.communicator.members)

    @property
    def root(self) -> int:
        return self.member(self.attrs["root"])

    def member(self, index: Sequence[int]) -> int:
        return int(np.ravel_multi_index(tuple(index), tuple(self.sizes))) if self.sizes else 0

    def block_ranges(self, size: int) -> BlockRanges:
        """Return the blocks of a dim. Raises RunFailed where the given blocks do not cover the dim."""
        block = self.attrs["block"]
        if isinstance(block, list | tuple):
            if block[-1] != size:
                raise RunFailed("offsets of blocks", where=self.where, got=list(block), wanted=f"{size} last")
            return list(pairwise(block))
        if block is not None and block * len(self.members) < size:
            raise RunFailed("block too small", where=self.where, got=block, wanted=f"{len(self.members)} cover {size}")
        return split_blocks(size, len(self.members), block)

    def check_shapes(self, shards: Sequence[Array], free: int | None = None) -> None:
        """Raise RunFailed where members' shapes differ in a dim other than `free`."""
        shapes = {tuple(size for dim, size in enumerate(shard.shape) if dim != free) for shard in shards}
        if len(shapes) > 1:
            got = sorted({tuple(shard.shape) for shard in shards})
            raise RunFailed("shapes differ within a group", where=self.where, got=got, wanted="shapes that fit")


def _gather(group: CollectiveGroup, shards: list[Array]) -> Results:
    dim, root = group.attrs["gather_axis"], group.root
    group.check_shapes(shards, dim)
    got = gather_to_root(group.communicator, shards, root)
    return [None if pieces is None else group.xp.concatenate(pieces, axis=dim) for pieces in got]


def _broadcast(group: CollectiveGroup, shards: list[Array]) -> Results:
    return permute(group.communicator, shards, [group.root] * len(shards))


def _scatter(group: CollectiveGroup, shards: list[Array]) -> Results:
    dim, root = group.attrs["scatter_axis"], group.root
    return scatter_from_root(
        group.communicator, shards, root, dim=dim, parts=group.block_ranges(shards[root].shape[dim])
    )


def _shift(group: CollectiveGroup, shards: list[Array]) -> Results:
    """Return the array of the device `offset` positions before, for every member."""
    along, offset = group.axes.index(group.attrs["shift_axis"]), group.attrs["offset"]
    size = group.sizes[along]
    sources: list[int | None] = []
    for member in group.members:
        index = [int(each) for each in np.unravel_index(member, tuple(group.sizes))]
        index[along] -= offset
        if group.attrs["rotate"]:
            index[along] %= size
        sources.append(group.member(index) if 0 <= index[along] < size else None)
    return permute(group.communicator, shards, sources)


def _permute(group: CollectiveGroup, shards: list[Array]) -> Results:
    sources: dict[int, int] = {target: source for source, target in group.attrs["pairs"]}
    return permute(group.communicator, shards, [sources.get(member) for member in group.members])


def _reduce(group: CollectiveGroup, shards: list[Array], reducer: Reducer) -> Results:
    got = gather_to_root(group.communicator, shards, group.root)
    return [None if terms is None else combine_terms(group.xp, reducer, terms) for terms in got]


def _run_basis_move(kind: Kind, group: CollectiveGroup, shards: list[Array], reducer: Reducer | None = None) -> Results:
    """Run a collective between shardings, its dims and blocks as the call's attributes give them."""
    dims = {field: group.attrs[name] for field, name in DIM_NAMES[kind].items()}
    dim, source = dims.get("dim", 0), dims.get("source_dim")
    if COLLECTIVES[kind].axes_from is AxesFrom.TAIL:
        joined = dim if source is None else source
        # Members' arrays may differ in the dim along which they are joined, unless it is also cut.
        group.check_shapes(shards, None if source == dim else joined)
    run = GroupShards(
        group.xp,
        group.communicator,
        shards,
        dim,
        source or 0,
        lambda shard: group.block_ranges(shard.shape[dim]),
        reducer,
    )
    return ARRAY_FUNCTIONS[kind](run)


MOVEMENTS: Mapping[str, Callable[[CollectiveGroup, list[Array]], Results]] = MappingProxyType(
    {
        **{kind.value: partial(_run_basis_move, kind) for kind in BASIS if not COLLECTIVES[kind].reduces},
        "gather": _gather,
        "broadcast": _broadcast,
        "scatter": _scatter,
        "shift": _shift,
        "collective_permute": _permute,
    }
)
"""Ops that move arrays between the members of a group."""

REDUCTIONS: Mapping[str, Callable[[CollectiveGroup, list[Array], Reducer], Results]] = MappingProxyType(
    {**{kind.value: partial(_run_basis_move, kind) for kind in BASIS if COLLECTIVES[kind].reduces}, "reduce": _reduce}
)
"""Ops that combine the members' terms."""
