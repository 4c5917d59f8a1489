"""Collectives in jax.lax's words, over the axes' names, major first.

What jax.lax does not combine is combined where its parts arrive: a reduce_scatter of maxima is an all_to_all of the
blocks and a maximum of those received, which moves as many bytes. An all_reduce of what it does not combine (products,
bits) would move others: it is refused.
"""

from __future__ import annotations

from planner.errors import InvalidSharding
from planner.export.shard_map.exchanges import exchange_function
from planner.export.shard_map.functions import Functions, index_of
from planner.model.collectives import Kind
from planner.model.mesh import Mesh
from planner.model.program import Move, Program
from planner.model.sharding import Reduction

ALL_REDUCE = {Reduction.SUM: "psum", Reduction.AVERAGE: "pmean", Reduction.MAX: "pmax", Reduction.MIN: "pmin"}
BLOCKS = {
    Reduction.MAX: "jnp.max",
    Reduction.MIN: "jnp.min",
    Reduction.PRODUCT: "jnp.prod",
    Reduction.BITWISE_AND: "jnp.bitwise_and.reduce",
    Reduction.BITWISE_OR: "jnp.bitwise_or.reduce",
    Reduction.BITWISE_XOR: "jnp.bitwise_xor.reduce",
}


def collective(program: Program, move: Move, name: str, functions: Functions) -> str:
    """The move of an array of that name. Raises InvalidSharding, naming the value."""
    done, mesh, held = move.collective, program.mesh, program.values[move.operand]
    if not done.axes:
        return name
    axes = tuple(mesh.names[axis] for axis in done.axes)
    match done.kind:
        case Kind.ALL_GATHER:
            return f"lax.all_gather({name}, {axes!r}, axis={done.dim}, tiled=True)"
        case Kind.ALL_TO_ALL:
            return f"lax.all_to_all({name}, {axes!r}, split_axis={done.dim}, concat_axis={done.source_dim}, tiled=True)"
        case Kind.ALL_SLICE:
            return _slice(program, move, name, mesh)
        case Kind.ALL_REDUCE if held.sharding.reduction in ALL_REDUCE:
            return f"lax.{ALL_REDUCE[held.sharding.reduction]}({name}, {axes!r})"
        case Kind.REDUCE_SCATTER:
            return _reduce_scatter(name, axes, done.dim or 0, held.sharding.reduction, mesh.group_size(done.axes))
        case Kind.EXCHANGE:
            made = f"exchange_{len(functions.texts) + 1}"
            functions.texts.append(exchange_function(program, move, made))
            return f"{made}({name})"
        case Kind.ALL_REDUCE:
            pass
    raise InvalidSharding("no collective of jax.lax", where=f"value {move.result!r}", got=str(done), wanted="another")


def _slice(program: Program, move: Move, name: str, mesh: Mesh) -> str:
    held, dim = program.values[move.result], move.collective.dim or 0
    block = held.type.shape[dim] // mesh.group_size(held.sharding.split_axes[dim])
    start = f"{index_of(move.collective.axes, mesh)} * {block}"
    return f"lax.dynamic_slice_in_dim({name}, {start}, {block}, {dim})"


def _reduce_scatter(name: str, axes: tuple[str, ...], dim: int, reduction: Reduction, members: int) -> str:
    if reduction in (Reduction.SUM, Reduction.AVERAGE):
        total = f"lax.psum_scatter({name}, {axes!r}, scatter_dimension={dim}, tiled=True)"
        return total if reduction is Reduction.SUM else f"{total} / {members}"
    blocks = f"lax.all_to_all({name}, {axes!r}, split_axis={dim}, concat_axis={dim}, tiled=True)"
    return f"{BLOCKS[reduction]}(jnp.stack(jnp.split({blocks}, {members}, {dim})), axis=0)"
