"""The tile exchange: any sharding of a tensor to any other, in one collective.

Device d holds the box H_d of the tensor and wants the box W_d (halos included, cut off at the tensor's ends). The
starts and stops of all boxes cut every dim into intervals and the tensor into *cells*; a cell lies wholly inside or
wholly outside of every box.

copy    A device lacks the cells of W_d outside H_d. Each is sent to it once: in all, sum_d |W_d - H_d| elements,
        fewer no method can move. Devices that hold the same share what others want of it evenly: sorted by receiver
        it is dealt out to them in order, so that neighbours serve each other.
reduce  Where the source is partial over axes and the target is not, a cell has n terms. Its *reducers* are the
        devices that want it and hold a term, or, if none does, that want it. The cell, flattened, is cut into as
        many parts as it has reducers; each is sent the terms of its part that it lacks, combines all in the order of
        the terms, and sends the result to the others that want the cell. With m of these an element is received
        n - 1 + m - 1 times (n + m - 1 where no reducer holds a term), the least possible; a ring's reduce_scatter
        and all_gather receive as many.

A target that is partial over an axis over which the source is not: the first device along the axis gets the tensor,
the others what changes nothing; where equal terms change nothing (max, min, and, or, average) all get the tensor.
Only the mesh axes of the dims that change take part, so that every group of devices exchanges on its own. Where terms
are combined, an exchange may also run over all axes (`exchange_axes`), which moves the least of all methods.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from planner.errors import InvalidSharding
from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes, Reduction, Shape, Sharding, held_bounds
from planner.ir.transfers import Endpoints, Flags, Integers, PieceTable, Transfers, box_volumes

NON_IDEMPOTENT = tuple(reduction for reduction in Reduction if reduction.neutral is not None)
"""Reductions of which equal terms are not the tensor: all but one must be neutral."""


def differing_axes(source: Sharding, target: Sharding) -> Axes:
    """The mesh axes over which two shardings of one tensor differ."""
    axes: set[int] = set()
    for dim, (before, after) in enumerate(zip(source.split_axes, target.split_axes, strict=True)):
        if before != after or source.halo_or_offsets(dim) != target.halo_or_offsets(dim):
            axes.update(before, after)
    same = source.reduction is target.reduction
    axes.update(set(source.partial) ^ set(target.partial) if same else {*source.partial, *target.partial})
    return tuple(sorted(axes))


def exchange_axes(source: Sharding, target: Sharding, mesh: Mesh) -> tuple[Axes, ...]:
    """Return the lists of mesh axes over which an exchange may run: those that differ; to combine terms, also all.

    Groups over the axes that differ each combine the terms on their own. Where replicas make more than one such group,
    one group of all devices combines them once, and moves fewer elements over more links. Axes over which the value
    stays partial take no part, as the devices along them hold different terms.
    """
    least = differing_axes(source, target)
    stays = set(source.partial) - set(least)
    most = tuple(axis for axis, size in enumerate(mesh.shape) if axis in least or (size > 1 and axis not in stays))
    combines = mesh.group_size([axis for axis in source.partial if axis in least]) > 1
    return (least, most) if combines and most != least else (least,)


@lru_cache(maxsize=32)
def plan_transfers(source: Sharding, target: Sharding, shape: Shape, mesh: Mesh, axes: Axes | None = None) -> Transfers:
    """Return the transfers from one sharding of a tensor to another, both checked against its shape.

    Transfers stay in the groups of `axes`; None: of the axes that differ.
    """
    return match_transfers(find_endpoints(source, target, shape, mesh=mesh, axes=axes))


def count_received_in_exchange(source: Sharding, target: Sharding, shape: Shape, *, mesh: Mesh, axes: Axes) -> Integers:
    """Return the elements that each device receives, `[devices]`; without terms: what it wants and does not hold."""
    if (source.partial, source.reduction) != (target.partial, target.reduction):
        return plan_transfers(source, target, shape, mesh, axes).received
    held, wanted = (clip_bounds(held_bounds(each, shape, mesh), shape) for each in (source, target))
    overlap = np.minimum(held[..., 1], wanted[..., 1]) - np.maximum(held[..., 0], wanted[..., 0])
    lacked: Integers = box_volumes(wanted) - np.maximum(overlap, 0).prod(axis=1)
    return lacked


def find_endpoints(
    source: Sharding, target: Sharding, shape: Shape, *, mesh: Mesh, axes: Axes | None = None
) -> Endpoints:
    """Return what devices hold and want, and the groups of `axes` (None: those that differ) in which they exchange."""
    axes = differing_axes(source, target) if axes is None else axes
    rest = [axis for axis in range(len(mesh.shape)) if axis not in axes]
    group = mesh.group_index(rest)
    # Axes that stay partial on both sides do not differ, and each of their terms moves on its own.
    gone = tuple(axis for axis in source.partial if axis in axes)
    new = tuple(axis for axis in target.partial if axis in axes)
    held, wanted = (clip_bounds(held_bounds(each, shape, mesh), shape) for each in (source, target))
    wants = np.ones(mesh.devices, bool)
    if target.reduction in NON_IDEMPOTENT:
        wants = mesh.group_index(new) == 0
    return Endpoints(
        held, np.ones(mesh.devices, bool), wanted, wants, group, mesh.group_index(gone), mesh.group_size(gone)
    )


def clip_bounds(bounds: Integers, shape: Shape) -> Integers:
    """[..., dims, 2]: bounds cut off at the tensor's ends."""
    inside: Integers = np.clip(bounds, 0, np.array(shape, np.int64).reshape(-1, 1))
    return inside


