"""Count what exchanges between many shardings move, all pairs at once, without listing transfers.

Device d holds the box H_d under a source s and wants the box W_d under a target t. Boxes are products over the dims,
and no mesh axis splits two dims. So every count is a product over the dims too, of numbers that depend only on how s
and t cut the dim:

    kept(d)      = prod |H_d & W_d|                       received(d) = |W_d| - kept(d)
    pieces(d)    = prod (source parts that meet W_d) without its own: the messages that d receives
    demanded(d)  = prod (sum over target parts of |H_d & part|) * (copies of each): what all devices want of H_d
    sent(d)      = (demanded(d) - what the holders of H_d keep) / (holders of H_d), as if they shared the work evenly

Where every split of a dim is even, the counts are multiples of those for the shortest dim that is split evenly too. The
shortest dim is counted and cached, so that tensors which are split alike are counted once.

Blocks that nest are counted for all devices at once (`planner.reshard.nested_traffic`), in time and memory that do not
depend on the number of devices. Other blocks, halos and offsets are counted device by device
(`planner.reshard.device_traffic`); blocks on more than MAX_LISTED_DEVICES devices are bounded from above.

Where a source has halos, sent(d) also counts elements that other devices hold themselves. `planner.ir.redistribution`
lists the transfers of one pair; a test holds that both receive the same elements.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import lcm, prod

import numpy as np
from numpy.typing import NDArray

from planner.ir.mesh import Mesh
from planner.ir.redistribution import cut_cells, find_endpoints, match_transfers
from planner.ir.sharding import Axes, Shape, Sharding
from planner.ir.transfers import box_volumes
from planner.reshard.device_traffic import PairCounts, count_by_device
from planner.reshard.nested_traffic import all_blocks_nest, count_nested

Integers = NDArray[np.int64]
MAX_CACHED_COUNTS = 32
"""Number of cached counts of all pairs."""
MAX_LISTED_DEVICES = 1 << 12
"""Most devices on which blocks that do not nest are counted device by device."""


@dataclass(frozen=True, slots=True, eq=False)
class ReshardTraffic:
    """Elements that the busiest device of each exchange receives and sends, and its messages, `[sources, targets]`."""

    received: Integers
    sent: Integers
    messages: Integers

    @classmethod
    def of_pair(
        cls, source: Sharding, target: Sharding, shape: Shape, *, mesh: Mesh, axes: Axes | None = None
    ) -> ReshardTraffic:
        """Return the traffic of one pair, `[1, 1]`, counted from its transfers."""
        ends = find_endpoints(source, target, shape, mesh=mesh, axes=axes)
        # Plain blocks are largest on the first devices; halos and offsets may be largest on any.
        plain = not any((*each.halo_sizes, *each.sharded_dims_offsets) for each in (source, target))
        done = match_transfers(ends.restricted_to_first_group() if plain else ends)
        messages = sum(np.bincount(each.receiver, minlength=done.devices) for each in done.messages)
        return cls(*(np.array([[most.max()]], np.int64) for most in (done.received, done.sent, np.asarray(messages))))

    @classmethod
    def lower_bound(
        cls, source: Sharding, target: Sharding, shape: Shape, *, mesh: Mesh, axes: Axes | None = None
    ) -> tuple[int, int]:
        """Return lower bounds of the elements and messages that the busiest device receives, between plain blocks with
        terms to reduce.

        Parts of cells are rounded down. A device receives a message for each other term of every box of which it
        reduces a part, and one from each reducer of a cell that it wants.
        """
        ends = find_endpoints(source, target, shape, mesh=mesh, axes=axes).restricted_to_first_group()
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
        """Return the traffic of all pairs; the partial axes of all shardings, if any, are the same."""
        least = _reduced_shape(dict.fromkeys((*sources, *targets)), shape, mesh)
        counted, times = _count_pairs(tuple(sources), tuple(targets), least, mesh=mesh), prod(shape) // prod(least)
        return cls(
            counted.received * times, -(-counted.sent_total * times // counted.holders[:, None]), counted.messages
        )


def _reduced_shape(shardings: Collection[Sharding], shape: Shape, mesh: Mesh) -> Shape:
    """Return the shape with each evenly split dim as short as it can be and still be split evenly."""
    if any(each.halo_sizes or each.sharded_dims_offsets for each in shardings):
        return shape
    parts = [
        {mesh.group_size(axes) for axes in along} for along in zip(*(s.split_axes for s in shardings), strict=True)
    ]
    even = [all(size % count == 0 for count in counts) for size, counts in zip(shape, parts, strict=True)]
    return tuple(lcm(*counts) if whole else size for size, counts, whole in zip(shape, parts, even, strict=True))


@lru_cache(maxsize=MAX_CACHED_COUNTS)
def _count_pairs(
    sources: tuple[Sharding, ...], targets: tuple[Sharding, ...], shape: Shape, *, mesh: Mesh
) -> PairCounts:
    are_blocks = not any((*each.halo_sizes, *each.sharded_dims_offsets) for each in (*sources, *targets))
    is_large = mesh.devices > MAX_LISTED_DEVICES
    if are_blocks and (is_large or all_blocks_nest(sources, targets, shape, mesh=mesh)):
        return count_nested(sources, targets, shape, mesh=mesh)
    return count_by_device(sources, targets, shape, mesh=mesh)


def count_received_with_terms(
    source: Sharding, target: Sharding, shape: Shape, *, mesh: Mesh, axes: Axes | None = None
) -> int:
    """Count the elements that all devices receive in an exchange that combines n terms.

    A cell that m devices of a group want is received n - 1 + m - 1 times, and once more where none of them holds a
    term of it.
    """
    ends = find_endpoints(source, target, shape, mesh=mesh, axes=axes)
    cells, has, wants = cut_cells(ends)
    order = np.argsort(ends.group, kind="stable")
    starts = np.flatnonzero(np.diff(ends.group[order], prepend=-1))
    wanters, own = (np.add.reduceat(flags[:, order].astype(np.int64), starts, axis=1) for flags in (wants, wants & has))
    times = np.where(wanters > 0, wanters + ends.terms - 2 + (own == 0), 0)
    return int(box_volumes(cells) @ times.sum(axis=1))
