"""Matrix products by groups of rows: tokens sorted by expert, with one weight matrix per expert.

    y[t]  = x[t] w[e(t)]                   e(t) is the expert of row t: offsets are the ends of the experts' rows
    dw[e] = sum_{t of e} x[t]^T dy[t]

An offset smaller than an earlier one counts as that one. Rows after the last offset have no expert: their results are
zero. Tokens (t) and experts (e) may be split: every device holds all offsets, and so knows which of its rows belong to
its experts. Rows of other experts give zeros, and the result is a partial sum. The flops assume equally many tokens per
expert (`o` is the number of all experts).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from planner.errors import InvalidGraph
from planner.ir.dtypes import is_float, is_integer
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature


def _check(signature: OpSignature, what: str, experts: int) -> None:
    if len(signature.operands) != 3:
        raise InvalidGraph("number of operands", got=len(signature.operands), wanted=what)
    if signature.operands[2].shape != (experts,):
        raise InvalidGraph("offsets", got=str(signature.operands[2]), wanted=f"one per expert: {experts}")


def _forward_rule(signature: OpSignature) -> str:
    _check(signature, "rows, weights, offsets", signature.operands[1].shape[0])
    return "t k, e k n, o -> t n; blocked o; linear 0, 1"


def _weight_rule(signature: OpSignature) -> str:
    _check(signature, "rows, gradient of the rows, offsets", signature.results[0].shape[0])
    return "t k, t n, o -> e k n; blocked o; linear 0, 1"


def _rows(local: OpContext, offsets: Array) -> Iterator[tuple[int, slice]]:
    """Yield each local expert, counted from the first local one, with its range of local rows."""
    xp, tokens, experts = local.xp, local.spans["t"], local.spans["e"]
    # A running maximum: an offset smaller than an earlier one counts as that one.
    latest = xp.where(xp.tri(offsets.size, dtype=bool), offsets.astype("int64"), 0).max(axis=1)
    ends = xp.concatenate([xp.zeros(1, latest.dtype), latest]).clip(tokens.start, tokens.stop) - tokens.start
    bounds = ends[xp.arange(experts.start, experts.stop + 1).clip(0, offsets.size)].tolist()
    return ((place, slice(first, last)) for place, (first, last) in enumerate(pairwise(bounds)))


def _forward(local: OpContext, x: Array, weights: Array, offsets: Array) -> Array:
    result = local.xp.zeros(local.shapes[0], x.dtype)
    for expert, rows in _rows(local, offsets):
        result[rows] = local.xp.matmul(x[rows], weights[expert])
    return result


def _weight_backward(local: OpContext, x: Array, grad: Array, offsets: Array) -> Array:
    result = local.xp.zeros(local.shapes[0], x.dtype)
    for expert, rows in _rows(local, offsets):
        result[expert] = local.xp.matmul(x[rows].T, grad[rows])
    return result


def _dtypes(signature: OpSignature) -> str | None:
    x, y, offsets = signature.operands
    one = {x.dtype, y.dtype, signature.results[0].dtype}
    good = len(one) == 1 and is_float(x.dtype) and is_integer(offsets.dtype)
    return None if good else "rows, weights and result of one float dtype, integer offsets"


def _flops(sizes: Mapping[str, int]) -> float:
    return 2 * sizes["t"] * sizes["k"] * sizes["n"] * sizes["e"] / sizes["o"]


OP_DEFS = (
    OpDef("grouped_mm", _forward_rule, _forward, _flops, _dtypes),
    OpDef("grouped_mm_weight_backward", _weight_rule, _weight_backward, _flops, _dtypes),
)