def match_transfers(ends: Endpoints) -> Transfers:
    """The transfers that bring every device the box it wants. Raises InvalidSharding where nobody holds a part of it.

    Time and memory grow with cells * devices; cells with the product over the dims of the different cuts.
    """
    cells, has, wants = cut_cells(ends)
    if ends.terms == 1:
        return Transfers(
            ends, cells, PieceTable.none(), _plan_copies(wants & ~has, has, box_volumes(cells), group=ends.group)
        )
    return Transfers(ends, cells, *_plan_reductions(has, wants, ends))


def cut_cells(ends: Endpoints) -> tuple[Integers, Flags, Flags]:
    """The cells, and [cells, devices] which hold and which want them."""
    cells = _grid_cells(ends.held, ends.wanted)
    return cells, _is_inside(cells, ends.held) & ends.is_holder, _is_inside(cells, ends.wanted) & ends.is_receiver


def _grid_cells(held: Integers, wanted: Integers) -> Integers:
    """[cells, dims, 2], row-major. Only cuts of boxes that hold anything count."""
    boxes = np.concatenate([held, wanted])
    boxes = boxes[(boxes[..., 1] > boxes[..., 0]).all(axis=1)]
    cuts = [np.unique(boxes[:, dim]) for dim in range(boxes.shape[1])]
    counts = [max(len(cut) - 1, 0) for cut in cuts]
    place = np.indices(counts).reshape(len(counts), math.prod(counts))
    pairs = [np.stack([cut[:-1][at], cut[1:][at]], axis=1) for cut, at in zip(cuts, place, strict=True)]
    return np.stack(pairs, axis=1) if pairs else np.zeros((min(len(boxes), 1), 0, 2), np.int64)


def _is_inside(cells: Integers, boxes: Integers) -> Flags:
    """[cells, devices]: whether a cell lies in a device's box."""
    inside = np.broadcast_to((boxes[..., 1] > boxes[..., 0]).all(axis=1), (len(cells), len(boxes))).copy()
    for dim in range(boxes.shape[1]):
        starts, at = np.unique(cells[:, dim, 0], return_inverse=True)
        along = (boxes[None, :, dim, 0] <= starts[:, None]) & (starts[:, None] < boxes[None, :, dim, 1])
        inside &= along[at]
    return inside


def _plan_copies(lacking: Flags, holding: Flags, sizes: Integers, *, group: Integers) -> PieceTable:
    """Every lacking device a holder of its group to send it the cell."""
    groups = int(group.max(initial=0)) + 1
    key, cell, receiver = _sort_by_group(lacking, group, groups)
    holder_key, _, holder = _sort_by_group(holding, group, groups)
    first, last = (np.searchsorted(holder_key, key, side) for side in ("left", "right"))
    if (first == last).any():
        raise InvalidSharding("no device holds a part of what another wants", where="exchange")
    holders = last - first
    place = _assign_holders(holder[first] if len(key) else key, receiver, sizes[cell], holders=holders)
    whole = np.zeros_like(cell)
    return PieceTable(cell, whole, whole + 1, holder[first + place], receiver)


