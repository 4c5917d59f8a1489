"""Collectives in jax.lax's words, over the axes' names, major first.

Where there is a collective blocks nest, and of a group only the last that hold anything are short. So blocks that are
filled up at their ends, joined, are the joined block filled up at its end. They move filled up. Terms that jax.lax does
not combine (maxima that are scattered, products, bits) are exchanged; an exchange moves what it must and no more.
"""

from __future__ import annotations

from planner.export.shard_map.exchanges import exchange_function
from planner.export.shard_map.filling import fitted
from planner.export.shard_map.functions import Functions, index_of
from planner.model.collectives import Collective, Kind
from planner.model.mesh import Mesh
from planner.model.program import Move, Program
from planner.model.sharding import Reduction, Shape, shard_shape

REDUCED = {Reduction.SUM: "psum", Reduction.MAX: "pmax", Reduction.MIN: "pmin"}


def collective(program: Program, move: Move, name: str, functions: Functions) -> str:
    """The move of an array of that name."""
    done, mesh, held = move.collective, program.mesh, program.values[move.operand]
    axes, reduction = tuple(mesh.names[axis] for axis in done.axes), held.sharding.reduction
    if not axes:
        return name
    if done.kind is Kind.EXCHANGE or not _combines(done.kind, reduction):
        return f"{_exchange(program, move, functions)}({name})"
    if done.kind is Kind.ALL_REDUCE:
        return f"lax.{REDUCED[reduction]}({name}, {axes!r})"
    have, want = (
        shard_shape(program.values[end].sharding, held.type.shape, mesh) for end in (move.operand, move.result)
    )
    return _along_dims(done, name, have, want, mesh)


def _exchange(program: Program, move: Move, functions: Functions) -> str:
    """The name of the function that exchanges so: one for all that are alike."""
    held, made = program.values[move.operand], program.values[move.result]
    key = repr(("exchange", held.type.shape, held.sharding, made.sharding))
    if key not in functions.named:
        name = functions.named[key] = f"exchange_{next(functions.numbers)}"
        functions.texts.append(exchange_function(held, made, program.mesh, name))
    return functions.named[key]


def _combines(kind: Kind, reduction: Reduction) -> bool:
    """Whether jax.lax has the collective, if terms are reduced in it."""
    known = {Kind.ALL_REDUCE: REDUCED, Kind.REDUCE_SCATTER: (Reduction.SUM,)}
    return reduction in known.get(kind, (reduction,))


def _along_dims(done: Collective, name: str, have: Shape, want: Shape, mesh: Mesh) -> str:
    """What devices hold in one shape becomes what they hold in another."""
    axes, members = tuple(mesh.names[axis] for axis in done.axes), mesh.group_size(done.axes)
    dim, source = done.dim or 0, done.source_dim or 0
    if done.kind is Kind.ALL_GATHER:
        joined = f"lax.all_gather({name}, {axes!r}, axis={dim}, tiled=True)"
        return fitted(joined, _resized(have, dim, members * have[dim]), want)
    name = fitted(name, have, _resized(have, dim, members * want[dim]))
    if done.kind is Kind.ALL_SLICE:
        return f"lax.dynamic_slice_in_dim({name}, {index_of(done.axes, mesh)} * {want[dim]}, {want[dim]}, {dim})"
    if done.kind is Kind.REDUCE_SCATTER:
        return f"lax.psum_scatter({name}, {axes!r}, scatter_dimension={dim}, tiled=True)"
    joined = f"lax.all_to_all({name}, {axes!r}, split_axis={dim}, concat_axis={source}, tiled=True)"
    return fitted(joined, _resized(want, source, members * have[source]), want)


def _resized(shape: Shape, dim: int, size: int) -> Shape:
    return (*shape[:dim], size, *shape[dim + 1 :])
