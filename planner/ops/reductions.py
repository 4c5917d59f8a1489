"""Reductions, and ops that need all elements of a dim at once.

    variance     sum((x - mean(x))^2) / (n - correction)
    log_sum_exp  log(sum(exp(x)))    log_softmax = x - log_sum_exp(x), backward dy - exp(y) sum(dy)

`sum_exp`, the sum of exp(x - m) over the last dim, is the part of a softmax that may be a partial sum: where m is the
maximum, log(sum_exp) + m is the log-sum-exp, however the dim is split.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from planner.ir.dtypes import is_float
from planner.ops import attribute_types as types
from planner.ops.attributes import DIM, DIMS, KEEPDIM, Attribute
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature, any_float, float_dtype

CORRECTION = Attribute("correction", types.NUMBER, 1)


def _reduced(signature: OpSignature) -> tuple[str, str, list[str]]:
    """Return the operand's term, the result's term and the reduced loops."""
    rank, dims = signature.rank(0), signature.read(DIMS)
    kept = ["1"] if signature.read(KEEPDIM) else []
    names = [f"d{i}" for i in range(rank)]
    result = [piece for i, name in enumerate(names) for piece in (kept if i in dims else [name])]
    return " ".join(names) or "[]", " ".join(result) or "[]", [names[i] for i in dims]


def _reduction(name: str, numpy_name: str, kind: str, *, flops: float = 1) -> OpDef:
    """Return the row of a reduction over dims. It commutes with reductions of its own kind; a sum is linear."""
    commutes = "linear 0" if kind == "sum" else f"commutes {kind} 0"

    def rule(signature: OpSignature) -> str:
        operand, result, loops = _reduced(signature)
        modifiers = f"; {kind} {' '.join(loops)}" if loops and kind != "sum" else ""
        return f"{operand} -> {result}{modifiers}; {commutes}"

    def compute(local: OpContext, x: Array) -> Array:
        dims = local.read(DIMS, x.ndim)
        if any(x.shape[dim] == 0 for dim in dims):
            return local.xp.full(local.shapes[0], _NEUTRAL[kind](x.dtype), x.dtype)
        return getattr(local.xp, numpy_name)(x, axis=dims, keepdims=local.read(KEEPDIM))

    return OpDef(name, rule, compute, flops, attrs=(DIMS, KEEPDIM))


def _limit(dtype: Array, highest: bool) -> object:
    if dtype.kind == "f":
        return math.inf if highest else -math.inf
    bits = 8 * dtype.itemsize - (dtype.kind == "i")
    return (1 << bits) - 1 if highest else (-(1 << bits) if dtype.kind == "i" else 0)


_NEUTRAL: dict[str, Callable[[Array], object]] = {
    "sum": lambda dtype: 0,
    "product": lambda dtype: 1,
    "max": lambda dtype: _limit(dtype, highest=False),
    "min": lambda dtype: _limit(dtype, highest=True),
}


def _sum_exp(local: OpContext, x: Array, shift: Array) -> Array:
    return local.xp.exp(x - shift).sum(axis=-1, keepdims=True, dtype=local.dtypes[0])


def _sum_exp_dtypes(signature: OpSignature) -> str | None:
    kinds = {kind.dtype for kind in (*signature.operands[1:], *signature.results)}
    good = all(is_float(kind.dtype) for kind in signature.operands) and len(kinds) == 1
    return None if good else "floats; the shift and the result of one dtype"


def _mean(local: OpContext, x: Array) -> Array:
    """Return the local term of the mean: the local sum divided by the number of elements on all devices."""
    dims = local.read(DIMS, x.ndim)
    whole = math.prod(local.spans[f"d{dim}"].size for dim in dims)
    dtype = local.dtypes[0]
    return local.xp.sum(x, axis=dims, keepdims=local.read(KEEPDIM), dtype=dtype) / dtype.type(whole)


def _mean_rule(signature: OpSignature) -> str:
    operand, result, _ = _reduced(signature)
    return f"{operand} -> {result}; linear 0"


def _whole_dims_rule(signature: OpSignature) -> str:
    operand, result, loops = _reduced(signature)
    return f"{operand} -> {result}" + (f"; blocked {' '.join(loops)}" if loops else "")


def _variance(local: OpContext, x: Array) -> Array:
    dims, keepdim = local.read(DIMS, x.ndim), local.read(KEEPDIM)
    return x.var(axis=dims, keepdims=keepdim, ddof=local.read(CORRECTION))


def _log_sum_exp(local: OpContext, x: Array) -> Array:
    xp, dims = local.xp, local.read(DIMS, x.ndim)
    high = x.max(axis=dims, keepdims=True)
    made = xp.log(xp.exp(x - high).sum(axis=dims, keepdims=True)) + high
    return made if local.read(KEEPDIM) else made.squeeze(axis=dims)


def _whole_dim(signature: OpSignature) -> tuple[str, str]:
    rank = signature.rank(0)
    return " ".join(f"d{i}" for i in range(rank)), f"d{signature.read(DIM)}"


def _softmax_rule(signature: OpSignature) -> str:
    term, whole = _whole_dim(signature)
    return f"{term} -> {term}; blocked {whole}"


def _softmax(local: OpContext, x: Array) -> Array:
    axis = local.read(DIM, x.ndim)
    powers = local.xp.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _softmax_backward_rule(signature: OpSignature) -> str:
    term, whole = _whole_dim(signature)
    return f"{term}, {term} -> {term}; blocked {whole}; linear 0"


def _softmax_backward(local: OpContext, grad: Array, y: Array) -> Array:
    """Return the gradient of softmax from its result y: y (grad - sum(grad y))."""
    return y * (grad - (grad * y).sum(axis=local.read(DIM, y.ndim), keepdims=True))


def _log_softmax(local: OpContext, x: Array) -> Array:
    axis = local.read(DIM, x.ndim)
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - local.xp.log(local.xp.exp(shifted).sum(axis=axis, keepdims=True))


def _log_softmax_backward(local: OpContext, grad: Array, y: Array) -> Array:
    return grad - local.xp.exp(y) * grad.sum(axis=local.read(DIM, y.ndim), keepdims=True)


def _cumsum_rule(signature: OpSignature) -> str:
    term, whole = _whole_dim(signature)
    return f"{term} -> {term}; blocked {whole}; linear 0"


def _cumulative(numpy_name: str) -> Callable[[OpContext, Array], Array]:
    def compute(local: OpContext, x: Array) -> Array:
        return getattr(local.xp, numpy_name)(x, axis=local.read(DIM, x.ndim)).astype(local.dtypes[0], copy=False)

    return compute


OP_DEFS = (
    _reduction("sum", "sum", "sum"),
    _reduction("max", "max", "max"),
    _reduction("min", "min", "min"),
    _reduction("product", "prod", "product"),
    OpDef("mean", _mean_rule, _mean, dtypes=any_float, attrs=(DIMS, KEEPDIM)),
    OpDef("sum_exp", "... v, ... 1 -> ... 1", _sum_exp, 6, _sum_exp_dtypes),
    OpDef("softmax", _softmax_rule, _softmax, 8, float_dtype, attrs=(DIM,)),
    OpDef("softmax_backward", _softmax_backward_rule, _softmax_backward, 4, float_dtype, attrs=(DIM,)),
    OpDef("log_softmax", _softmax_rule, _log_softmax, 8, float_dtype, attrs=(DIM,)),
    OpDef("log_softmax_backward", _softmax_backward_rule, _log_softmax_backward, 7, float_dtype, attrs=(DIM,)),
    OpDef("log_sum_exp", _whole_dims_rule, _log_sum_exp, 7, float_dtype, attrs=(DIMS, KEEPDIM)),
    OpDef("variance", _whole_dims_rule, _variance, 4, float_dtype, attrs=(DIMS, KEEPDIM, CORRECTION)),
    OpDef("cumsum", _cumsum_rule, _cumulative("cumsum"), attrs=(DIM,)),
    OpDef("cumprod", _softmax_rule, _cumulative("cumprod"), attrs=(DIM,)),
)
