"""Ops that order the elements along a dim: they need the whole of it at once.

Equal elements keep the order in which they stand; of equal extremes the first counts.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.errors import InvalidGraph
from planner.model.dtypes import is_integer
from planner.model.ops.lookup import along
from planner.model.ops.row import Array, Local, Row, Signature


def _ordered(local: Local, x: Array, axis: int, descending: bool) -> Array:
    """Where the elements stand, the least first; of the greatest first: the order of those counted from the end."""
    if not descending:
        return local.xp.argsort(x, axis=axis, kind="stable")
    return x.shape[axis] - 1 - local.xp.flip(local.xp.argsort(local.xp.flip(x, axis), axis=axis, kind="stable"), axis)


def _topk_rule(signature: Signature) -> str:
    data, chosen = along(signature, "n", "k")
    dim = signature.dim("dim", signature.rank(0))
    size, count = signature.operands[0].shape[dim], signature.results[0].shape[dim]
    if count > size:
        raise InvalidGraph("more of the largest than there are", got=count, wanted=f"at most {size}")
    return f"{data} -> {chosen}, {chosen}; blocked n k"


def _topk(local: Local, x: Array) -> tuple[Array, Array]:
    """The largest, in falling order, and where they are."""
    axis, count = int(local.number("dim")) % x.ndim, local.spans["k"].size
    places = _ordered(local, x, axis, descending=True)[(slice(None),) * axis + (slice(count),)]
    return local.xp.take_along_axis(x, places, axis=axis), places.astype(local.dtypes[1])


def _placed_dtypes(signature: Signature) -> str | None:
    values, ids = signature.results
    good = values.dtype == signature.operands[0].dtype != "bool" and is_integer(ids.dtype)
    return None if good else "numbers in, numbers of the same dtype and integer positions out"


def _sort_rule(signature: Signature) -> str:
    (data,) = along(signature, "n")
    return f"{data} -> {data}, {data}; blocked n"


def _sort(local: Local, x: Array) -> tuple[Array, Array]:
    axis = int(local.number("dim"))
    places = _ordered(local, x, axis, bool(local.attrs.get("descending")))
    return local.xp.take_along_axis(x, places, axis=axis), places.astype(local.dtypes[1])


def _place_rule(signature: Signature) -> str:
    data, dropped = along(signature, "n", "1" if signature.attrs.get("keepdim") else "")
    return f"{data} -> {dropped.strip() or '[]'}; blocked n"


def _place(numpy_name: str) -> Callable[[Local, Array], Array]:
    def compute(local: Local, x: Array) -> Array:
        axis, keepdim = int(local.number("dim")), bool(local.attrs.get("keepdim"))
        return getattr(local.xp, numpy_name)(x, axis=axis, keepdims=keepdim).astype(local.dtypes[0])

    return compute


def _place_dtypes(signature: Signature) -> str | None:
    return None if is_integer(signature.results[0].dtype) else "integer positions out"


ROWS = (
    Row("topk", _topk_rule, _topk, 8, _placed_dtypes, attrs=("dim",)),
    Row("sort", _sort_rule, _sort, 16, _placed_dtypes, attrs=("dim", "descending")),
    Row("argmax", _place_rule, _place("argmax"), 1, _place_dtypes, attrs=("dim", "keepdim")),
    Row("argmin", _place_rule, _place("argmin"), 1, _place_dtypes, attrs=("dim", "keepdim")),
)
