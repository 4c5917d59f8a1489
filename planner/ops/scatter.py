"""Ops that write elements at given positions.

    scatter               x after x[.., ids[.., k, ..], ..] = u[.., k, ..]      along one dim
    index_put             x after x[b, ids0[k], ids1[k], .., a] = u[b, k, a]
    dynamic_update_slice  x after x[.., start + k, ..] = u[.., k, ..]       the start is clamped so that u is inside

The loop of positions (`v`) may be split: each device writes the elements that fall into its part. Several updates (`k`)
may write one element of x, where the last wins: loop k is blocked. With `accumulate` the element that is there is
reduced with all its updates, by `reduction`: then k may be split, and each device computes a part of the result, which
is partial. Of a sum only the first device adds x; in a maximum or a minimum x may count many times. The ops are linear
in x and u together, but for maxima and minima, which commute with their own kind.
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
REDUCTION = Attribute("reduction", types.one_of("sum", "max", "min"), "sum")
_FUNCTIONS = {"sum": "add", "max": "maximum", "min": "minimum"}


def _put_dtypes(signature: OpSignature) -> str | None:
    x, *ids, updates = signature.operands
    one = {x.dtype, updates.dtype, signature.results[0].dtype}
    good = ids and len(one) == 1 and all(is_integer(kind.dtype) for kind in ids)
    return None if good else "data, integer ids, updates and a result of the data's dtype"


def _modifiers(signature: OpSignature, loops: list[str], updates: int) -> str:
    """Return the modifiers of a rule: `loops` are those of the updates, which are operand `updates`."""
    accumulate, kind, names = signature.read(ACCUMULATE), signature.read(REDUCTION), " ".join(loops)
    if kind == "sum":
        return f"; linear 0+{updates}" + (f"; blocked {names}" if loops and not accumulate else "")
    if not accumulate:
        raise InvalidGraph("attribute 'reduction'", got=kind, wanted="sum, where 'accumulate' is false")
    return (f"; {kind} {names}" if loops else "") + f"; commutes {kind} 0+{updates}"


def _scatter_rule(signature: OpSignature) -> str:
    if len(signature.operands) != 3:
        raise InvalidGraph("number of operands", got=len(signature.operands), wanted="data, ids, updates")
    data, ids = dim_terms(signature, "v", "k")
    return f"{data}, {ids}, {ids} -> {data}{_modifiers(signature, ['k'], 2)}"


def _index_put_rule(signature: OpSignature) -> str:
    updates = len(signature.operands) - 1
    data, ids, read, loops = index_terms(signature, list(range(1, updates)))
    return f"{data}, {', '.join(ids)}, {read} -> {data}{_modifiers(signature, loops, updates)}"


def _base_array(local: OpContext, x: Array) -> Array:
    """Return the array to write to: x, or zeros on all but the first of the devices that compute terms of a sum."""
    is_first = not any(span.start for loop, span in local.spans.items() if loop[0] == "k")
    is_sum = local.read(ACCUMULATE) and local.read(REDUCTION) == "sum"
    return local.xp.zeros_like(x) if is_sum and not is_first else x.copy()


def _write(local: OpContext, ground: Array, inside: Array, *, places: tuple[Array, ...], updates: Array) -> None:
    if local.read(ACCUMULATE):
        kind = local.read(REDUCTION)
        # cupy adds no i64 at places, and sums of u64 have the same bits.
        bits = "uint64" if kind == "sum" and ground.dtype == "int64" else ground.dtype
        reduce_at = getattr(local.xp, _FUNCTIONS[kind]).at
        reduce_at(ground.view(bits), tuple(each[inside] for each in places), updates[inside].view(bits))
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
    return f"{whole}, {part}{', []' * starts} -> {whole}{_modifiers(signature, loops, 1)}"


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
        attrs=(DIM, ACCUMULATE, REDUCTION, BEYOND),
    ),
    OpDef(
        "index_put",
        _index_put_rule,
        _index_put,
        0,
        _put_dtypes,
        indexed_loops=indexed_operands(1),
        attrs=(DIMS, ACCUMULATE, REDUCTION, BEYOND),
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
