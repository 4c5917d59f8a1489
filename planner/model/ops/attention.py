"""Attention and table look-up."""

from __future__ import annotations

import math
from collections.abc import Mapping

from planner.errors import InvalidGraph
from planner.model.dtypes import is_float, is_integer
from planner.model.ops.row import Array, Local, Row, Signature


def _attention_rule(signature: Signature) -> str:
    if not 3 <= len(signature.operands) <= 4:
        raise InvalidGraph("number of operands", got=len(signature.operands), wanted="query, key, value, mask?")
    mask = ", ... s t" if len(signature.operands) == 4 else ""
    if mask and signature.operands[3].shape[-2:-1] == (1,) != signature.operands[0].shape[-2:-1]:
        mask = ", ... 1 t"
    return f"... s e, ... t e, ... t v{mask} -> ... s v; blocked t e; linear 2"


def _attention_dtypes(signature: Signature) -> str | None:
    kinds = {kind.dtype for kind in (*signature.operands[:3], *signature.results)}
    mask = {kind.dtype for kind in signature.operands[3:]}
    good = len(kinds) == 1 and is_float(min(kinds)) and mask <= kinds | {"bool"}
    return None if good else "query, key, value of one float dtype; a bool mask or one of that dtype"


def _attention(local: Local, query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """softmax(q k^T scale + mask) v; with `causal`, query i (of the whole loop) sees keys 0..i."""
    xp = local.xp
    scale = local.attrs.get("scale")
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = xp.matmul(query, key.swapaxes(-1, -2)) * query.dtype.type(scale)
    if local.attrs.get("causal"):
        rows = local.spans["s"].start + xp.arange(scores.shape[-2])
        visible = xp.arange(scores.shape[-1])[None, :] <= rows[:, None]
        scores = xp.where(visible, scores, query.dtype.type(-math.inf))
    if mask is not None:
        scores = xp.where(mask, scores, query.dtype.type(-math.inf)) if mask.dtype == bool else scores + mask
    powers = xp.exp(scores - scores.max(axis=-1, keepdims=True))
    return xp.matmul(powers / powers.sum(axis=-1, keepdims=True), value)


def _attention_flops(sizes: Mapping[str, int]) -> float:
    """Two products (q k^T over e, p v over v) and about five operations a score."""
    batch = math.prod(size for loop, size in sizes.items() if loop not in "stev")
    return batch * sizes["s"] * sizes["t"] * (2 * sizes["e"] + 2 * sizes["v"] + 5)


def _embedding_dtypes(signature: Signature) -> str | None:
    table, ids = signature.operands
    good = is_integer(ids.dtype) and signature.results[0].dtype == table.dtype
    return None if good else "a table, integer ids, and a result of the table's dtype"


def _embedding_rule(signature: Signature) -> str:
    if len(signature.operands) != 2:
        raise InvalidGraph("number of operands", got=len(signature.operands), wanted="table, ids")
    return "v d, ... -> ... d; linear 0"


def _embedding(local: Local, table: Array, ids: Array) -> Array:
    """Rows of the local part of the table, zero for ids of other parts."""
    span = local.spans["v"]
    if ids.size and not (int(ids.min()) >= 0 and int(ids.max()) < span.size):
        raise IndexError(f"id out of range: got {int(ids.min())}..{int(ids.max())}, wanted 0..{span.size - 1}")
    if span.length == 0:
        return local.xp.zeros(local.shapes[0], local.dtypes[0])
    inside = (ids >= span.start) & (ids < span.stop)
    rows = table[local.xp.where(inside, ids - span.start, 0)]
    return local.xp.where(inside[..., None], rows, table.dtype.type(0))


ROWS = (
    Row(
        "scaled_dot_product_attention",
        _attention_rule,
        _attention,
        _attention_flops,
        _attention_dtypes,
        attrs=("causal", "scale"),
    ),
    Row("embedding", _embedding_rule, _embedding, 0, _embedding_dtypes, indexes={1: "v"}),
)
