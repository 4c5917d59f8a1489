"""Ops that write at positions given by numbers.

    scatter               x with x[.., ids[.., k, ..], ..] = u[.., k, ..]       along one dim
    index_put             x with x[b, ids0[k], ids1[k], .., a] = u[b, k, a]
    dynamic_update_slice  x with x[.., start + k, ..] = u[.., k, ..]            the start moved so that u is inside

A loop that is written to (`v`) may be split: every device writes what falls into its part. What is written (`k`) meets
in one place of x, where the last wins: it is whole. With `accumulate` it is added to what is there (+= above): then it
may be split, and every device makes a term of the result, the first of them with x. All are linear in x and u jointly.
"""

from __future__ import annotations

from planner.errors import InvalidGraph
from planner.ir.dtypes import is_integer
from planner.ir.sharding import Shape
from planner.ops import attribute_types as types
from planner.ops.attributes import DIM, DIMS, Attribute
from planner.ops.gather import clamp_start, dim_terms, index_terms, local_index_positions, move_to_front, slice_terms
from planner.ops.local_indices import BEYOND, indexed_operands, local_positions
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature

ACCUMULATE = Attribute("accumulate", types.FLAG, False)


def _put_dtypes(signature: OpSignature) -> str | None:
    x, *ids, updates = signature.operands
    one = {x.dtype, updates.dtype, signature.results[0].dtype}
    good = ids and len(one) == 1 and all(is_integer(kind.dtype) for kind in ids)
    return None if good else "data, integer ids, updates and a result of the data's dtype"


def _written_term(signature: OpSignature, loops: list[str]) -> str:
    """What is written over is whole; what is added may be split."""
    return f"; blocked {' '.join(loops)}" if loops and not signature.read(ACCUMULATE) else ""


def _scatter_rule(signature: OpSignature) -> str:
    if len(signature.operands) != 3:
        raise InvalidGraph("number of operands", got=len(signature.operands), wanted="data, ids, updates")
    data, ids = dim_terms(signature, "v", "k")
    return f"{data}, {ids}, {ids} -> {data}; linear 0+2{_written_term(signature, ['k'])}"


def _index_put_rule(signature: OpSignature) -> str:
    updates = len(signature.operands) - 1
    data, ids, read, loops = index_terms(signature, list(range(1, updates)))
    return f"{data}, {', '.join(ids)}, {read} -> {data}; linear 0+{updates}{_written_term(signature, loops)}"


def _base_array(local: OpContext, x: Array) -> Array:
    """What is written to: of those who add terms, the first has x and the others zeros."""
    adds = [span.start for loop, span in local.spans.items() if loop[0] == "k"]
    return x.copy() if not (local.read(ACCUMULATE) and any(adds)) else local.xp.zeros_like(x)


def _write(local: OpContext, ground: Array, inside: Array, *, places: tuple[Array, ...], updates: Array) -> None:
    if local.read(ACCUMULATE):
        # cupy adds no i64 at places, and sums of u64 have the same bits.
        kind = "uint64" if ground.dtype == "int64" else ground.dtype
        local.xp.add.at(ground.view(kind), tuple(each[inside] for each in places), updates[inside].view(kind))
        return
    last = _last_writes(local, ground.shape[: len(places)], inside, places=places)
    ground[tuple(each[last] for each in places)] = updates[last]


def _last_writes(local: OpContext, shape: Shape, inside: Array, *, places: tuple[Array, ...]) -> Array:
    """Of those that are to be written to one place, the last: a GPU writes in no order."""
    order = local.xp.arange(inside.size).reshape(inside.shape).astype("int32")
    latest = local.xp.full(shape, -1, "int32")
    if latest.size == 0:
        return inside
    local.xp.maximum.at(latest, tuple(each[inside] for each in places), order[inside])
    return inside & (latest[places] == order)


def _scatter(local: OpContext, x: Array, ids: Array, updates: Array) -> Array:
    inside, places = local_positions(local, ids, "v")
    ground, everywhere = _base_array(local, x), list(local.xp.indices(ids.shape))
    everywhere[local.read(DIM, x.ndim)] = places
    _write(local, ground, inside, places=tuple(everywhere), updates=updates)
    return ground


def _index_put(local: OpContext, x: Array, *others: Array) -> Array:
    *ids, updates = others
    first = local.read(DIMS, x.ndim)[0]
    inside, places = local_index_positions(local, tuple(ids))
    ground = _base_array(local, move_to_front(local, x, first, count=len(ids)))
    _write(local, ground, inside, places=places, updates=move_to_front(local, updates, first, count=inside.ndim))
    return local.xp.moveaxis(ground, range(len(ids)), range(first, first + len(ids)))


def _update_slice_rule(signature: OpSignature) -> str:
    starts = len(signature.operands) - 2
    whole, part, loops = slice_terms(signature, starts)
    return f"{whole}, {part}{', []' * starts} -> {whole}; linear 0+1{_written_term(signature, loops)}"


def _update_slice(local: OpContext, x: Array, updates: Array, *starts: Array) -> Array:
    """Every place of the local part takes the update that belongs there, if one does."""
    written, beside = local.xp.ones((1,) * x.ndim, bool), updates
    for k, (dim, start) in enumerate(zip(local.read(DIMS, x.ndim), starts, strict=True)):
        span, length = local.spans[f"v{k}"], updates.shape[dim]
        wanted = local.xp.arange(span.start, span.stop) - clamp_start(local, start, k)
        inside = (wanted >= 0) & (wanted < length)
        written = written & inside.reshape(-1, *(1,) * (x.ndim - dim - 1))
        beside = beside.take(wanted.clip(0, length - 1), axis=dim)
    return local.xp.where(written, beside, x)


def _update_slice_dtypes(signature: OpSignature) -> str | None:
    x, updates, *starts = signature.operands
    one = {x.dtype, updates.dtype, signature.results[0].dtype}
    good = len(one) == 1 and all(is_integer(kind.dtype) for kind in starts)
    return None if good else "data and updates of one dtype, integer starts, a result of the data's dtype"


OP_DEFS = (
    OpDef(
        "scatter",
        _scatter_rule,
        _scatter,
        0,
        _put_dtypes,
        indexed_loops={1: "v"},
        attrs=(DIM, ACCUMULATE, BEYOND),
    ),
    OpDef(
        "index_put",
        _index_put_rule,
        _index_put,
        0,
        _put_dtypes,
        indexed_loops=indexed_operands(1),
        attrs=(DIMS, ACCUMULATE, BEYOND),
    ),
    OpDef(
        "dynamic_update_slice",
        _update_slice_rule,
        _update_slice,
        0,
        _update_slice_dtypes,
        indexed_loops=indexed_operands(2),
        attrs=(DIMS,),
    ),
)
