"""What the busiest device of every exchange between many shardings moves, counted for all devices at once.

With the numbers of `planner.reshard.traffic`. Where all blocks nest (`planner.reshard.nested_splits`), kept(d) is
either nothing or one and the same number, and the counts are exact. Other blocks are bounded from above: the busiest
device is taken to keep nothing of what it wants. Time and memory grow with sources * targets * dims * mesh axes, and
do not depend on the number of devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.ir.mesh import Mesh
from planner.ir.sharding import Shape, Sharding, shard_elements
from planner.reshard.device_traffic import PairCounts
from planner.reshard.dim_splits import DimSplit, DimSplits, count_copies, unused_axes
from planner.reshard.nested_splits import compare_splits

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
MAX_CACHED_DIMS = 8


def all_blocks_nest(sources: Sequence[Sharding], targets: Sequence[Sharding], shape: Shape, *, mesh: Mesh) -> bool:
    """Return whether every block of every source nests with every block of every target."""
    return all(table.is_exact.all() for table in _list_tables(_list_splits(sources, targets, shape), shape, mesh))


def count_nested(sources: Sequence[Sharding], targets: Sequence[Sharding], shape: Shape, *, mesh: Mesh) -> PairCounts:
    """Count what blocks that nest move, exactly; bound it from above for other blocks."""
    ends = _list_splits(sources, targets, shape)
    common = np.ones((len(sources), len(targets)), np.int64)
    met, compared = common.copy(), common.copy()
    is_disjoint, is_undemanded = np.zeros(common.shape, bool), np.zeros(common.shape, bool)
    unused = np.array([[axis in unused_axes(each, mesh) for axis in range(len(mesh.shape))] for each in sources])
    for dim, table in enumerate(_list_tables(ends, shape, mesh)):
        places = np.ix_(*(end.split_index[dim] for end in ends))
        common *= table.common[places]
        met *= table.met[places]
        is_disjoint |= table.may_be_disjoint[places]
        is_undemanded |= ~table.is_exact[places]
        for axis in range(len(mesh.shape)):
            is_free = unused[:, axis, None]
            is_undemanded |= ~is_free & table.differing[(*places, axis)]
            compared *= np.where(is_free, table.compared[(*places, axis)], 1)
    holders, copies = (np.array([count_copies(each, mesh) for each in end], np.int64) for end in (sources, targets))
    held, wanted = (
        np.array([shard_elements(each, shape, mesh) for each in end], np.int64) for end in (sources, targets)
    )
    received = wanted - np.where(is_disjoint, 0, common)
    sent = held[:, None] * copies - np.where(is_undemanded, 0, common * (holders[:, None] // compared))
    return PairCounts(received, sent, (met - ~is_disjoint) * (wanted > 0), holders)


def _list_splits(sources: Sequence[Sharding], targets: Sequence[Sharding], shape: Shape) -> list[DimSplits]:
    return [DimSplits.of(each, len(shape)) for each in (sources, targets)]


def _list_tables(ends: Sequence[DimSplits], shape: Shape, mesh: Mesh) -> Iterator[_DimTable]:
    """Yield the table of every dim."""
    for source, target, size in zip(*(end.splits for end in ends), shape, strict=True):
        yield _DimTable.of(source, target, size, mesh.shape)


class _DimTable(NamedTuple):
    """How the splits of a dim lie over each other, [source splits, target splits] each.

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
    @lru_cache(maxsize=MAX_CACHED_DIMS)
    def of(cls, sources: tuple[DimSplit, ...], targets: tuple[DimSplit, ...], size: int, axes: Shape) -> _DimTable:
        """Compare all splits of a dim of `size` over mesh axes of the sizes `axes`."""
        pairs = [[compare_splits(source[0], target[0], axes) for target in targets] for source in sources]
        exact = np.array([[pair.is_exact(size) for pair in row] for row in pairs])
        common = np.array([[pair.common_length(size) for pair in row] for row in pairs], np.int64)
        nested_met = np.array([[pair.parts_met for pair in row] for row in pairs], np.int64)
        most_met = np.array([[pair.max_parts_met(size) for pair in row] for row in pairs], np.int64)
        is_held = np.array([[pair.source_parts == 1 for pair in row] for row in pairs])
        compared = np.ones((*exact.shape, len(axes)), np.int64)
        differing = np.zeros(compared.shape, bool)
        for i, row in enumerate(pairs):
            for k, pair in enumerate(row):
                differing[i, k, list(pair.differing)] = True
                for axis, digits in pair.compared:
                    compared[i, k, axis] = digits
        disjoint = np.where(exact, differing.any(axis=2), ~is_held)
        return cls(common, np.where(exact, nested_met, most_met), exact, disjoint, compared, differing)
