"""Reductions, and ops that need a whole dim at once.

    variance     sum((x - mean(x))^2) / (n - correction)
    log_sum_exp  log(sum(exp(x)))    log_softmax = x - log_sum_exp(x), backward dy - exp(y) sum(dy)

`sum_exp`, the sum of exp(x - m) over the last dim, is the part of a softmax that can be summed in parts: with m the
maximum, log(sum_exp) + m is the log-sum-exp, whichever way the dim is split.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from planner.ir.dtypes import is_float
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature, float_dtype


def _reduced(signature: OpSignature) -> tuple[str, str, list[str]]:
    """Operand term, result term and the reduced loops."""
    rank = signature.rank(0)
    dims = signature.dims("dims", rank)
    kept = ["1"] if signature.attrs.get("keepdim") else []
    names = [f"d{i}" for i in range(rank)]
    result = [piece for i, name in enumerate(names) for piece in (kept if i in dims else [name])]
    return " ".join(names) or "[]", " ".join(result) or "[]", [names[i] for i in dims]


def _reduction(name: str, numpy_name: str, kind: str, *, flops: float = 1) -> OpDef:
    """A reduction over dims; it commutes with its own kind (with sums: it is linear)."""
    commutes = "linear 0" if kind == "sum" else f"commutes {kind} 0"

    def rule(signature: OpSignature) -> str:
        operand, result, loops = _reduced(signature)
        modifiers = f"; {kind} {' '.join(loops)}" if loops and kind != "sum" else ""
        return f"{operand} -> {result}{modifiers}; {commutes}"

    def compute(local: OpContext, x: Array) -> Array:
        dims = local.dims("dims", x.ndim)
        if any(x.shape[dim] == 0 for dim in dims):
            return local.xp.full(local.shapes[0], _NEUTRAL[kind](x.dtype), x.dtype)
        return getattr(local.xp, numpy_name)(x, axis=dims, keepdims=bool(local.attrs.get("keepdim")))

    return OpDef(name, rule, compute, flops, attrs=("dims", "keepdim"))


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
    """A term of the mean: the local sum over the whole loops' size."""
    dims = local.dims("dims", x.ndim)
    whole = math.prod(local.spans[f"d{dim}"].size for dim in dims)
    return local.xp.sum(x, axis=dims, keepdims=bool(local.attrs.get("keepdim"))) / x.dtype.type(whole)


def _mean_rule(signature: OpSignature) -> str:
    operand, result, _ = _reduced(signature)
    return f"{operand} -> {result}; linear 0"


def _whole_dims_rule(signature: OpSignature) -> str:
    operand, result, loops = _reduced(signature)
    return f"{operand} -> {result}" + (f"; blocked {' '.join(loops)}" if loops else "")


def _variance(local: OpContext, x: Array) -> Array:
    dims, keepdim = local.dims("dims", x.ndim), bool(local.attrs.get("keepdim"))
    return x.var(axis=dims, keepdims=keepdim, ddof=int(local.number("correction", 1)))


def _log_sum_exp(local: OpContext, x: Array) -> Array:
    xp, dims = local.xp, local.dims("dims", x.ndim)
    high = x.max(axis=dims, keepdims=True)
    made = xp.log(xp.exp(x - high).sum(axis=dims, keepdims=True)) + high
    return made if local.attrs.get("keepdim") else made.squeeze(axis=dims)


def _whole_dim(signature: OpSignature) -> tuple[str, str]:
    rank = signature.rank(0)
    dim = signature.dim("dim", rank)
    return " ".join(f"d{i}" for i in range(rank)), f"d{dim}"


def _softmax_rule(signature: OpSignature) -> str:
    term, whole = _whole_dim(signature)
    return f"{term} -> {term}; blocked {whole}"


def _softmax(local: OpContext, x: Array) -> Array:
    axis = int(local.number("dim"))
    powers = local.xp.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _softmax_backward_rule(signature: OpSignature) -> str:
    term, whole = _whole_dim(signature)
    return f"{term}, {term} -> {term}; blocked {whole}; linear 0"


def _softmax_backward(local: OpContext, grad: Array, y: Array) -> Array:
    """Of softmax, from what it made: y (grad - sum(grad y))."""
    return y * (grad - (grad * y).sum(axis=int(local.number("dim")), keepdims=True))


def _log_softmax(local: OpContext, x: Array) -> Array:
    axis = int(local.number("dim"))
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - local.xp.log(local.xp.exp(shifted).sum(axis=axis, keepdims=True))


def _log_softmax_backward(local: OpContext, grad: Array, y: Array) -> Array:
    return grad - local.xp.exp(y) * grad.sum(axis=int(local.number("dim")), keepdims=True)


def _cumsum_rule(signature: OpSignature) -> str:
    term, whole = _whole_dim(signature)
    return f"{term} -> {term}; blocked {whole}; linear 0"


def _cumulative(numpy_name: str) -> Callable[[OpContext, Array], Array]:
    def compute(local: OpContext, x: Array) -> Array:
        return getattr(local.xp, numpy_name)(x, axis=int(local.number("dim"))).astype(local.dtypes[0], copy=False)

    return compute


OP_DEFS = (
    _reduction("sum", "sum", "sum"),
    _reduction("max", "max", "max"),
    _reduction("min", "min", "min"),
    _reduction("product", "prod", "product"),
    OpDef("mean", _mean_rule, _mean, dtypes=float_dtype, attrs=("dims", "keepdim")),
    OpDef("sum_exp", "... v, ... 1 -> ... 1", _sum_exp, 6, _sum_exp_dtypes),
    OpDef("softmax", _softmax_rule, _softmax, 8, float_dtype, attrs=("dim",)),
    OpDef("softmax_backward", _softmax_backward_rule, _softmax_backward, 4, float_dtype, attrs=("dim",)),
    OpDef("log_softmax", _softmax_rule, _log_softmax, 8, float_dtype, attrs=("dim",)),
    OpDef("log_softmax_backward", _softmax_backward_rule, _log_softmax_backward, 7, float_dtype, attrs=("dim",)),
    OpDef("log_sum_exp", _whole_dims_rule, _log_sum_exp, 7, float_dtype, attrs=("dims", "keepdim")),
    OpDef("variance", _whole_dims_rule, _variance, 4, float_dtype, attrs=("dims", "keepdim", "correction")),
    OpDef("cumsum", _cumsum_rule, _cumulative("cumsum"), attrs=("dim",)),
    OpDef("cumprod", _softmax_rule, _cumulative("cumprod"), attrs=("dim",)),
)
