"""What an exchange moves, for all pairs of many shardings at once, without listing its transfers.

Device d holds the box H_d under a source s and wants W_d under a target t. Boxes are products over the dims, and no
mesh axis splits two dims, so that all counts are products over the dims too, of numbers that depend only on how s
and t cut the dim:

    kept(d)      = prod |H_d & W_d|                       received(d) = |W_d| - kept(d)
    pieces(d)    = prod (source parts that meet W_d), its own left out: the messages it receives
    demanded(d)  = prod (sum over target parts of |H_d & part|) * (copies of each): what all want of H_d
    sent(d)      = (demanded(d) - what its holders keep of it) / (holders of H_d), as if they shared it evenly

Where every split of a dim is even, lengths along it are so many times those along the least dim of which that holds:
they are counted there and remembered, so that tensors which are split alike are counted once.

Blocks that nest (`planner.reshard.nested_splits`; of even splits all but those of coprime sizes) are counted for all
devices at once: kept(d) is either nothing or one and the same number, and time and memory grow with sources * targets *
dims. Other blocks, halos and offsets are counted device by device on up to MAX_LISTED_DEVICES devices, and blocks are
bounded from above beyond: the busiest device is taken to keep nothing.

Where a source has halos, sent(d) also counts what others hold themselves. `planner.ir.redistribution` receives the same
elements exactly; its tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import lcm, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.ir.mesh import Mesh
from planner.ir.redistribution import cut_cells, find_endpoints, match_transfers
from planner.ir.sharding import Axes, Shape, Sharding, held_bounds, shard_elements
from planner.ir.transfers import box_volumes
from planner.reshard.nested_splits import SplitPair, compare_splits

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
DimSplit = tuple[Axes, tuple[int, ...], tuple[int, ...]]
"""How a dim is cut: mesh axes, its halo if it has one, its halo or offsets."""
MAX_CHUNK_ELEMENTS = 1 << 18
"""Elements of the largest array made on the way."""
MAX_CACHED_SPLITS = 1024
"""How many ways are remembered."""
MAX_CACHED_DIMS = 8
"""For how many dims what all pairs of ways share is."""
MAX_CACHED_COUNTS = 32
"""How many counts of all pairs."""
MAX_LISTED_DEVICES = 1 << 12
"""On how many devices blocks that do not nest are counted device by device."""


@dataclass(frozen=True, slots=True, eq=False)
class ReshardTraffic:
    """[sources, targets] each: elements that the busiest device receives and sends, and messages it receives."""

    received: Integers
    sent: Integers
    messages: Integers

    @classmethod
    def of_pair(cls, source: Sharding, target: Sharding, shape: Shape, *, mesh: Mesh) -> ReshardTraffic:
        """[1, 1]: of one pair, from its transfers; of plain blocks those of the first devices, whose are largest."""
        ends = find_endpoints(source, target, shape, mesh=mesh)
        plain = not any((*each.halo_sizes, *each.sharded_dims_offsets) for each in (source, target))
        done = match_transfers(ends.restricted_to_first_group() if plain else ends)
        messages = sum(np.bincount(each.receiver, minlength=done.devices) for each in done.messages)
        return cls(*(np.array([[most.max()]], np.int64) for most in (done.received, done.sent, np.asarray(messages))))

    @classmethod
    def lower_bound(cls, source: Sharding, target: Sharding, shape: Shape, *, mesh: Mesh) -> tuple[int, int]:
        """Elements and messages that the busiest device receives at least, between plain blocks with terms to reduce:
        parts of cells rounded down, a message for each other term of every box it reduces a part of, and one from
        each reducer of a cell it wants."""
        ends = find_endpoints(source, target, shape, mesh=mesh).restricted_to_first_group()
        cells, has, wants = cut_cells(ends)
        own, sizes = has & wants, box_volumes(cells)
        alone = own.sum(axis=1) == 0
        reduces = np.where(alone[:, None], wants, own)
        parts = np.maximum(reduces.sum(axis=1), 1)
        reduced = sizes // parts * (ends.terms - 1 + alone) - -(-sizes // parts)
        received = reduced @ reduces.astype(np.float64) + sizes @ wants.astype(np.float64)
        busy = (reduces & (sizes >= parts)[:, None]).astype(np.float32)
        reducers = (wants.T.astype(np.float32) @ busy > 0).sum(axis=1) - busy.any(axis=0)
        boxes, box = np.unique(has.argmax(axis=1), return_inverse=True)
        lacked = ((box == np.arange(len(boxes))[:, None]).astype(np.float32) @ busy > 0).sum(axis=0) * ends.terms
        return int(received.max()), int((reducers + np.maximum(lacked - 1, 0)).max())

    @classmethod
    def of(cls, sources: Sequence[Sharding], targets: Sequence[Sharding], shape: Shape, mesh: Mesh) -> ReshardTraffic:
        """Of shardings whose partial axes, if any, are the same."""
        least = _reduced_shape(dict.fromkeys((*sources, *targets)), shape, mesh)
        counted, times = _count_pairs(tuple(sources), tuple(targets), least, mesh=mesh), prod(shape) // prod(least)
        return cls(
            counted.received * times, -(-counted.sent_total * times // counted.holders[:, None]), counted.messages
        )


def _reduced_shape(shardings: Collection[Sharding], shape: Shape, mesh: Mesh) -> Shape:
    """The shape with every dim that they split evenly as short as it can be so split."""
    if any(each.halo_sizes or each.sharded_dims_offsets for each in shardings):
        return shape
    parts = [
        {mesh.group_size(axes) for axes in along} for along in zip(*(s.split_axes for s in shardings), strict=True)
    ]
    even = [all(size % count == 0 for count in counts) for size, counts in zip(shape, parts, strict=True)]
    return tuple(lcm(*counts) if whole else size for size, counts, whole in zip(shape, parts, even, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class _PairCounts:
    """[sources, targets] of the busiest device: elements received, those that all who hold what it holds owe together,
    messages; and [sources]: how many those are."""

    received: Integers
    sent_total: Integers
    messages: Integers
    holders: Integers


@lru_cache(maxsize=MAX_CACHED_COUNTS)
def _count_pairs(
    sources: tuple[Sharding, ...], targets: tuple[Sharding, ...], shape: Shape, *, mesh: Mesh
) -> _PairCounts:
    ends = _DimSplits.of(sources, len(shape)), _DimSplits.of(targets, len(shape))
    are_blocks = not any((*each.halo_sizes, *each.sharded_dims_offsets) for each in (*sources, *targets))
    along = [_compare_dims(*each, mesh.shape) for each in zip(*(end.splits for end in ends), strict=True)]
    exact = all(pair.is_exact(size) for pairs, size in zip(along, shape, strict=True) for row in pairs for pair in row)
    if are_blocks and (exact or mesh.devices > MAX_LISTED_DEVICES):
        return _count_nested(ends, along, shape, mesh=mesh)
    return _count_by_device(sources, targets, shape, mesh=mesh)


def _count_by_device(
    sources: tuple[Sharding, ...], targets: tuple[Sharding, ...], shape: Shape, *, mesh: Mesh
) -> _PairCounts:
    rows = max(1, MAX_CHUNK_ELEMENTS // max(1, 3 * len(targets) * mesh.devices))
    ends = [_DimSplits.of(each, len(shape)) for each in (sources, targets)]
    dims = zip(ends[0].splits, ends[1].splits, shape, strict=True)
    pairs = [_shared_lengths(source, target, size, mesh) for source, target, size in dims]
    wanted = _wanted_elements(ends[1], shape, mesh)
    starts = range(0, len(sources), rows)
    parts = [
        _count_footprints(ends[0].rows(start, start + rows), ends[1], pairs, wanted=wanted, mesh=mesh)
        for start in starts
    ]
    received, owed, messages = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _PairCounts(received, owed, messages, np.array([_count_copies(each, mesh) for each in sources], np.int64))


def _compare_dims(
    sources: Sequence[DimSplit], targets: Sequence[DimSplit], sizes: Shape
) -> list[list[SplitPair]]:
    """[source ways][target ways] along one dim."""
    return [[compare_splits(source[0], target[0], sizes) for target in targets] for source in sources]


def _count_nested(
    ends: tuple[_DimSplits, _DimSplits], along: Sequence[Sequence[Sequence[SplitPair]]], shape: Shape, *, mesh: Mesh
) -> _PairCounts:
    """The counts of blocks that nest, exactly; of others an upper bound."""
    source, target = (end.shardings for end in ends)
    common = np.ones((len(source), len(target)), np.int64)
    met, compared = common.copy(), common.copy()
    is_disjoint, is_undemanded = np.zeros(common.shape, bool), np.zeros(common.shape, bool)
    unused = np.array([[axis in _unused_axes(each, mesh) for axis in range(len(mesh.shape))] for each in source])
    for dim, size in enumerate(shape):
        table = _DimTable.of(along[dim], size, len(mesh.shape))
        places = np.ix_(ends[0].split_index[dim], ends[1].split_index[dim])
        common *= table.common[places]
        met *= table.met[places]
        is_disjoint |= table.may_be_disjoint[places]
        is_undemanded |= ~table.is_exact[places]
        for axis in range(len(mesh.shape)):
            is_free = unused[:, axis, None]
            is_undemanded |= ~is_free & table.differing[places + (axis,)]
            compared *= np.where(is_free, table.compared[places + (axis,)], 1)
    holders, copies = (np.array([_count_copies(each, mesh) for each in end], np.int64) for end in (source, target))
    held, wanted = (np.array([shard_elements(each, shape, mesh) for each in end], np.int64) for end in (source, target))
    received = wanted - np.where(is_disjoint, 0, common)
    sent = held[:, None] * copies - np.where(is_undemanded, 0, common * (holders[:, None] // compared))
    return _PairCounts(received, sent, (met - ~is_disjoint) * (wanted > 0), holders)


class _DimTable(NamedTuple):
    """How the splits of a dim lie over each other, [source ways, target ways] each.

    common           elements that two blocks have in common where they meet
    met              source parts that a target part meets
    is_exact         whether blocks nest; else `met` is an upper bound
    may_be_disjoint  whether some device holds nothing of what it wants
    compared         [..., axes]: product of the target's digits on an axis that meet a digit of the source
    differing        [..., axes]: whether one of them meets another digit
    """

    common: Integers
    met: Integers
    is_exact: Flags
    may_be_disjoint: Flags
    compared: Integers
    differing: Flags

    @classmethod
    def of(cls, pairs: Sequence[Sequence[SplitPair]], size: int, axes: int) -> _DimTable:
        exact = np.array([[pair.is_exact(size) for pair in row] for row in pairs])
        common = np.array([[pair.common_length(size) for pair in row] for row in pairs], np.int64)
        met = [[pair.parts_met if pair.is_exact(size) else pair.max_parts_met(size) for pair in row] for row in pairs]
        is_held = np.array([[pair.source_parts == 1 for pair in row] for row in pairs])
        compared, differing = np.ones((*exact.shape, axes), np.int64), np.zeros((*exact.shape, axes), bool)
        for i, row in enumerate(pairs):
            for k, pair in enumerate(row):
                differing[i, k, list(pair.differing)] = True
                for axis, digits in pair.compared:
                    compared[i, k, axis] = digits
        disjoint = np.where(exact, differing.any(axis=2), ~is_held)
        return cls(common, np.array(met, np.int64), exact, disjoint, compared, differing)


def count_received_with_terms(source: Sharding, target: Sharding, shape: Shape, *, mesh: Mesh) -> int:
    """Elements that all devices receive in an exchange that combines n terms: of a cell that m devices of a group want,
    n - 1 + m - 1 times its own, once more where none of them holds a term of it."""
    ends = find_endpoints(source, target, shape, mesh=mesh)
    cells, has, wants = cut_cells(ends)
    order = np.argsort(ends.group, kind="stable")
    starts = np.flatnonzero(np.diff(ends.group[order], prepend=-1))
    wanters, own = (np.add.reduceat(flags[:, order].astype(np.int64), starts, axis=1) for flags in (wants, wants & has))
    times = np.where(wanters > 0, wanters + ends.terms - 2 + (own == 0), 0)
    return int(box_volumes(cells) @ times.sum(axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class _DimSplits:
    """Per dim the different ways it is cut, and the way of every sharding."""

    shardings: Sequence[Sharding]
    splits: tuple[tuple[DimSplit, ...], ...]
    split_index: tuple[Integers, ...]

    @classmethod
    def of(cls, shardings: Sequence[Sharding], rank: int) -> _DimSplits:
        ways, numbers = [], []
        for dim in range(rank):
            found: dict[DimSplit, int] = {}
            numbers.append(
                np.array([found.setdefault(split_along(each, dim), len(found)) for each in shardings], np.int64)
            )
            ways.append(tuple(found))
        return cls(shardings, tuple(ways), tuple(numbers))

    def rows(self, start: int, stop: int) -> _DimSplits:
        return _DimSplits(self.shardings[start:stop], self.splits, tuple(way[start:stop] for way in self.split_index))


def split_along(sharding: Sharding, dim: int) -> DimSplit:
    cut = sharding.halo_or_offsets(dim)
    return sharding.split_axes[dim], () if sharding.sharded_dims_offsets else cut, cut


def _count_footprints(
    source: _DimSplits, target: _DimSplits, pairs: Sequence[_SharedLengths], *, wanted: Integers, mesh: Mesh
) -> tuple[Integers, Integers, Integers]:
    """[sources, targets]: received, owed, messages."""
    kept, met, demanded = (
        _multiply_dims([each[which] for each in pairs], source, target, mesh=mesh)
        for which in range(len(_SharedLengths._fields))
    )
    copies = np.array([_count_copies(each, mesh) for each in target.shardings], np.int64)[None, :, None]
    received = (wanted - kept).max(axis=2)
    met -= kept > 0
    messages = (met * (wanted > 0)).max(axis=2)
    return received, _elements_owed(demanded * copies, kept, source.shardings, mesh=mesh).max(axis=2), messages


def _multiply_dims(along: Sequence[Integers], source: _DimSplits, target: _DimSplits, *, mesh: Mesh) -> Integers:
    """[sources, targets, devices], or [sources, 1, devices] if no target counts: of a number along every dim."""
    wide = len(target.shardings) if not along or any(each.shape[1] > 1 for each in along) else 1
    product = np.ones((len(source.shardings), wide, mesh.devices), np.int64)
    for each, before, after in zip(along, source.split_index, target.split_index, strict=True):
        product *= each[before[:, None], after[None, :] if each.shape[1] > 1 else 0]
    return product


def _wanted_elements(target: _DimSplits, shape: Shape, mesh: Mesh) -> Integers:
    """[targets, devices]: elements."""
    wanted = np.ones((len(target.shardings), mesh.devices), np.int64)
    for ways, number, size in zip(target.splits, target.split_index, shape, strict=True):
        low, high = np.stack([split_bounds(way, size, mesh) for way in ways], axis=1)
        wanted *= (high - low)[number]
    return wanted


@lru_cache(maxsize=MAX_CACHED_SPLITS)
def split_bounds(way: DimSplit, size: int, mesh: Mesh) -> Integers:
    """[2, devices]: start and stop along a dim, cut off at its ends."""
    axes, halo, cut = way
    along = Sharding((axes,), halo_sizes=halo, sharded_dims_offsets=() if halo or not cut else (cut,))
    return np.ascontiguousarray(held_bounds(along, (size,), mesh)[:, 0].clip(0, size).T)


@lru_cache(maxsize=MAX_CACHED_SPLITS)
def _split_intervals(way: DimSplit, size: int, mesh: Mesh) -> Integers:
    """[2, parts]: the different intervals that devices hold, none empty, rising."""
    bounds = split_bounds(way, size, mesh)
    low, high = bounds[:, bounds[0] < bounds[1]]
    if not way[1]:  # no two of them overlap
        return np.stack([np.unique(low), np.unique(high)])
    return np.unique(np.stack([low, high]), axis=1)


class _SharedLengths(NamedTuple):
    """[source ways, target ways, devices]: lengths kept, source parts met, and lengths demanded along a dim; the last
    is the same for all targets ([source ways, 1, devices]) where none has a halo."""

    kept: Integers
    parts_met: Integers
    demanded: Integers


@lru_cache(maxsize=MAX_CACHED_DIMS)
def _shared_lengths(
    sources: tuple[DimSplit, ...], targets: tuple[DimSplit, ...], size: int, mesh: Mesh
) -> _SharedLengths:
    low, high = np.stack([split_bounds(way, size, mesh) for way in sources], axis=1)[:, :, None]
    first, last = np.stack([split_bounds(way, size, mesh) for way in targets], axis=1)
    kept = np.maximum(np.minimum(high, last) - np.maximum(low, first), 0)
    parts = [_split_intervals(way, size, mesh) for way in sources]
    met = [np.searchsorted(starts, last, "left") - np.searchsorted(stops, first, "right") for starts, stops in parts]
    demanded = high - low
    if any(halo for _, halo, _ in targets):
        demanded = np.concatenate([_demanded_lengths(low, high, way, size=size, mesh=mesh) for way in targets], axis=1)
    return _SharedLengths(kept, np.stack(met), demanded)


def _demanded_lengths(low: Integers, high: Integers, target: DimSplit, *, size: int, mesh: Mesh) -> Integers:
    """[source ways, 1, devices]: summed over the parts of a target; those without a halo do not overlap."""
    if not target[1]:
        return high - low
    parts = _split_intervals(target, size, mesh).T
    wants = (np.maximum(np.minimum(high, stop) - np.maximum(low, start), 0) for start, stop in parts)
    return sum(wants, np.zeros_like(low))


def _unused_axes(sharding: Sharding, mesh: Mesh) -> tuple[int, ...]:
    used = {axis for axes in (*sharding.split_axes, sharding.partial) for axis in axes}
    return tuple(axis for axis in range(len(mesh.shape)) if axis not in used)


def _count_copies(sharding: Sharding, mesh: Mesh) -> int:
    return mesh.group_size(_unused_axes(sharding, mesh))


def _elements_owed(demanded: Integers, kept: Integers, sources: Sequence[Sharding], *, mesh: Mesh) -> Integers:
    """What is demanded of the holders of every box less what they keep of it."""
    unused = [_unused_axes(each, mesh) for each in sources]
    for axes in dict.fromkeys(unused):
        rows = [row for row, own in enumerate(unused) if own == axes]
        grid = kept[rows].reshape(len(rows), -1, *mesh.shape)
        held = np.broadcast_to(grid.sum(axis=tuple(axis + 2 for axis in axes), keepdims=True), grid.shape)
        demanded[rows] -= held.reshape(len(rows), -1, mesh.devices)
    return demanded
