"""Ops that order the elements along a dim, which is not split.

Equal elements keep their order; of equal extremes the first counts.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.errors import InvalidGraph
from planner.ir.dtypes import is_integer
from planner.ops import attribute_types as types
from planner.ops.attributes import DIM, KEEPDIM, Attribute
from planner.ops.gather import dim_terms
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature

DESCENDING = Attribute("descending", types.FLAG, False)


def _order(local: OpContext, x: Array, axis: int, *, descending: bool) -> Array:
    """Return the positions of the elements in ascending order, or in descending order, equal elements by position."""
    if not descending:
        return local.xp.argsort(x, axis=axis, kind="stable")
    # Reversing the ascending order would reverse equal elements too: sort the flipped array instead.
    return x.shape[axis] - 1 - local.xp.flip(local.xp.argsort(local.xp.flip(x, axis), axis=axis, kind="stable"), axis)


def _topk_rule(signature: OpSignature) -> str:
    data, chosen = dim_terms(signature, "n", "k")
    dim = signature.read(DIM)
    size, count = signature.operands[0].shape[dim], signature.results[0].shape[dim]
    if count > size:
        raise InvalidGraph("more of the largest elements than the dim has", got=count, wanted=f"at most {size}")
    return f"{data} -> {chosen}, {chosen}; blocked n k"


def _topk(local: OpContext, x: Array) -> tuple[Array, Array]:
    """Return the largest elements in descending order, and their positions."""
    axis, count = local.read(DIM, x.ndim), local.spans["k"].size
    places = _order(local, x, axis, descending=True)[(slice(None),) * axis + (slice(count),)]
    return local.xp.take_along_axis(x, places, axis=axis), places.astype(local.dtypes[1])


def _topk_dtypes(signature: OpSignature) -> str | None:
    values, ids = signature.results
    good = values.dtype == signature.operands[0].dtype != "bool" and is_integer(ids.dtype)
    return None if good else "numbers in, numbers of the same dtype and integer positions out"


def _sort_rule(signature: OpSignature) -> str:
    (data,) = dim_terms(signature, "n")
    return f"{data} -> {data}, {data}; blocked n"


def _sort(local: OpContext, x: Array) -> tuple[Array, Array]:
    axis = local.read(DIM, x.ndim)
    places = _order(local, x, axis, descending=local.read(DESCENDING))
    return local.xp.take_along_axis(x, places, axis=axis), places.astype(local.dtypes[1])


def _arg_rule(signature: OpSignature) -> str:
    data, dropped = dim_terms(signature, "n", "1" if signature.read(KEEPDIM) else "")
    return f"{data} -> {dropped.strip() or '[]'}; blocked n"


def _arg(numpy_name: str) -> Callable[[OpContext, Array], Array]:
    def compute(local: OpContext, x: Array) -> Array:
        axis, keepdim = local.read(DIM, x.ndim), local.read(KEEPDIM)
        return getattr(local.xp, numpy_name)(x, axis=axis, keepdims=keepdim).astype(local.dtypes[0])

    return compute


def _arg_dtypes(signature: OpSignature) -> str | None:
    return None if is_integer(signature.results[0].dtype) else "integer positions out"


OP_DEFS = (
    OpDef("topk", _topk_rule, _topk, 8, _topk_dtypes, attrs=(DIM,)),
    OpDef("sort", _sort_rule, _sort, 16, _topk_dtypes, attrs=(DIM, DESCENDING)),
    OpDef("argmax", _arg_rule, _arg("argmax"), 1, _arg_dtypes, attrs=(DIM, KEEPDIM)),
    OpDef("argmin", _arg_rule, _arg("argmin"), 1, _arg_dtypes, attrs=(DIM, KEEPDIM)),
)