def _sort_by_group(flags: Flags, group: Integers, groups: int) -> tuple[Integers, Integers, Integers]:
    """Key, cell and device of every flag, sorted by cell, then group, then device."""
    cell, device = np.nonzero(flags)
    key = cell * groups + group[device]
    order = np.argsort(key, kind="stable")
    return key[order], cell[order], device[order]


def _assign_holders(first: Integers, receiver: Integers, sizes: Integers, *, holders: Integers) -> Integers:
    """Which of its holders sends every piece: those of one set of holders (told by the first of them and their
    number) are dealt out in the order of the receivers, an even share of the elements each."""
    order = np.lexsort((receiver, holders, first))
    ends = np.cumsum(sizes[order])
    starts_set = np.flatnonzero(np.diff(first[order], prepend=-1) | np.diff(holders[order], prepend=-1))
    counts = np.diff(np.append(starts_set, len(order)))
    before = np.repeat(np.concatenate([[0], ends])[starts_set], counts)
    total = np.repeat(np.diff(np.append(np.concatenate([[0], ends])[starts_set], ends[-1:])), counts)
    place = np.empty_like(order)
    place[order] = (ends - sizes[order] - before) * holders[order] // np.maximum(total, 1)
    return place


def _group_positions(group: Integers) -> tuple[Integers, Integers]:
    """[devices] each: place in the group, and its size."""
    order = np.argsort(group, kind="stable")
    first = np.searchsorted(group[order], group, "left")
    place = np.empty_like(group)
    place[order] = np.arange(len(group)) - first[order]
    return place, np.searchsorted(group[order], group, "right") - first


def _plan_reductions(has: Flags, wants: Flags, ends: Endpoints) -> tuple[PieceTable, PieceTable]:
    """The terms that every reducer lacks, then what it sends to the others that want the cell."""
    groups = int(ends.group.max(initial=0)) + 1
    wanted, own = (_sort_by_group(flags, ends.group, groups) for flags in (wants, wants & has))
    lone = ~np.isin(wanted[0], own[0])  # no device that wants the cell holds a term of it
    key, cell, reducer = (np.concatenate([one, each[lone]]) for one, each in zip(own, wanted, strict=True))
    order = np.argsort(key, kind="stable")
    key, cell, reducer, holds = key[order], cell[order], reducer[order], order < len(own[0])
    first, last = (np.searchsorted(key, key, side) for side in ("left", "right"))
    part, parts = np.arange(len(key)) - first, last - first
    row, sender = _missing_terms(key, reducer, holds, holding=_sort_by_group(has, ends.group, groups), ends=ends)
    reduce = PieceTable(cell[row], part[row], parts[row], sender, reducer[row])
    first, last = (np.searchsorted(wanted[0], key, side) for side in ("left", "right"))
    row = np.repeat(np.arange(len(key)), last - first)
    receiver = wanted[2][first[row] + np.arange(len(row)) - np.searchsorted(row, row)]
    other = receiver != reducer[row]
    row = row[other]
    return reduce, PieceTable(cell[row], part[row], parts[row], reducer[row], receiver[other])


def _missing_terms(
    key: Integers, reducer: Integers, holds: Flags, *, holding: tuple[Integers, Integers, Integers], ends: Endpoints
) -> tuple[Integers, Integers]:
    """Row of the reducer, and sender, of every term that a reducer lacks: at the reducer's relative place in its
    group among the holders of the term."""
    with_term, holder = holding[0] * ends.terms + ends.term[holding[2]], holding[2]
    order = np.argsort(with_term, kind="stable")
    row, term = (each.reshape(-1) for each in np.indices((len(key), ends.terms)))
    first, last = (np.searchsorted(with_term[order], key[row] * ends.terms + term, side) for side in ("left", "right"))
    if (first == last).any():
        raise InvalidSharding("no device holds a term of what another wants", where="exchange")
    place, members = _group_positions(ends.group)
    sender = holder[order][first + place[reducer[row]] * (last - first) // members[reducer[row]]]
    lacked = ~(holds[row] & (ends.term[reducer[row]] == term))
    return row[lacked], sender[lacked]
