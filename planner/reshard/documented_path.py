"""The collectives between two shardings in the order of the mesh dialect's documents.

First an all_reduce over the partial axes that disappear, then an all_gather of what a dim's list loses at its tail,
then an all_slice (local_split) of what it gains. Then two steps that are one collective become one:

    all_reduce, all_slice of reduced axes          reduce_scatter
    all_gather of a dim, all_slice of another      all_to_all, where the axes are the same

What none of these collectives does is one exchange: other halos or offsets, and axes that become partial.

A dim keeps the common head of its lists only as far as blocks nest (see `planner.ir.collectives`); where sizes are
uneven it is gathered further. A mesh axis of unknown size is assumed to divide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.ir.basis_moves import blocks_nest
from planner.ir.collectives import Collective, Kind
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes, Shape, Sharding

ReshardPlanner = Callable[[str, Sharding, Sharding], Sequence[Collective]]
"""(value, source, target) -> the moves from source to target."""


def make_documented_path(graph: Graph, mesh: Mesh) -> ReshardPlanner:
    """Return the documents' path for the values of a graph."""
    return lambda value, source, target: plan_collectives(source, target, graph.types[value].shape, mesh=mesh)


def plan_collectives(source: Sharding, target: Sharding, shape: Shape, *, mesh: Mesh) -> list[Collective]:
    """Return the documents' collectives from one sharding to another, or one exchange where they have none."""
    if source == target:
        return []
    if has_documented_path(source, target):
        return fuse_collectives(order_collectives(source, target, shape, mesh=mesh))
    return [Collective.exchange(source, target)]


def has_documented_path(source: Sharding, target: Sharding) -> bool:
    """Return whether the documents' collectives lead there: from blocks to blocks, and nothing becomes partial."""
    plain = not any((*each.halo_sizes, *each.sharded_dims_offsets) for each in (source, target))
    reduces = set(target.partial) <= set(source.partial)
    return plain and reduces and (not target.partial or source.reduction is target.reduction)


def order_collectives(source: Sharding, target: Sharding, shape: Shape, *, mesh: Mesh) -> list[Collective]:
    """Return all_reduce, all_gather and all_slice, where the documents' collectives lead to the target."""
    reduced_axes = tuple(axis for axis in source.partial if axis not in target.partial)
    reduced = [Collective(Kind.ALL_REDUCE, reduced_axes)] if reduced_axes else []
    gathered, sliced = [], []
    for dim, (held, wanted) in enumerate(zip(source.split_axes, target.split_axes, strict=True)):
        common = _common_prefix_length(held, wanted, shape[dim], mesh=mesh)
        if held[common:]:
            gathered.append(Collective(Kind.ALL_GATHER, held[common:], dim))
        if wanted[common:]:
            sliced.append(Collective(Kind.ALL_SLICE, wanted[common:], dim))
    return [*reduced, *gathered, *sliced]


def _common_prefix_length(have: Axes, want: Axes, size: int, *, mesh: Mesh) -> int:
    """Return how many axes at the head of both lists may stay."""
    common = 0
    while common < min(len(have), len(want)) and have[common] == want[common]:
        common += 1
    return next(
        n for n in range(common, -1, -1) if all(_blocks_nest(axes, n, size, mesh=mesh) for axes in (have, want))
    )


def _blocks_nest(axes: Axes, head: int, size: int, *, mesh: Mesh) -> bool:
    if len(axes) == head or any(mesh.axes[axis].size is None for axis in axes):
        return True
    return blocks_nest(size, mesh.group_size(axes[:head]), mesh.group_size(axes[head:]))


def fuse_collectives(chain: list[Collective]) -> list[Collective]:
    """Fuse neighbours in a chain in the order above that are one collective."""
    reduced = {axis for move in chain if move.kind is Kind.ALL_REDUCE for axis in move.axes}
    gathers = {move.dim: move for move in chain if move.kind is Kind.ALL_GATHER}
    exchanged, last = [], []
    needed: set[int | None] = set()
    for move in (move for move in chain if move.kind is Kind.ALL_SLICE):
        source = next((d for d, g in gathers.items() if g.axes == move.axes and d not in {move.dim, *needed}), None)
        if set(move.axes) <= reduced:
            reduced -= set(move.axes)
            last.append(Collective(Kind.REDUCE_SCATTER, move.axes, move.dim))
        elif source is not None:
            del gathers[source]
            needed.add(move.dim)
            exchanged.append(Collective(Kind.ALL_TO_ALL, move.axes, move.dim, source))
        else:
            last.append(move)
    first = [Collective(Kind.ALL_REDUCE, tuple(sorted(reduced)))] if reduced else []
    return [*first, *gathers.values(), *exchanged, *last]
