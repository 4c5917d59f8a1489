"""The dialect's group collectives on one group: attributes resolved to numbers, members in group order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from planner.errors import RunFailed
from planner.run.collectives import (
    BlockRanges,
    Reducer,
    all_gather,
    all_reduce,
    all_to_all,
    combine_terms,
    gather_to_root,
    permute,
    reduce_scatter,
    scatter_from_root,
    slice_piece,
    split_blocks,
)
from planner.run.transport import Communicator

Array = Any
Results = Sequence[Array | None]


@dataclass(frozen=True, slots=True)
class CollectiveGroup:
    """One group at a collective; `sizes` are those of its mesh axes as listed."""

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
        """The blocks of a dim. Raises RunFailed when the given block leaves something over."""
        block = self.attrs["block"]
        if block is not None and block * len(self.members) < size:
            raise RunFailed("block too small", where=self.where, got=block, wanted=f"{len(self.members)} cover {size}")
        return split_blocks(size, len(self.members), block)

    def check_shapes(self, shards: Sequence[Array], free: int | None = None) -> None:
        """Refuse members' shapes that differ in a dim other than `free`."""
        shapes = {tuple(size for dim, size in enumerate(shard.shape) if dim != free) for shard in shards}
        if len(shapes) > 1:
            got = sorted({tuple(shard.shape) for shard in shards})
            raise RunFailed("shapes differ within a group", where=self.where, got=got, wanted="shapes that fit")


def _all_gather(group: CollectiveGroup, shards: list[Array]) -> Results:
    dim = group.attrs["gather_axis"]
    group.check_shapes(shards, dim)
    return all_gather(group.xp, group.communicator, shards, dim=dim)


def _gather(group: CollectiveGroup, shards: list[Array]) -> Results:
    dim, root = group.attrs["gather_axis"], group.root
    group.check_shapes(shards, dim)
    got = gather_to_root(group.communicator, shards, root)
    return [None if pieces is None else group.xp.concatenate(pieces, axis=dim) for pieces in got]


def _all_slice(group: CollectiveGroup, shards: list[Array]) -> Results:
    """Every member of its own array: they need not agree."""
    dim = group.attrs["slice_axis"]
    return [slice_piece(shard, dim, group.block_ranges(shard.shape[dim])[i]) for i, shard in enumerate(shards)]


def _all_to_all(group: CollectiveGroup, shards: list[Array]) -> Results:
    split, concat = group.attrs["split_axis"], group.attrs["concat_axis"]
    group.check_shapes(shards, concat if concat != split else None)
    return all_to_all(
        group.xp,
        group.communicator,
        shards,
        split=split,
        concat=concat,
        parts=group.block_ranges(shards[0].shape[split]),
    )


def _broadcast(group: CollectiveGroup, shards: list[Array]) -> Results:
    return permute(group.communicator, shards, [group.root] * len(shards))


def _scatter(group: CollectiveGroup, shards: list[Array]) -> Results:
    dim, root = group.attrs["scatter_axis"], group.root
    return scatter_from_root(
        group.communicator, shards, root, dim=dim, parts=group.block_ranges(shards[root].shape[dim])
    )


def _shift(group: CollectiveGroup, shards: list[Array]) -> Results:
    """The array of the device `offset` positions before."""
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


MOVEMENTS: Mapping[str, Callable[[CollectiveGroup, list[Array]], Results]] = MappingProxyType(
    {
        "all_gather": _all_gather,
        "gather": _gather,
        "all_slice": _all_slice,
        "all_to_all": _all_to_all,
        "broadcast": _broadcast,
        "scatter": _scatter,
        "shift": _shift,
        "collective_permute": _permute,
    }
)


def _all_reduce(group: CollectiveGroup, reducer: Reducer, shards: list[Array]) -> Results:
    return all_reduce(group.xp, group.communicator, reducer, shards=shards)


def _reduce(group: CollectiveGroup, reducer: Reducer, shards: list[Array]) -> Results:
    got = gather_to_root(group.communicator, shards, group.root)
    return [None if terms is None else combine_terms(group.xp, reducer, terms) for terms in got]


def _reduce_scatter(group: CollectiveGroup, reducer: Reducer, shards: list[Array]) -> Results:
    dim = group.attrs["scatter_axis"]
    return reduce_scatter(
        group.xp, group.communicator, reducer, shards=shards, dim=dim, parts=group.block_ranges(shards[0].shape[dim])
    )


REDUCTIONS: Mapping[str, Callable[[CollectiveGroup, Reducer, list[Array]], Results]] = MappingProxyType(
    {"all_reduce": _all_reduce, "reduce": _reduce, "reduce_scatter": _reduce_scatter}
)
