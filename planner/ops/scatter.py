"""Ops that write elements at given positions.

    scatter               x after x[.., ids[.., k, ..], ..] = u[.., k, ..]      along one dim
    index_put             x after x[b, ids0[k], ids1[k], .., a] = u[b, k, a]
    dynamic_update_slice  x after x[.., start + k, ..] = u[.., k, ..]       the start is clamped so that u is inside

The loop of positions (`v`) may be split: each device writes the elements that fall into its part. Several updates (`k`)
may write one element of x, where the last wins: loop k is blocked. With `accumulate` updates are added (+= instead of =
above): then k may be split, each device computes a term of the result, and only the first adds x. All are linear in x
and u together.
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


def _blocked_updates(signature: OpSignature, loops: list[str]) -> str:
    """Return the modifier that blocks the loops of updates, which may be split only where updates are added."""
    return f"; blocked {' '.join(loops)}" if loops and not signature.read(ACCUMULATE) else ""


def _scatter_rule(signature: OpSignature) -> str:
    if len(signature.operands) != 3:
        raise InvalidGraph("number of operands", got=len(signature.operands), wanted="data, ids, updates")
    data, ids = dim_terms(signature, "v", "k")
    return f"{data}, {ids}, {ids} -> {data}; linear 0+2{_blocked_updates(signature, ['k'])}"


def _index_put_rule(signature: OpSignature) -> str:
    updates = len(signature.operands) - 1
    data, ids, read, loops = index_terms(signature, list(range(1, updates)))
    return f"{data}, {', '.join(ids)}, {read} -> {data}; linear 0+{updates}{_blocked_updates(signature, loops)}"


def _base_array(local: OpContext, x: Array) -> Array:
    """Return the array to write to: x, or zeros on all but the first of the devices that compute terms of a sum."""
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
    """Return which updates are the last for their element: on a GPU, the order of writes is undefined."""
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
    return f"{whole}, {part}{', []' * starts} -> {whole}; linear 0+1{_blocked_updates(signature, loops)}"


def _update_slice(local: OpContext, x: Array, updates: Array, *starts: Array) -> Array:
    """Return the local part of x, with the updates of those elements that have one."""
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
