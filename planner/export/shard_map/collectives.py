"""Collectives in jax.lax's words, over the axes' names, major first.

Where there is a collective blocks nest, and of a group only the last that hold anything are short. So blocks that are
filled up at their ends, joined, are the joined block filled up at its end. They move filled up. Terms that jax.lax does
not combine (maxima that are scattered, products, bits) are exchanged; an exchange moves what it must and no more.
"""

from __future__ import annotations

from planner.export.shard_map.op_functions import OpFunctions, write_device_index
from planner.export.shard_map.padding import fit_shape
from planner.export.shard_map.ppermute import write_exchange_function
from planner.ir.collectives import Collective, Kind
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.ir.sharding import Reduction, Shape, shard_shape

LAX_REDUCTIONS = {Reduction.SUM: "psum", Reduction.MAX: "pmax", Reduction.MIN: "pmin"}


def write_collective(program: Program, move: Reshard, name: str, *, functions: OpFunctions) -> str:
    """The move of an array of that name."""
    done, mesh, held = move.collective, program.mesh, program.values[move.operand]
    axes, reduction = tuple(mesh.names[axis] for axis in done.axes), held.sharding.reduction
    if not axes:
        return name
    if done.kind is Kind.EXCHANGE or not _combine_terms(done.kind, reduction):
        return f"{_write_exchange(program, move, functions)}({name})"
    if done.kind is Kind.ALL_REDUCE:
        return f"lax.{LAX_REDUCTIONS[reduction]}({name}, {axes!r})"
    have, want = (
        shard_shape(program.values[end].sharding, held.type.shape, mesh) for end in (move.operand, move.result)
    )
    return _resize_along_dims(done, name, have, want=want, mesh=mesh)


def _write_exchange(program: Program, move: Reshard, functions: OpFunctions) -> str:
    """The name of the function that exchanges so: one for all that are alike."""
    held, made = program.values[move.operand], program.values[move.result]
    key = repr(("exchange", held.type.shape, held.sharding, made.sharding))
    if key not in functions.named:
        name = functions.named[key] = f"exchange_{next(functions.numbers)}"
        functions.texts.append(write_exchange_function(held, made, program.mesh, name=name))
    return functions.named[key]


def _combine_terms(kind: Kind, reduction: Reduction) -> bool:
    """Whether jax.lax has the collective, if terms are reduced in it."""
    known = {Kind.ALL_REDUCE: LAX_REDUCTIONS, Kind.REDUCE_SCATTER: (Reduction.SUM,)}
    return reduction in known.get(kind, (reduction,))


def _resize_along_dims(done: Collective, name: str, have: Shape, *, want: Shape, mesh: Mesh) -> str:
    """What devices hold in one shape becomes what they hold in another."""
    axes, members = tuple(mesh.names[axis] for axis in done.axes), mesh.group_size(done.axes)
    dim, source = done.dim or 0, done.source_dim or 0
    if done.kind is Kind.ALL_GATHER:
        joined = f"lax.all_gather({name}, {axes!r}, axis={dim}, tiled=True)"
        return fit_shape(joined, _resize_shape(have, dim, members * have[dim]), want)
    name = fit_shape(name, have, _resize_shape(have, dim, members * want[dim]))
    if done.kind is Kind.ALL_SLICE:
        return (
            f"lax.dynamic_slice_in_dim({name}, {write_device_index(done.axes, mesh)} * {want[dim]}, {want[dim]}, {dim})"
        )
    if done.kind is Kind.REDUCE_SCATTER:
        return f"lax.psum_scatter({name}, {axes!r}, scatter_dimension={dim}, tiled=True)"
    joined = f"lax.all_to_all({name}, {axes!r}, split_axis={dim}, concat_axis={source}, tiled=True)"
    return fit_shape(joined, _resize_shape(want, source, members * have[source]), want)


def _resize_shape(shape: Shape, dim: int, size: int) -> Shape:
    return (*shape[:dim], size, *shape[dim + 1 :])
