"""Products by groups of rows: tokens sorted by expert, a weight matrix for each.

    y[t]  = x[t] w[e(t)]                   e(t) the expert of row t: offsets are the ends of the experts' rows
    dw[e] = sum_{t of e} x[t]^T dy[t]

An end before an earlier one counts as that one. Rows behind the last end belong to nobody: they are zero. Tokens (t)
and experts (e) may be split: every device knows all offsets, and so which of its rows are its experts'. Of other
experts' rows it makes zeros, terms of a sum. The flops are those of experts with equally many tokens (`o` is the number
of all experts, the offsets').
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
        raise InvalidGraph("offsets", got=str(signature.operands[2]), wanted=f"one an expert: {experts}")


def _forward_rule(signature: OpSignature) -> str:
    _check(signature, "rows, weights, offsets", signature.operands[1].shape[0])
    return "t k, e k n, o -> t n; blocked o; linear 0, 1"


def _weight_rule(signature: OpSignature) -> str:
    _check(signature, "rows, gradient of the rows, offsets", signature.results[0].shape[0])
    return "t k, t n, o -> e k n; blocked o; linear 0, 1"


def _rows(local: OpContext, offsets: Array) -> Iterator[tuple[int, slice]]:
    """The local experts, each with its rows among the local ones."""
    xp, tokens, experts = local.xp, local.spans["t"], local.spans["e"]
    latest = xp.where(xp.tri(offsets.size, dtype=bool), offsets.astype("int64"), 0).max(axis=1)
    ends = xp.concatenate([xp.zeros(1, latest.dtype), latest]).clip(tokens.start, tokens.stop) - tokens.start
    bounds = ends[xp.arange(experts.start, experts.stop + 1).clip(0, offsets.size)].tolist()
    return ((place, slice(first, last)) for place, (first, last) in enumerate(pairwise(bounds)))


def _forward(local: OpContext, x: Array, weights: Array, offsets: Array) -> Array:
    made = local.xp.zeros(local.shapes[0], x.dtype)
    for expert, rows in _rows(local, offsets):
        made[rows] = local.xp.matmul(x[rows], weights[expert])
    return made


def _weight_backward(local: OpContext, x: Array, grad: Array, offsets: Array) -> Array:
    made = local.xp.zeros(local.shapes[0], x.dtype)
    for expert, rows in _rows(local, offsets):
        made[expert] = local.xp.matmul(x[rows].T, grad[rows])
    return made


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
