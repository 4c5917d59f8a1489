"""Ops that read or write at positions given by numbers.

A loop that positions run over (`v`) may be split: every device serves the positions in its part and gives zeros for
the others, so that what is read is a sum over the devices, and what is written is each one's own part.
"""

from __future__ import annotations

from planner.errors import InvalidGraph
from planner.model.dtypes import is_float, is_integer
from planner.model.ops.row import Array, Local, Row, Signature


def _lookup_dtypes(signature: Signature) -> str | None:
    data, ids = signature.operands
    good = is_integer(ids.dtype) and signature.results[0].dtype == data.dtype
    return None if good else "data, integer ids, and a result of the data's dtype"


def _two(signature: Signature, what: str) -> None:
    if len(signature.operands) != 2:
        raise InvalidGraph("number of operands", got=len(signature.operands), wanted=what)


def _embedding_rule(signature: Signature) -> str:
    _two(signature, "table, ids")
    return "v d, ... -> ... d; linear 0"


def _inside(local: Local, ids: Array) -> tuple[Array, Array]:
    """Which ids are in the local part of v, and their places there (0 for the others). Raises IndexError."""
    span = local.spans["v"]
    if ids.size and not (int(ids.min()) >= 0 and int(ids.max()) < span.size):
        raise IndexError(f"id out of range: got {int(ids.min())}..{int(ids.max())}, wanted 0..{span.size - 1}")
    inside = (ids >= span.start) & (ids < span.stop)
    return inside, local.xp.where(inside, ids - span.start, 0)


def _embedding(local: Local, table: Array, ids: Array) -> Array:
    """Rows of the local part of the table, zero for ids of other parts."""
    inside, places = _inside(local, ids)
    if local.spans["v"].length == 0:
        return local.xp.zeros(local.shapes[0], local.dtypes[0])
    return local.xp.where(inside[..., None], table[places], table.dtype.type(0))


def _embedding_backward_rule(signature: Signature) -> str:
    _two(signature, "gradient of the rows, ids")
    return "... d, ... -> v d; linear 0"


def _embedding_backward(local: Local, grad: Array, ids: Array) -> Array:
    """Every row of the local part of the table: the sum of the gradients of where it was read."""
    inside, places = _inside(local, ids)
    rows = local.xp.zeros(local.shapes[0], local.dtypes[0])
    local.xp.add.at(rows, places[inside], grad[inside])
    return rows


def _gather_rule(signature: Signature) -> str:
    """result[.., k, ..] = x[.., ids[.., k, ..], ..] along `dim`; the other dims are the same dims."""
    _two(signature, "data, ids")
    rank = signature.rank(0)
    dim = signature.dim("dim", rank)
    data, ids = (" ".join(loop if i == dim else f"d{i}" for i in range(rank)) for loop in "vk")
    return f"{data}, {ids} -> {ids}; linear 0"


def _gather(local: Local, x: Array, ids: Array) -> Array:
    inside, places = _inside(local, ids)
    if local.spans["v"].length == 0:
        return local.xp.zeros(local.shapes[0], local.dtypes[0])
    taken = local.xp.take_along_axis(x, places, axis=int(local.number("dim")))
    return local.xp.where(inside, taken, x.dtype.type(0))


def _topk_rule(signature: Signature) -> str:
    rank = signature.rank(0)
    dim = signature.dim("dim", rank)
    size, count = signature.operands[0].shape[dim], signature.results[0].shape[dim]
    if count > size:
        raise InvalidGraph("more of the largest than there are", got=count, wanted=f"at most {size}")
    data, chosen = (" ".join(loop if i == dim else f"d{i}" for i in range(rank)) for loop in "nk")
    return f"{data} -> {chosen}, {chosen}; blocked n k"


def _topk(local: Local, x: Array) -> tuple[Array, Array]:
    """The largest, in falling order, and where they are; equal ones in the order in which they stand."""
    axis, count = int(local.number("dim")) % x.ndim, local.spans["k"].size
    places = local.xp.argsort(-x, axis=axis, kind="stable")[(slice(None),) * axis + (slice(count),)]
    return local.xp.take_along_axis(x, places, axis=axis), places.astype(local.dtypes[1])


def _topk_dtypes(signature: Signature) -> str | None:
    values, ids = signature.results
    good = values.dtype == signature.operands[0].dtype != "bool" and is_integer(ids.dtype)
    return None if good else "numbers in, numbers of the same dtype and integer positions out"


def _cross_entropy_backward(local: Local, grad: Array, logits: Array, lse: Array, ids: Array) -> Array:
    """grad (softmax(logits) - one_hot(ids)) along the last dim; `lse` is the log-sum-exp over the whole of it."""
    span = local.spans["v"]
    hits = local.xp.arange(span.start, span.stop) == ids
    return ((local.xp.exp(logits - lse) - hits) * grad).astype(local.dtypes[0], copy=False)


def _cross_entropy_dtypes(signature: Signature) -> str | None:
    grad, logits, lse, ids = signature.operands
    floats = grad.dtype == lse.dtype and all(is_float(kind.dtype) for kind in (grad, logits))
    good = floats and is_integer(ids.dtype) and signature.results[0].dtype == logits.dtype
    return None if good else "gradient and log-sum-exp of one float dtype, float logits, integer ids; as the logits out"


LOOKED_UP = {1: "v"}

ROWS = (
    Row("embedding", _embedding_rule, _embedding, 0, _lookup_dtypes, indexes=LOOKED_UP),
    Row("embedding_backward", _embedding_backward_rule, _embedding_backward, 0, _lookup_dtypes, indexes=LOOKED_UP),
    Row("gather", _gather_rule, _gather, 0, _lookup_dtypes, indexes=LOOKED_UP, attrs=("dim",)),
    Row("topk", _topk_rule, _topk, 8, _topk_dtypes, attrs=("dim",)),
    Row(
        "cross_entropy_backward",
        "... 1, ... v, ... 1, ... 1 -> ... v; linear 0",
        _cross_entropy_backward,
        7,
        _cross_entropy_dtypes,
        indexes={3: "v"},
    ),
)
