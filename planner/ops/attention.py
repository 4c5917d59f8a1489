"""Attention, forward and backward.

    p = softmax(q k^T scale + mask)    out = (p z) v    z = 1, or with dropout 0 or 1 / (1 - dropout)
    dv = (p z)^T dout    dp = dout v^T z    ds = p (dp - sum_t(dp p))    dq = ds k scale    dk = ds^T q scale
    dmask = ds

A head may have a sink: a further score, the same for all queries, whose weight takes part in no product
(OpenAI, gpt-oss-120b and gpt-oss-20b model card, 2025). The gradient of a sink with weight p' is -sum_s p' sum_t(dp p).

Queries (s) are independent of each other; where they are split, dk and dv are partial sums. dp is a sum over the dims
of a value (v); where these are split, dq, dk and dmask are partial sums. The softmax needs all keys (t), and q k^T
needs all dims of a head (e): both loops are blocked. The backward op recomputes p instead of reading it, as T. Dao et
al., "FlashAttention", 2022, do; z is drawn again by its position (`planner.ops.random_numbers`). With `ring`, blocks of
keys and values may pass round the devices that split the queries instead (`planner.ops.ring_attention`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from planner.errors import InvalidGraph
from planner.ir.dtypes import is_float
from planner.ir.graph import TensorType
from planner.ir.sharding import Shape
from planner.ops.attention_scores import (
    ATTRS,
    CAUSAL,
    DROPOUT,
    RING,
    SINKS,
    WINDOW,
    draw_dropout,
    scale_of,
    score,
    split_others,
    sum_to_operand,
)
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature
from planner.ops.random_numbers import DRAW_FLOPS, check_probability
from planner.ops.ring_attention import BACKWARD_RING, FORWARD_RING


def _attention_rule(signature: OpSignature) -> str:
    count = len(signature.operands) - signature.read(SINKS)
    if not 3 <= count <= 4:
        raise InvalidGraph("number of operands", got=count, wanted="query, key, value, mask?")
    _check_options(signature)
    mask = ", ... s t" if count == 4 else ""
    if mask and signature.operands[3].shape[-2:-1] == (1,) != signature.operands[0].shape[-2:-1]:
        mask = ", ... 1 t"
    sinks = ", ... 1 1" if signature.read(SINKS) else ""
    ring = _ring(signature, mask, rounds=len(FORWARD_RING.rounds))
    return f"... s e, ... t e, ... t v{mask}{sinks} -> ... s v; blocked t e; linear 2{ring}"


def _ring(signature: OpSignature, mask: str, rounds: int) -> str:
    """Return the modifier for blocks that travel, unless a mask is the same for all queries: it would travel too."""
    return f"; ring s t {rounds}" if signature.read(RING) and (not mask or mask.endswith("s t")) else ""


def _check_options(signature: OpSignature) -> None:
    check_probability(signature, DROPOUT)
    if signature.read(WINDOW) and not signature.read(CAUSAL):
        raise InvalidGraph("attribute 'window'", got=signature.read(WINDOW), wanted="0 where attention is not causal")


def _sinks(signature: OpSignature) -> tuple[TensorType, ...]:
    return signature.operands[-1:] if signature.read(SINKS) else ()


def _attention_dtypes(signature: OpSignature) -> str | None:
    kinds = {kind.dtype for kind in (*signature.operands[:3], *_sinks(signature), *signature.results)}
    mask = {kind.dtype for kind in signature.operands[3:]}
    good = len(kinds) == 1 and is_float(min(kinds)) and mask <= kinds | {"bool"}
    return None if good else "query, key, value of one float dtype; a bool mask or one of that dtype"


def _attention(local: OpContext, query: Array, key: Array, value: Array, *others: Array) -> Array:
    """Compute softmax(q k^T scale + mask) v. With `causal`, query i, counted over all devices, attends to keys 0..i."""
    mask, sinks = split_others(local, others)
    weights = _probabilities(local, query, key, mask=mask, sinks=sinks)
    return local.xp.matmul(weights * draw_dropout(local, weights) if local.read(DROPOUT) else weights, value)


def _probabilities(local: OpContext, query: Array, key: Array, *, mask: Array | None, sinks: Array | None) -> Array:
    xp, scores = local.xp, score(local, query, key, mask=mask)
    highest = scores.max(axis=-1, keepdims=True)
    if sinks is None:
        powers = xp.exp(scores - highest)
        return powers / powers.sum(axis=-1, keepdims=True)
    highest = xp.maximum(highest, sinks)
    powers = xp.exp(scores - highest)
    return powers / (powers.sum(axis=-1, keepdims=True) + xp.exp(sinks - highest))


def _count_flops(per_score: Callable[[Mapping[str, int]], float]) -> Callable[[Mapping[str, int]], float]:
    """Return a count of the operations on all scores, from a count for one score."""

    def count(sizes: Mapping[str, int]) -> float:
        batch = math.prod(size for loop, size in sizes.items() if loop not in "stev")
        return batch * sizes["s"] * sizes["t"] * per_score(sizes)

    return count


def _forward_flops(sizes: Mapping[str, int]) -> float:
    """Count two products (q k^T over e, p v over v) and about five operations."""
    return 2 * sizes["e"] + 2 * sizes["v"] + 5


def _computed_fraction(
    per_score: Callable[[Mapping[str, int]], float],
) -> Callable[[Mapping[str, object], Mapping[str, int]], float]:
    """Return what is computed, as a fraction of all scores' operations: visible scores, and the draws of a dropout.

    Of causal attention the device with the last s queries counts, which attend to t - s ... t of t keys, more than the
    queries of any other device.
    """

    def fraction(attrs: Mapping[str, object], sizes: Mapping[str, int]) -> float:
        s, t = sizes["s"], sizes["t"]
        visible = _visible_fraction(s, t, WINDOW.read(attrs)) if CAUSAL.read(attrs) and s <= t else 1.0
        return visible * (1 + DRAW_FLOPS / per_score(sizes)) if DROPOUT.read(attrs) else visible

    return fraction


def _visible_fraction(s: int, t: int, window: int) -> float:
    """Return the share of t keys that the last s of t queries attend to, each to `window` of them at most."""
    window, first = min(window or t, t), t - s
    whole = t - max(window, first)  # queries that attend to `window` keys; query i of the others attends to i
    rest = (window * window - first * first) / 2 if first < window else 0.0
    return (rest + whole * window) / (s * t)


def _backward_rule(signature: OpSignature) -> str:
    """Return the rule with the batch dims written out: dk and dv are sums over batch dims in which keys have size 1.

    A fourth result is the gradient of the mask; the last one is that of the sinks, where there are any.
    """
    has_sinks = signature.read(SINKS)
    count, made_count = len(signature.operands) - has_sinks, len(signature.results) - has_sinks
    if not 4 <= count <= 5:
        wanted = "query, key, value, gradient of the result, mask?"
        raise InvalidGraph("number of operands", got=count, wanted=wanted)
    _check_options(signature)
    batch = signature.operands[0].shape[:-2]
    query = _leading(batch, batch)
    key, value = (_leading(kind.shape[:-2], batch) for kind in signature.operands[1:3])
    mask = ""
    if count == 5:
        shape = signature.operands[4].shape
        rows = "1" if shape[-2] == 1 != signature.operands[0].shape[-2] else "s"
        mask = f", {_leading(shape[:-2], batch)} {rows} t"
    if not 3 <= made_count <= (4 if mask else 3):
        raise InvalidGraph("number of results", got=made_count, wanted="gradients of query, key, value, mask?")
    made = mask if made_count == 4 else ""
    sinks = f", {_leading(signature.operands[-1].shape[:-2], batch)} 1 1" if has_sinks else ""
    read = f"{query} s e, {key} t e, {value} t v, {query} s v{mask}{sinks}"
    ring = _ring(signature, mask, rounds=len(BACKWARD_RING.rounds))
    return f"{read} -> {query} s e, {key} t e, {value} t v{made}{sinks}; blocked t e; linear 3{ring}"


def _leading(shape: Shape, batch: Shape) -> str:
    """Return the term of leading dims that broadcast to the batch dims, aligned at the right."""
    names = [f"d{i}" for i in range(len(batch))][len(batch) - len(shape) :]
    whole = batch[len(batch) - len(shape) :]
    return " ".join("1" if have == 1 != want else name for have, want, name in zip(shape, whole, names, strict=True))


def _backward(
    local: OpContext, query: Array, key: Array, value: Array, grad: Array, *others: Array
) -> tuple[Array, ...]:
    xp = local.xp
    mask, sinks = split_others(local, others)
    weights = _probabilities(local, query, key, mask=mask, sinks=sinks)
    change, used = xp.matmul(grad, value.swapaxes(-1, -2)), weights
    if local.read(DROPOUT):
        drawn = draw_dropout(local, weights)
        change, used = change * drawn, weights * drawn
    mean = (change * weights).sum(axis=-1, keepdims=True)
    scale, in_sinks = scale_of(local, query), []
    if sinks is not None:
        taken = 1 - weights.sum(axis=-1, keepdims=True)
        in_sinks.append(sum_to_operand(-taken * mean, sinks))
    change = weights * (change - mean)
    in_mask = (sum_to_operand(change, mask),) if len(local.shapes) == 4 + len(in_sinks) else ()
    in_key = xp.matmul(change.swapaxes(-1, -2), query) * scale
    in_value = xp.matmul(used.swapaxes(-1, -2), grad)
    gradients = xp.matmul(change, key) * scale, sum_to_operand(in_key, key), sum_to_operand(in_value, value)
    return (*gradients, *in_mask, *in_sinks)


def _backward_dtypes(signature: OpSignature) -> str | None:
    kinds = {kind.dtype for kind in (*signature.operands[:4], *_sinks(signature), *signature.results)}
    mask = {kind.dtype for kind in signature.operands[4:]}
    fits = mask <= (kinds if len(signature.results) == 4 else kinds | {"bool"})
    good = len(kinds) == 1 and is_float(min(kinds)) and fits
    return None if good else "query, key, value, gradients of one float dtype; a bool mask or one of that dtype"


def _backward_flops(sizes: Mapping[str, int]) -> float:
    """Count five products (q k^T, dq, dk over e; dout v^T, dv over v) and about ten operations."""
    return 6 * sizes["e"] + 4 * sizes["v"] + 10


OP_DEFS = (
    OpDef(
        "scaled_dot_product_attention",
        _attention_rule,
        _attention,
        _count_flops(_forward_flops),
        _attention_dtypes,
        attrs=ATTRS,
        flops_fraction=_computed_fraction(_forward_flops),
        aligned_loops=("s", "t"),
        ring=FORWARD_RING,
    ),
    OpDef(
        "scaled_dot_product_attention_backward",
        _backward_rule,
        _backward,
        _count_flops(_backward_flops),
        _backward_dtypes,
        attrs=ATTRS,
        flops_fraction=_computed_fraction(_backward_flops),
        aligned_loops=("s", "t"),
        ring=BACKWARD_RING,
    ),
)
