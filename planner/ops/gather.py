"""Ops that read elements at given positions, and the terms and functions that they share with `scatter`.

The loop of positions (`v`) may be split: each device returns the elements at positions in its part and zeros for the
others, so that the result is a partial sum over the devices.

    embedding      y[.., d] = table[ids[..], d]
    index          y[b, k, a] = x[b, ids0[k], ids1[k], .., a]   (k: all dims of the ids, broadcast together; they
                   replace the indexed dims, which are adjacent; b, a: the dims before and after these)
    gather         y[.., k, ..] = x[.., ids[.., k, ..], ..]     along one dim; all other dims are equal
    dynamic_slice  y[.., k, ..] = x[.., start + k, ..]          the start is clamped so that the slice is inside
    one_hot        y[.., v] = (ids[..] = v)
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from planner.errors import InvalidGraph
from planner.ir.dtypes import is_float, is_integer
from planner.ops.attributes import DIM, DIMS
from planner.ops.local_indices import (
    BEYOND,
    broadcast_term,
    indexed_dims,
    indexed_operands,
    local_positions,
    name_loops,
)
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature


def _lookup_dtypes(signature: OpSignature) -> str | None:
    data, *ids = signature.operands
    good = ids and all(is_integer(kind.dtype) for kind in ids) and signature.results[0].dtype == data.dtype
    return None if good else "data, integer ids, and a result of the data's dtype"


def _check_two_operands(signature: OpSignature, what: str) -> None:
    if len(signature.operands) != 2:
        raise InvalidGraph("number of operands", got=len(signature.operands), wanted=what)


def _embedding_rule(signature: OpSignature) -> str:
    _check_two_operands(signature, "table, ids")
    return "v d, ... -> ... d; linear 0"


def _embedding(local: OpContext, table: Array, ids: Array) -> Array:
    """Return the rows of the local part of the table, and zeros for ids of other parts."""
    inside, places = local_positions(local, ids, "v")
    if local.spans["v"].length == 0:
        return local.xp.zeros(local.shapes[0], local.dtypes[0])
    return local.xp.where(inside[..., None], table[places], table.dtype.type(0))


def _embedding_backward_rule(signature: OpSignature) -> str:
    _check_two_operands(signature, "gradient of the rows, ids")
    return "... d, ... -> v d; linear 0"


def _embedding_backward(local: OpContext, grad: Array, ids: Array) -> Array:
    """Return for each row of the local part of the table the sum of the gradients of its uses."""
    inside, places = local_positions(local, ids, "v")
    rows = local.xp.zeros(local.shapes[0], local.dtypes[0])
    local.xp.add.at(rows, places[inside], grad[inside])
    return rows


def index_terms(signature: OpSignature, ids: list[int]) -> tuple[str, list[str], str, list[str]]:
    """Return the terms of the data, the ids and the elements read, and the loops over the ids.

    Raises InvalidGraph where the indexed dims are not adjacent.
    """
    rank, shapes = signature.rank(0), [signature.operands[i].shape for i in ids]
    dims = indexed_dims(signature, len(ids))
    first = dims[0] if dims else 0
    if dims != tuple(range(first, first + len(dims))) or not dims:
        raise InvalidGraph("attribute 'dims'", got=list(dims), wanted="adjacent dims, in order")
    places = np.broadcast_shapes(*shapes)
    names, k = name_loops(rank), name_loops(len(places), "k")
    data = [f"v{i - first}" if i in dims else name for i, name in enumerate(names)]
    read = [*names[:first], *k, *names[first + len(dims) :]]
    return " ".join(data), [broadcast_term(shape, places, k) for shape in shapes], " ".join(read) or "[]", k


def _index_rule(signature: OpSignature) -> str:
    data, ids, read, _ = index_terms(signature, list(range(1, len(signature.operands))))
    return f"{data}, {', '.join(ids)} -> {read}; linear 0"


def local_index_positions(local: OpContext, ids: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
    """Return which positions in several loops, broadcast together, are in the local part of each, and where there."""
    each = [local_positions(local, array, f"v{k}") for k, array in enumerate(ids)]
    inside, *places = local.xp.broadcast_arrays(
        reduce(local.xp.logical_and, (one for one, _ in each)), *(place for _, place in each)
    )
    return inside, tuple(places)


def move_to_front(local: OpContext, array: Array, first: int, *, count: int) -> Array:
    return local.xp.moveaxis(array, range(first, first + count), range(count))


def _index(local: OpContext, x: Array, *ids: Array) -> Array:
    first = local.read(DIMS, x.ndim)[0]
    inside, places = local_index_positions(local, ids)
    if x.size == 0:
        return local.xp.zeros(local.shapes[0], local.dtypes[0])
    read = move_to_front(local, x, first, count=len(ids))[places]
    read = local.xp.where(inside.reshape(inside.shape + (1,) * (read.ndim - inside.ndim)), read, x.dtype.type(0))
    return local.xp.moveaxis(read, range(inside.ndim), range(first, first + inside.ndim))


def dim_terms(signature: OpSignature, *loops: str) -> list[str]:
    """Return one term per given loop: that loop in dim `dim`, and the same loops in the other dims."""
    rank = signature.rank(0)
    dim = signature.read(DIM)
    return [" ".join([*name_loops(rank)[:dim], loop, *name_loops(rank)[dim + 1 :]]) for loop in loops]


def _gather_rule(signature: OpSignature) -> str:
    _check_two_operands(signature, "data, ids")
    data, ids = dim_terms(signature, "v", "k")
    return f"{data}, {ids} -> {ids}; linear 0"


def _gather(local: OpContext, x: Array, ids: Array) -> Array:
    inside, places = local_positions(local, ids, "v")
    if local.spans["v"].length == 0:
        return local.xp.zeros(local.shapes[0], local.dtypes[0])
    values = local.xp.take_along_axis(x, places, axis=local.read(DIM, x.ndim))
    return local.xp.where(inside, values, x.dtype.type(0))


def slice_terms(signature: OpSignature, starts: int) -> tuple[str, str, list[str]]:
    """Return the terms of the whole (loops v) and of a slice of it (loops k), and the loops k.

    `starts` is the number of sliced dims.
    """
    names, dims = name_loops(signature.rank(0)), indexed_dims(signature, starts)
    whole = [f"v{dims.index(i)}" if i in dims else name for i, name in enumerate(names)]
    part = [f"k{dims.index(i)}" if i in dims else name for i, name in enumerate(names)]
    return " ".join(whole), " ".join(part), [f"k{j}" for j in range(len(dims))]


def _dynamic_slice_rule(signature: OpSignature) -> str:
    starts = len(signature.operands) - 1
    whole, part, _ = slice_terms(signature, starts)
    return f"{whole}{', []' * starts} -> {part}; linear 0"


def clamp_start(local: OpContext, start: Array, k: int) -> Array:
    """Clamp a start so that the slice is inside the whole."""
    return start.astype("int64").clip(0, local.spans[f"v{k}"].size - local.spans[f"k{k}"].size)


def _dynamic_slice(local: OpContext, x: Array, *starts: Array) -> Array:
    if x.size == 0:
        return local.xp.zeros(local.shapes[0], local.dtypes[0])
    for k, (dim, start) in enumerate(zip(local.read(DIMS, x.ndim), starts, strict=True)):
        span = local.spans[f"k{k}"]
        wanted = clamp_start(local, start, k) + local.xp.arange(span.start, span.stop)
        inside, places = local_positions(local, wanted.clip(0, local.spans[f"v{k}"].size - 1), f"v{k}")
        x = local.xp.where(inside.reshape(-1, *(1,) * (x.ndim - dim - 1)), x.take(places, axis=dim), x.dtype.type(0))
    return x


def _starts_dtypes(signature: OpSignature) -> str | None:
    data, *starts = signature.operands
    good = all(is_integer(kind.dtype) for kind in starts) and signature.results[0].dtype == data.dtype
    return None if good else "data, integer starts, and a result of the data's dtype"


def _one_hot(local: OpContext, ids: Array) -> Array:
    """Return ones at the ids and zeros elsewhere, for the local part of the classes."""
    inside, places = local_positions(local, ids, "v")
    hits = local.xp.arange(local.spans["v"].length) == places[..., None]
    return (hits & inside[..., None]).astype(local.dtypes[0])


def _one_hot_dtypes(signature: OpSignature) -> str | None:
    return None if is_integer(signature.operands[0].dtype) else "integer ids"


def _cross_entropy_backward(local: OpContext, grad: Array, logits: Array, lse: Array, ids: Array) -> Array:
    """Return grad (softmax(logits) - one_hot(ids)) along the last dim, whose log-sum-exp is `lse` on every device."""
    span = local.spans["v"]
    hits = local.xp.arange(span.start, span.stop) == ids
    return ((local.xp.exp(logits - lse) - hits) * grad).astype(local.dtypes[0], copy=False)


def _cross_entropy_dtypes(signature: OpSignature) -> str | None:
    grad, logits, lse, ids = signature.operands
    floats = grad.dtype == lse.dtype and all(is_float(kind.dtype) for kind in (grad, logits))
    good = floats and is_integer(ids.dtype) and signature.results[0].dtype == logits.dtype
    return None if good else "gradient and log-sum-exp of one float dtype, float logits, integer ids; as the logits out"


OP_DEFS = (
    OpDef("embedding", _embedding_rule, _embedding, 0, _lookup_dtypes, indexed_loops={1: "v"}, attrs=(BEYOND,)),
    OpDef(
        "embedding_backward",
        _embedding_backward_rule,
        _embedding_backward,
        0,
        _lookup_dtypes,
        indexed_loops={1: "v"},
        attrs=(BEYOND,),
    ),
    OpDef(
        "index",
        _index_rule,
        _index,
        0,
        _lookup_dtypes,
        indexed_loops=indexed_operands(1),
        attrs=(DIMS, BEYOND),
    ),
    OpDef("gather", _gather_rule, _gather, 0, _lookup_dtypes, indexed_loops={1: "v"}, attrs=(DIM, BEYOND)),
    OpDef(
        "dynamic_slice",
        _dynamic_slice_rule,
        _dynamic_slice,
        0,
        _starts_dtypes,
        indexed_loops=indexed_operands(1),
        attrs=(DIMS,),
    ),
    OpDef("one_hot", "... -> ... v", _one_hot, 1, _one_hot_dtypes, indexed_loops={0: "v"}, attrs=(BEYOND,)),
    OpDef(
        "cross_entropy_backward",
        "... 1, ... v, ... 1, ... 1 -> ... v; linear 0",
        _cross_entropy_backward,
        7,
        _cross_entropy_dtypes,
        indexed_loops={3: "v"},
    ),
)
