"""Matrix products. A bias is added once: on the first device of every reduction group."""

from __future__ import annotations

from planner.errors import InvalidGraph
from planner.model.ops.row import Array, Local, Row, Signature


def _linear_rule(signature: Signature) -> str:
    """x w^T (+ bias): linear jointly in x and bias, and in w and bias."""
    if len(signature.operands) == 3:
        return "... k, n k, n -> ... n; linear 0+2, 1+2"
    return "... k, n k -> ... n; linear 0, 1"


def _linear(local: Local, x: Array, weight: Array, bias: Array | None = None) -> Array:
    product = local.xp.matmul(x, weight.T)
    return product if bias is None or not _adds_bias(local) else product + bias


def _addmm_rule(signature: Signature) -> str:
    """bias + x w: linear jointly in bias and x, and in bias and w."""
    bias, result = signature.operands[0].shape, signature.results[0].shape
    term = ("... " if len(bias) > 1 else "") + ("n" if bias[-1:] == result[-1:] else "1") if bias else "[]"
    return f"{term}, ... k, k n -> ... n; linear 0+1, 0+2"


def _addmm(local: Local, bias: Array, x: Array, weight: Array) -> Array:
    product = local.xp.matmul(x, weight)
    return product + bias if _adds_bias(local) else product


def _adds_bias(local: Local) -> bool:
    """The contraction's first device; a partial bias comes with its partial operand and is always added."""
    return local.spans["k"].start == 0


def _matmul_rule(signature: Signature) -> str:
    if min(signature.rank(0), signature.rank(1), len(signature.results[0].shape)) < 2:
        raise InvalidGraph("matmul of vectors", wanted="operands of rank 2 or more (reshape first)")
    return "... m k, ... k n -> ... m n; linear 0, 1"


ROWS = (
    Row("matmul", _matmul_rule, lambda local, a, b: local.xp.matmul(a, b), 2),
    Row("linear", _linear_rule, _linear, 2),
    Row("addmm", _addmm_rule, _addmm, 2),
)
