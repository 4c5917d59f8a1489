"""Attention over keys and values whose blocks pass round a ring of devices, forward and backward.

Partial softmax results are combined by their running maximum m and sum l (H. Liu, M. Zaharia, P. Abbeel, "Ring
Attention with Blockwise Transformers for Near-Infinite Context", 2023; M. Milakov, N. Gimelshein, "Online normalizer
calculation for softmax", 2018):

    m' = max(m, max(scores))              p = exp(scores - m')
    l' = l exp(m - m') + sum(p)            o' = o exp(m - m') + (p z) v

What is carried from step to step has 32 bits or more: n roundings would add up. A sink is a score that comes first:
m = sink, l = 1. The backward op reads no m and l. Its first round finds them and D = sum_t(dp p), with two of its five
products; the second has all five, and the gradients of each block travel with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from planner.ops.attention_scores import DROPOUT, draw_dropout, scale_of, score, split_others, sum_to_operand
from planner.ops.op_def import Array, OpContext, RingDef, RingRound, State


def _begin_softmax(local: OpContext, query: Array, sinks: Array | None, *, width: int) -> State:
    """Return m, l and a sum of `width` columns, before any key."""
    xp, rows, dtype = local.xp, query.shape[:-1], _carried_dtype(query)
    shares = xp.zeros((*rows, width), dtype)
    if sinks is None:
        return xp.full((*rows, 1), -math.inf, dtype), xp.zeros((*rows, 1), dtype), shares
    return xp.broadcast_to(sinks, (*rows, 1)).astype(dtype), xp.ones((*rows, 1), dtype), shares


def _carried_dtype(query: Array) -> Any:
    return query.dtype if query.dtype.itemsize >= 4 else "float32"


def _narrow(array: Array, like: Array) -> Array:
    """Return an array in the dtype of an operand, in which products are computed."""
    return array.astype(like.dtype, copy=False)


def _add_block(xp: Any, state: State, scores: Array, *, more: Callable[[Array], Array]) -> State:
    """Return m, l and the sum with a block of scores; `more` are its columns, of powers of the scores."""
    highest, total, shares = state
    new = xp.maximum(highest, scores.max(axis=-1, keepdims=True))
    base = _finite(xp, new)
    powers, fade = xp.exp(scores - base), xp.exp(highest - base)
    return new, total * fade + powers.sum(axis=-1, keepdims=True), shares * fade + more(powers)


def _finite(xp: Any, highest: Array) -> Array:
    """Return the maximum, or 0 for queries that have seen no key yet."""
    return xp.where(highest == -math.inf, highest.dtype.type(0), highest)


def _columns(local: OpContext, mask: Array | None) -> Array | None:
    """Return the mask of the block's keys."""
    if mask is None or mask.shape[-1] == 1:
        return mask
    span = local.spans["t"]
    return mask[(*(slice(None),) * (mask.ndim - 1), slice(span.start, span.start + span.length))]


def _begin_forward(local: OpContext, operands: Sequence[Array], _before: State) -> State:
    query, _, value, *others = operands
    _, sinks = split_others(local, tuple(others))
    return _begin_softmax(local, query, sinks, width=value.shape[-1])


def _step_forward(local: OpContext, operands: Sequence[Array], state: State, sums: State) -> tuple[State, State]:
    query, key, value, *others = operands
    mask, _ = split_others(local, tuple(others))
    scores = score(local, query, key, mask=_columns(local, mask))

    def weigh(powers: Array) -> Array:
        used = powers * draw_dropout(local, powers) if local.read(DROPOUT) else powers
        return local.xp.matmul(_narrow(used, value), value)

    return _add_block(local.xp, state, scores, more=weigh), sums


def _finish_forward(_local: OpContext, operands: Sequence[Array], state: State, _sums: State) -> tuple[Array, ...]:
    _, total, made = state
    return (_narrow(made / total, operands[0]),)


def _change(local: OpContext, operands: Sequence[Array]) -> tuple[Array, Array, Array | None]:
    """Return a block's scores, the gradient of its weights, and what dropout keeps of them."""
    query, key, value, grad, *others = operands
    mask, _ = split_others(local, tuple(others))
    scores = score(local, query, key, mask=_columns(local, mask))
    change = local.xp.matmul(grad, value.swapaxes(-1, -2))
    drawn = draw_dropout(local, scores) if local.read(DROPOUT) else None
    return scores, change if drawn is None else change * drawn, drawn


def _begin_weights(local: OpContext, operands: Sequence[Array], _before: State) -> State:
    query, _, _, _, *others = operands
    _, sinks = split_others(local, tuple(others))
    return _begin_softmax(local, query, sinks, width=1)


def _step_weights(local: OpContext, operands: Sequence[Array], state: State, sums: State) -> tuple[State, State]:
    scores, change, _ = _change(local, operands)

    def add(powers: Array) -> Array:
        return (change * powers).sum(axis=-1, keepdims=True)

    return _add_block(local.xp, state, scores, more=add), sums


def _begin_gradients(local: OpContext, operands: Sequence[Array], before: State) -> State:
    """Return the finite m, l, D, and zeros for the gradient of the queries."""
    highest, total, change = before
    return _finite(local.xp, highest), total, change / total, local.xp.zeros(operands[0].shape, total.dtype)


def _step_gradients(local: OpContext, operands: Sequence[Array], state: State, sums: State) -> tuple[State, State]:
    query, key, value, grad, *_ = operands
    base, total, mean, in_query = state
    xp, scale = local.xp, scale_of(local, query)
    scores, change, drawn = _change(local, operands)
    weights = xp.exp(scores - base) / total
    used, change = weights if drawn is None else weights * drawn, weights * (change - mean)
    used, change = _narrow(used, grad), _narrow(change, query)
    in_key = sum_to_operand(xp.matmul(change.swapaxes(-1, -2), query) * scale, key)
    in_value = sum_to_operand(xp.matmul(used.swapaxes(-1, -2), grad), value)
    return (base, total, mean, in_query + xp.matmul(change, key) * scale), (sums[0] + in_key, sums[1] + in_value)


def _finish_gradients(local: OpContext, operands: Sequence[Array], state: State, sums: State) -> tuple[Array, ...]:
    base, total, mean, in_query = state
    _, sinks = split_others(local, tuple(operands[4:]))
    in_query = _narrow(in_query, operands[0])
    if sinks is None:
        return in_query, *sums
    return in_query, *sums, _narrow(sum_to_operand(-local.xp.exp(sinks - base) / total * mean, sinks), sinks)


FORWARD_RING = RingDef((RingRound(_begin_forward, _step_forward),), _finish_forward)
BACKWARD_RING = RingDef(
    (RingRound(_begin_weights, _step_weights, 2 / 5), RingRound(_begin_gradients, _step_gradients)), _finish_gradients
)
