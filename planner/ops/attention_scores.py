"""What attention computes of the keys that a device has: scores, what dropout keeps, and sums over broadcast dims.

`local.spans` say which queries (s) and keys (t) these are, of all.
"""

from __future__ import annotations

import math

from planner.ops import attribute_types as types
from planner.ops.attributes import Attribute
from planner.ops.op_def import Array, OpContext
from planner.ops.random_numbers import SEED, draw_mask, keep_scale

CAUSAL = Attribute("causal", types.FLAG, False)
SCALE: Attribute[float | None] = Attribute("scale", types.NUMBER, None)
DROPOUT = Attribute("dropout", types.NUMBER, 0)
WINDOW = Attribute("window", types.whole_number(0), 0)
"""The last keys that a query attends to, where attention is causal; 0: all up to its own."""
SINKS = Attribute("sinks", types.FLAG, False)
"""Whether the last operand is the scores of sinks, [..., 1, 1]; the last gradient is then that of the sinks."""
RING = Attribute("ring", types.FLAG, False)
"""Whether blocks of keys and values may pass round a ring of devices that split the queries."""
ATTRS = (CAUSAL, SCALE, DROPOUT, SEED, WINDOW, SINKS, RING)


def split_others(local: OpContext, others: tuple[Array, ...]) -> tuple[Array | None, Array | None]:
    """Return the mask and the scores of the sinks, each None where the op has none."""
    *masks, sinks = others if local.read(SINKS) else (*others, None)
    return (masks[0] if masks else None), sinks


def draw_dropout(local: OpContext, weights: Array) -> Array:
    """Return z: 0 for the weights that dropout drops, by their positions, and what it multiplies the others by."""
    count = weights.ndim - 2
    # The forward rule's `...` names batch dims from the last one, the backward rule from the first.
    batch = [f"d{dim}" if "d0" in local.spans else f"_{count - 1 - dim}" for dim in range(count)]
    mask = draw_mask(local, [local.spans[loop] for loop in (*batch, "s", "t")], local.read(DROPOUT))
    return mask.astype(weights.dtype) * weights.dtype.type(keep_scale(local.read(DROPOUT)))


def scale_of(local: OpContext, query: Array) -> Array:
    scale = local.read(SCALE)
    return query.dtype.type(1 / math.sqrt(query.shape[-1]) if scale is None else scale)


def score(local: OpContext, query: Array, key: Array, *, mask: Array | None) -> Array:
    """Return q k^T scale + mask of the device's keys, -inf where a query does not see a key."""
    xp = local.xp
    scores = xp.matmul(query, key.swapaxes(-1, -2)) * scale_of(local, query)
    if local.read(CAUSAL):
        rows = local.spans["s"].start + xp.arange(scores.shape[-2])[:, None]
        columns, window = xp.arange(local.spans["t"].start, local.spans["t"].stop)[None, :], local.read(WINDOW)
        visible = columns <= rows
        if window:
            visible = visible & (columns > rows - window)
        scores = xp.where(visible, scores, query.dtype.type(-math.inf))
    if mask is not None:
        scores = xp.where(mask, scores, query.dtype.type(-math.inf)) if mask.dtype == bool else scores + mask
    return scores


def sum_to_operand(gradient: Array, operand: Array) -> Array:
    """Sum a gradient over the dims in which its operand is broadcast or that it lacks."""
    gradient = gradient.sum(axis=tuple(range(gradient.ndim - operand.ndim)))
    axes = tuple(axis for axis in range(operand.ndim) if gradient.shape[axis] != operand.shape[axis])
    return gradient.sum(axis=axes, keepdims=True) if axes else gradient
