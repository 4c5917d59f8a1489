"""Batch normalization over all dims but the channels, which are the second dim of x.

    m = mean(x)    v = mean((x - m)^2)    r = 1 / sqrt(v + eps)    h = (x - m) r    y = h w (+ b)
    dw = sum(dy h)    db = sum(dy)        dx = r w (dy - (db + h dw) / n), n numbers in each channel

In training m and v are those of the whole batch, on however many devices; in inference they are given. The variance is
that of differences from the mean, as E[x^2] - m^2 loses what it subtracts. Where other dims than the channels are
split, m, v, dw and db are partial sums.

S. Ioffe, C. Szegedy, "Batch normalization", 2015. The steps are those of torch's SyncBatchNorm.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from planner.errors import InvalidGraph
from planner.ops import attribute_types as types
from planner.ops.attributes import Attribute
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature, any_float

EPS = Attribute("eps", types.NUMBER, 1e-5)
CHANNELS = "c"


def _whole(signature: OpSignature) -> str:
    """Return the term of x. Raises InvalidGraph where x has no channels."""
    rank = signature.rank(0)
    if rank < 2:
        raise InvalidGraph("rank", got=rank, wanted="at least 2: batch, channels, others")
    return " ".join(["n", CHANNELS, *(f"d{i}" for i in range(rank - 2))])


def _rule(
    wanted: str, *, images: int, vectors: range, results: str, modifiers: str = ""
) -> Callable[[OpSignature], str]:
    """Return a rule whose operands are `images` tensors like x, then one number per channel each.

    In `results`, `x` stands for a tensor like x. `wanted` names the operands in an error.
    """

    def rule(signature: OpSignature) -> str:
        whole, rest = _whole(signature), len(signature.operands) - images
        if rest not in vectors:
            raise InvalidGraph("number of operands", got=len(signature.operands), wanted=wanted)
        operands = ", ".join([whole] * images + [CHANNELS] * rest)
        return f"{operands} -> {results.replace('x', whole)}{modifiers}"

    return rule


def _floats_like_first(signature: OpSignature) -> str | None:
    fits = any_float(signature) is None and signature.results[0].dtype == signature.operands[0].dtype
    return None if fits else "floats, and a result of the first operand's dtype"


def _over_channels(x: Array, *vectors: Array) -> list[Array]:
    """Reshape vectors of one number per channel so that they broadcast with x."""
    return [vector.reshape(-1, *(1,) * (x.ndim - 2)) for vector in vectors]


def _others(x: Array) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _count(local: OpContext) -> int:
    """Return how many numbers each channel has on all devices."""
    return math.prod(span.size for loop, span in local.spans.items() if loop != CHANNELS)


def _normalize(local: OpContext, x: Array, mean: Array, variance: Array, *scales: Array) -> Array:
    middle, spread, *factors = _over_channels(x, mean, variance, *scales)
    normal = (x - middle) / local.xp.sqrt(spread + local.read(EPS))
    normal = normal * factors[0] if factors else normal
    return (normal + factors[1] if len(factors) > 1 else normal).astype(local.dtypes[0], copy=False)


def _variance(local: OpContext, x: Array, mean: Array) -> Array:
    """Return the local term of the variance: squares summed here, divided by the count on all devices."""
    dtype = local.dtypes[0]
    squares = local.xp.square(x - _over_channels(x, mean)[0])
    return squares.sum(axis=_others(x), dtype=dtype) / dtype.type(_count(local))


def _backward_sums(local: OpContext, grad: Array, x: Array, mean: Array, root: Array) -> tuple[Array, Array]:
    middle, scale = _over_channels(x, mean, root)
    others, (first, second) = _others(x), local.dtypes
    return grad.sum(axis=others, dtype=first), (grad * (x - middle) * scale).sum(axis=others, dtype=second)


def _backward(local: OpContext, grad: Array, x: Array, *vectors: Array) -> Array:
    mean, root, total, aligned, *weight = _over_channels(x, *vectors)
    change = grad - (total + (x - mean) * root * aligned) / _count(local)
    return (change * (root * weight[0] if weight else root)).astype(local.dtypes[0], copy=False)


OP_DEFS = (
    OpDef(
        "batch_norm",
        _rule("x, mean, variance, weight?, bias?", images=1, vectors=range(2, 5), results="x"),
        _normalize,
        4,
        _floats_like_first,
        attrs=(EPS,),
    ),
    OpDef(
        "batch_norm_variance",
        _rule("x, mean", images=1, vectors=range(1, 2), results=CHANNELS),
        _variance,
        3,
        any_float,
    ),
    OpDef(
        "batch_norm_backward_sums",
        _rule("dy, x, mean, r", images=2, vectors=range(2, 3), results="c, c", modifiers="; linear 0"),
        _backward_sums,
        5,
        any_float,
    ),
    OpDef(
        "batch_norm_backward",
        _rule(
            "dy, x, mean, r, db, dw, weight?", images=2, vectors=range(4, 6), results="x", modifiers="; linear 0+4+5"
        ),
        _backward,
        7,
        _floats_like_first,
    ),
)
