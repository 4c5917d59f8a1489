"""Attention of one new token to the keys and values of earlier ones, and to its own.

    p = softmax(q [K; k]^T scale)    out = p [V; v]

The cache [K; V] has room for t tokens, of which the first `length` are there; the scores of the others do not count.
The new key k and value v are operands of their own: whoever keeps the cache writes them into it, one place for each
sequence, so that the op reads the cache once and copies none of it (as in W. Kwon et al., "Efficient memory management
for large language model serving with PagedAttention", 2023). A head may have a sink (`planner.ops.attention`).

The softmax needs all keys (t), and q K^T all dims of a head (e): both loops are blocked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from planner.errors import InvalidGraph
from planner.ir.dtypes import is_float, is_integer
from planner.ops.attention_scores import SCALE, SINKS
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature

OPERANDS = "query, cached keys, cached values, new key, new value, length"


def _rule(signature: OpSignature) -> str:
    has_sinks = signature.read(SINKS)
    count = len(signature.operands) - has_sinks
    if count != 6:
        raise InvalidGraph("number of operands", got=count, wanted=OPERANDS)
    return f"... 1 e, ... t e, ... t v, ... 1 e, ... 1 v, []{', ... 1 1' if has_sinks else ''} -> ... 1 v; blocked t e"


def _dtypes(signature: OpSignature) -> str | None:
    floats = [kind.dtype for place, kind in enumerate(signature.operands) if place != 5]
    one = {*floats, *(kind.dtype for kind in signature.results)}
    length = [kind.dtype for kind in signature.operands[5:6]]
    good = len(one) == 1 and is_float(min(one)) and all(map(is_integer, length))
    return None if good else "tensors of one float dtype, and an integer length"


def _attend(
    local: OpContext, query: Array, keys: Array, values: Array, key: Array, value: Array, length: Array, *sinks: Array
) -> Array:
    xp, given = local.xp, local.read(SCALE)
    scale = query.dtype.type(1 / math.sqrt(query.shape[-1]) if given is None else given)
    scores = xp.matmul(query, keys.swapaxes(-1, -2)) * scale
    scores = xp.where(xp.arange(scores.shape[-1]) < length, scores, query.dtype.type(-math.inf))
    own = (query * key).sum(axis=-1, keepdims=True) * scale
    highest = xp.maximum(scores.max(axis=-1, keepdims=True), own)
    for sink in sinks:
        highest = xp.maximum(highest, sink)
    powers, mine = xp.exp(scores - highest), xp.exp(own - highest)
    total = powers.sum(axis=-1, keepdims=True) + mine + sum(xp.exp(sink - highest) for sink in sinks)
    return (xp.matmul(powers, values) + mine * value) / total


def _flops(sizes: Mapping[str, int]) -> float:
    """Count two products of a token with all keys and values, and about five operations on every score."""
    batch = math.prod(size for loop, size in sizes.items() if loop not in "tev")
    return batch * (sizes["t"] + 1) * (2 * sizes["e"] + 2 * sizes["v"] + 5)


OP_DEFS = (OpDef("cached_attention", _rule, _attend, _flops, _dtypes, attrs=(SCALE, SINKS)),)
