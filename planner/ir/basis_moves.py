"""The basis moves: collectives that lead from a sharding to another by the block rule, exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, permutations

from planner.ir.collectives import COLLECTIVES, AxesFrom, Collective, CollectiveDef
from planner.ir.mesh import Mesh
from planner.ir.redistribution import exchange_axes
from planner.ir.sharding import Axes, Shape, Sharding, block_size

_Choose = Callable[[Axes, int], Iterator[Axes]]


def list_basis_moves(
    source: Sharding, shape: Shape, mesh: Mesh, *, in_mesh_order: bool = False
) -> list[tuple[Collective, Sharding]]:
    """List every exact basis move from a sharding, with the sharding it leads to.

    Several axes move at once where that is one collective (a tail gathered, a partial reduced) and, for the moves
    that append axes to a dim, also where one axis after another would leave blocks that do not nest. There is no
    basis move from halos or offsets. `in_mesh_order` leaves out moves that append axes in another order than the mesh
    has them, of which there are as many as the factorial of the number of axes.
    """
    if source.halo_sizes or source.sharded_dims_offsets:
        return []
    choose: _Choose = combinations if in_mesh_order else permutations
    moves = (move for row in COLLECTIVES.values() for move in _list_moves(row, source, mesh, choose=choose))
    return [
        (move, target)
        for move in moves
        for target in [move.target(source)]
        if is_exact(move, source, target, shape=shape, mesh=mesh)
    ]


def _list_moves(row: CollectiveDef, source: Sharding, mesh: Mesh, *, choose: _Choose) -> Iterator[Collective]:
    """List the moves of one kind: what they take, and for each of these the dims it can be appended to."""
    for dim, axes in _list_movable_axes(row, source, mesh, choose=choose):
        if row.appends:
            others = (other for other in range(len(source.split_axes)) if other != dim)
            yield from (Collective(row.kind, axes, other, dim) for other in others)
        else:
            yield Collective(row.kind, axes, dim)


def _list_movable_axes(
    row: CollectiveDef, source: Sharding, mesh: Mesh, *, choose: _Choose
) -> Iterator[tuple[int | None, Axes]]:
    """List the axes that a collective can take, and the dim that loses them, if one does."""
    if row.axes_from is AxesFrom.TAIL:
        for dim, axes in enumerate(source.split_axes):
            yield from ((dim, axes[-n:]) for n in range(1, len(axes) + 1))
    elif row.axes_from is AxesFrom.PARTIAL:
        # The order of axes only matters where they are appended to a list.
        orders = _list_axis_orders(source.partial, choose)
        yield from ((None, order) for order in orders if row.appends or list(order) == sorted(order))
    elif row.axes_from is AxesFrom.FREE:
        used = {axis for axes in (*source.split_axes, source.partial) for axis in axes}
        free = tuple(axis for axis, size in enumerate(mesh.shape) if size > 1 and axis not in used)
        yield from ((None, order) for order in _list_axis_orders(free, choose))


def _list_axis_orders(axes: Axes, choose: _Choose) -> Iterator[Axes]:
    return (order for n in range(1, len(axes) + 1) for order in choose(axes, n))


def is_exact(move: Collective, source: Sharding, target: Sharding, *, shape: Shape, mesh: Mesh) -> bool:
    """Return whether the move leads from every block of the source to the blocks of the target, by the block rule."""
    if move.to is not None:
        return move.axes in exchange_axes(source, target, mesh)
    inner = mesh.group_size(move.axes)
    for dim, (before, after) in enumerate(zip(source.split_axes, target.split_axes, strict=True)):
        if before == after:
            continue
        outer = mesh.group_size(min(before, after, key=len))
        if not blocks_nest(shape[dim], outer, inner):
            return False
    return True


def blocks_nest(size: int, outer: int, inner: int) -> bool:
    """Return whether blocks over outer * inner devices tile the blocks over the outer ones."""
    return outer == 1 or block_size(size, outer) == inner * block_size(size, outer * inner)
