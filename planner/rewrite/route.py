"""The collectives between two shardings in the order of the mesh dialect's documents.

First an all_reduce over the partial axes that go, then an all_gather of what a dim's list loses at its tail, then
an all_slice (local_split) of what it gains. Then two steps that are one collective become one:

    all_reduce, all_slice of reduced axes          reduce_scatter
    all_gather of a dim, all_slice of another      all_to_all, where the axes are the same

A dim keeps the common head of its lists only as far as blocks nest (see `planner.model.collectives`); where sizes
are uneven it is gathered further. A mesh axis of unknown size is trusted to divide.
"""

from __future__ import annotations

from planner.errors import InvalidSharding
from planner.model.collectives import Collective, Kind, nests
from planner.model.graph import Graph
from planner.model.mesh import Mesh
from planner.model.sharding import Axes, Shape, Sharding
from planner.rewrite.writer import Route


def documented_route(graph: Graph, mesh: Mesh) -> Route:
    """The route of the documents for the values of a graph."""
    return lambda value, source, target: fused(ordered(source, target, graph.types[value].shape, mesh))


def ordered(source: Sharding, target: Sharding, shape: Shape, mesh: Mesh) -> list[Collective]:
    """all_reduce, all_gather, all_slice. Raises InvalidSharding where a target's partial axes or halo would arise."""
    _check_arising(source, target)
    gone = tuple(axis for axis in source.partial if axis not in target.partial)
    reduced = [Collective(Kind.ALL_REDUCE, gone)] if gone else []
    gathered, sliced = [], []
    for dim, (have, want) in enumerate(zip(source.split_axes, target.split_axes, strict=True)):
        kept = _kept(have, want, shape[dim], mesh)
        if have[kept:]:
            gathered.append(Collective(Kind.ALL_GATHER, have[kept:], dim))
        if want[kept:]:
            sliced.append(Collective(Kind.ALL_SLICE, want[kept:], dim))
    return [*reduced, *gathered, *sliced]


def _check_arising(source: Sharding, target: Sharding) -> None:
    stays = set(target.partial) <= set(source.partial)
    if not stays or (target.partial and source.reduction is not target.reduction):
        raise InvalidSharding("no collective makes a tensor partial", got=str(source), wanted=str(target))
    if (source.halo_sizes, source.sharded_dims_offsets) != (target.halo_sizes, target.sharded_dims_offsets):
        raise InvalidSharding("no basis move changes halos or offsets", got=str(source), wanted=str(target))


def _kept(have: Axes, want: Axes, size: int, mesh: Mesh) -> int:
    """How many axes at the head of both lists may stay."""
    common = 0
    while common < min(len(have), len(want)) and have[common] == want[common]:
        common += 1
    return next(n for n in range(common, -1, -1) if all(_nest(axes, n, size, mesh) for axes in (have, want)))


def _nest(axes: Axes, head: int, size: int, mesh: Mesh) -> bool:
    if len(axes) == head or any(mesh.axes[axis].size is None for axis in axes):
        return True
    return nests(size, mesh.group_size(axes[:head]), mesh.group_size(axes[head:]))


def fused(chain: list[Collective]) -> list[Collective]:
    """A chain in the order above, with neighbours that are one collective as one."""
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
