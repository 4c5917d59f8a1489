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

Where a source has halos, sent(d) also counts what others hold themselves. `planner.model.exchange` receives the same
elements exactly; its tests hold the two together. Time and memory grow with sources * targets * devices * dims.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import lcm, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.model.exchange import exchange_ends, tiles, transfers, volumes
from planner.model.mesh import Mesh
from planner.model.sharding import Axes, Shape, Sharding, held_bounds

Integers = NDArray[np.int64]
Way = tuple[Axes, tuple[int, ...], tuple[int, ...]]
"""How a dim is cut: mesh axes, its halo if it has one, its halo or offsets."""
CHUNK = 1 << 18
"""Elements of the largest array made on the way."""
WAYS = 1024
"""How many ways are remembered."""
DIMS = 8
"""For how many dims what all pairs of ways share is."""
REMEMBERED = 32
"""How many counts of all pairs."""


@dataclass(frozen=True, slots=True, eq=False)
class Footprints:
    """[sources, targets] each: elements that the busiest device receives and sends, and messages it receives."""

    received: Integers
    sent: Integers
    messages: Integers

    @classmethod
    def counted(cls, source: Sharding, target: Sharding, shape: Shape, mesh: Mesh) -> Footprints:
        """[1, 1]: of one pair, from its transfers; of plain blocks those of the first devices, whose are largest."""
        ends = exchange_ends(source, target, shape, mesh)
        plain = not any((*each.halo_sizes, *each.sharded_dims_offsets) for each in (source, target))
        done = transfers(ends.first_group() if plain else ends)
        messages = sum(np.bincount(each.receiver, minlength=done.devices) for each in done.messages)
        return cls(*(np.array([[most.max()]], np.int64) for most in (done.received, done.sent, np.asarray(messages))))

    @classmethod
    def at_least(cls, source: Sharding, target: Sharding, shape: Shape, mesh: Mesh) -> tuple[int, int]:
        """Elements and messages that the busiest device receives at least, between plain blocks with terms to reduce:
        parts of cells rounded down, a message for each other term of every box it reduces a part of, and one from
        each reducer of a cell it wants."""
        ends = exchange_ends(source, target, shape, mesh).first_group()
        cells, has, wants = tiles(ends)
        own, sizes = has & wants, volumes(cells)
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
    def of(cls, sources: Sequence[Sharding], targets: Sequence[Sharding], shape: Shape, mesh: Mesh) -> Footprints:
        """Of shardings whose partial axes, if any, are the same."""
        least = _least(dict.fromkeys((*sources, *targets)), shape, mesh)
        counted, times = _counted(tuple(sources), tuple(targets), least, mesh), prod(shape) // prod(least)
        return cls(counted.received * times, -(-counted.owed * times // counted.holders[:, None]), counted.messages)


def _least(shardings: Collection[Sharding], shape: Shape, mesh: Mesh) -> Shape:
    """The shape with every dim that they split evenly as short as it can be so split."""
    if any(each.halo_sizes or each.sharded_dims_offsets for each in shardings):
        return shape
    parts = [
        {mesh.group_size(axes) for axes in along} for along in zip(*(s.split_axes for s in shardings), strict=True)
    ]
    even = [all(size % count == 0 for count in counts) for size, counts in zip(shape, parts, strict=True)]
    return tuple(lcm(*counts) if whole else size for size, counts, whole in zip(shape, parts, even, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """[sources, targets] of the busiest device: elements received, those that all who hold what it holds owe together,
    messages; and [sources]: how many those are."""

    received: Integers
    owed: Integers
    messages: Integers
    holders: Integers


@lru_cache(maxsize=REMEMBERED)
def _counted(sources: tuple[Sharding, ...], targets: tuple[Sharding, ...], shape: Shape, mesh: Mesh) -> _Counted:
    rows = max(1, CHUNK // max(1, 3 * len(targets) * mesh.devices))
    ends = [_Ends.of(each, len(shape)) for each in (sources, targets)]
    dims = zip(ends[0].ways, ends[1].ways, shape, strict=True)
    pairs = [_shared_along(source, target, size, mesh) for source, target, size in dims]
    wanted = _wanted(ends[1], shape, mesh)
    starts = range(0, len(sources), rows)
    parts = [_footprints(ends[0].rows(start, start + rows), ends[1], pairs, wanted, mesh) for start in starts]
    received, owed, messages = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _Counted(received, owed, messages, np.array([_copies(each, mesh) for each in sources], np.int64))


def received_with_terms(source: Sharding, target: Sharding, shape: Shape, mesh: Mesh) -> int:
    """Elements that all devices receive in an exchange that combines n terms: of a cell that m devices of a group want,
    n - 1 + m - 1 times its own, once more where none of them holds a term of it."""
    ends = exchange_ends(source, target, shape, mesh)
    cells, has, wants = tiles(ends)
    order = np.argsort(ends.group, kind="stable")
    starts = np.flatnonzero(np.diff(ends.group[order], prepend=-1))
    wanters, own = (np.add.reduceat(flags[:, order].astype(np.int64), starts, axis=1) for flags in (wants, wants & has))
    times = np.where(wanters > 0, wanters + ends.terms - 2 + (own == 0), 0)
    return int(volumes(cells) @ times.sum(axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class _Ends:
    """Per dim the different ways it is cut, and the way of every sharding."""

    shardings: Sequence[Sharding]
    ways: tuple[tuple[Way, ...], ...]
    way: tuple[Integers, ...]

    @classmethod
    def of(cls, shardings: Sequence[Sharding], rank: int) -> _Ends:
        ways, numbers = [], []
        for dim in range(rank):
            found: dict[Way, int] = {}
            numbers.append(
                np.array([found.setdefault(way_along(each, dim), len(found)) for each in shardings], np.int64)
            )
            ways.append(tuple(found))
        return cls(shardings, tuple(ways), tuple(numbers))

    def rows(self, start: int, stop: int) -> _Ends:
        return _Ends(self.shardings[start:stop], self.ways, tuple(way[start:stop] for way in self.way))


def way_along(sharding: Sharding, dim: int) -> Way:
    cut = sharding.cut(dim)
    return sharding.split_axes[dim], () if sharding.sharded_dims_offsets else cut, cut


def _footprints(
    source: _Ends, target: _Ends, pairs: Sequence[_Shared], wanted: Integers, mesh: Mesh
) -> tuple[Integers, Integers, Integers]:
    """[sources, targets]: received, owed, messages."""
    kept, met, demanded = (
        _product([each[which] for each in pairs], source, target, mesh) for which in range(len(_Shared._fields))
    )
    copies = np.array([_copies(each, mesh) for each in target.shardings], np.int64)[None, :, None]
    received = (wanted - kept).max(axis=2)
    met -= kept > 0
    messages = (met * (wanted > 0)).max(axis=2)
    return received, _owed(demanded * copies, kept, source.shardings, mesh).max(axis=2), messages


def _product(along: Sequence[Integers], source: _Ends, target: _Ends, mesh: Mesh) -> Integers:
    """[sources, targets, devices], or [sources, 1, devices] if no target counts: of a number along every dim."""
    wide = len(target.shardings) if not along or any(each.shape[1] > 1 for each in along) else 1
    product = np.ones((len(source.shardings), wide, mesh.devices), np.int64)
    for each, before, after in zip(along, source.way, target.way, strict=True):
        product *= each[before[:, None], after[None, :] if each.shape[1] > 1 else 0]
    return product


def _wanted(target: _Ends, shape: Shape, mesh: Mesh) -> Integers:
    """[targets, devices]: elements."""
    wanted = np.ones((len(target.shardings), mesh.devices), np.int64)
    for ways, number, size in zip(target.ways, target.way, shape, strict=True):
        low, high = np.stack([way_bounds(way, size, mesh) for way in ways], axis=1)
        wanted *= (high - low)[number]
    return wanted


@lru_cache(maxsize=WAYS)
def way_bounds(way: Way, size: int, mesh: Mesh) -> Integers:
    """[2, devices]: start and stop along a dim, cut off at its ends."""
    axes, halo, cut = way
    along = Sharding((axes,), halo_sizes=halo, sharded_dims_offsets=() if halo or not cut else (cut,))
    return np.ascontiguousarray(held_bounds(along, (size,), mesh)[:, 0].clip(0, size).T)


@lru_cache(maxsize=WAYS)
def _parts(way: Way, size: int, mesh: Mesh) -> Integers:
    """[2, parts]: the different intervals that devices hold, none empty, rising."""
    bounds = way_bounds(way, size, mesh)
    low, high = bounds[:, bounds[0] < bounds[1]]
    if not way[1]:  # no two of them overlap
        return np.stack([np.unique(low), np.unique(high)])
    return np.unique(np.stack([low, high]), axis=1)


class _Shared(NamedTuple):
    """[source ways, target ways, devices]: lengths kept, source parts met, and lengths demanded along a dim; the last
    is the same for all targets ([source ways, 1, devices]) where none has a halo."""

    kept: Integers
    met: Integers
    demanded: Integers


@lru_cache(maxsize=DIMS)
def _shared_along(sources: tuple[Way, ...], targets: tuple[Way, ...], size: int, mesh: Mesh) -> _Shared:
    low, high = np.stack([way_bounds(way, size, mesh) for way in sources], axis=1)[:, :, None]
    first, last = np.stack([way_bounds(way, size, mesh) for way in targets], axis=1)
    kept = np.maximum(np.minimum(high, last) - np.maximum(low, first), 0)
    parts = [_parts(way, size, mesh) for way in sources]
    met = [np.searchsorted(starts, last, "left") - np.searchsorted(stops, first, "right") for starts, stops in parts]
    demanded = high - low
    if any(halo for _, halo, _ in targets):
        demanded = np.concatenate([_demanded(low, high, way, size, mesh) for way in targets], axis=1)
    return _Shared(kept, np.stack(met), demanded)


def _demanded(low: Integers, high: Integers, target: Way, size: int, mesh: Mesh) -> Integers:
    """[source ways, 1, devices]: summed over the parts of a target; those without a halo do not overlap."""
    if not target[1]:
        return high - low
    parts = _parts(target, size, mesh).T
    wants = (np.maximum(np.minimum(high, stop) - np.maximum(low, start), 0) for start, stop in parts)
    return sum(wants, np.zeros_like(low))


def _unused(sharding: Sharding, mesh: Mesh) -> tuple[int, ...]:
    used = {axis for axes in (*sharding.split_axes, sharding.partial) for axis in axes}
    return tuple(axis for axis in range(len(mesh.shape)) if axis not in used)


def _copies(sharding: Sharding, mesh: Mesh) -> int:
    return mesh.group_size(_unused(sharding, mesh))


def _owed(demanded: Integers, kept: Integers, sources: Sequence[Sharding], mesh: Mesh) -> Integers:
    """What is demanded of the holders of every box less what they keep of it."""
    unused = [_unused(each, mesh) for each in sources]
    for axes in dict.fromkeys(unused):
        rows = [row for row, own in enumerate(unused) if own == axes]
        grid = kept[rows].reshape(len(rows), -1, *mesh.shape)
        held = np.broadcast_to(grid.sum(axis=tuple(axis + 2 for axis in axes), keepdims=True), grid.shape)
        demanded[rows] -= held.reshape(len(rows), -1, mesh.devices)
    return demanded
