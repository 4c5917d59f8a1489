"""Pointwise ops with numpy broadcasting. A scalar operand is the attribute `scalar`; with `reversed`, the left one.

A maximum commutes with maxima, a product with products, and relu, which is monotone, with maxima and minima.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from planner.errors import InvalidGraph
from planner.ir.dtypes import DTYPE_BYTES, is_float, is_integer, is_unsigned
from planner.ops import attribute_types as types
from planner.ops.attributes import Attribute
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature, any_dtype, float_dtype, predicate_dtype, same_dtype

SCALAR = Attribute("scalar", types.ELEMENT, 0)
"""Second operand of an op on one tensor. Ops on two tensors do not have it, and do not read its default."""
REVERSED = Attribute("reversed", types.FLAG, False)
INFINITE = 3.3895313892515355e38
"""The largest number of bf16. Documents have no infinity: a dtype's largest number stands for it in comparisons."""
APPROXIMATE = Attribute("approximate", types.one_of("none", "tanh"), "none")


def _unary(name: str, compute: Callable[[OpContext, Array], Array], flops: float = 1, *, modifiers: str = "") -> OpDef:
    return OpDef(name, "... -> ..." + modifiers, compute, flops)


def _smooth(name: str, compute: Callable[[OpContext, Array], Array], flops: float = 1) -> OpDef:
    return OpDef(name, "... -> ...", compute, flops, float_dtype)


def _binary(
    name: str,
    numpy_name: str,
    modifiers: Callable[[OpSignature], str] | None = None,
    *,
    dtypes: Callable[[OpSignature], str | None] = same_dtype,
) -> OpDef:
    def rule(signature: OpSignature) -> str:
        scalar = SCALAR.name in signature.attrs
        if len(signature.operands) != (1 if scalar else 2):
            raise InvalidGraph(
                "number of operands", got=len(signature.operands), wanted="two, or one and attribute 'scalar'"
            )
        signature.check_element(SCALAR, signature.operands[0].dtype)
        if REVERSED.name in signature.attrs and not scalar:
            raise InvalidGraph("attribute 'reversed'", wanted="attribute 'scalar' beside it")
        return ("... -> ..." if scalar else "..., ... -> ...") + (modifiers(signature) if modifiers else "")

    def compute(local: OpContext, left: Array, right: Array | None = None) -> Array:
        function = getattr(local.xp, numpy_name)
        if right is not None:
            return function(left, right).astype(local.dtypes[0], copy=False)
        scalar = left.dtype.type(local.read(SCALAR))
        result = function(scalar, left) if local.read(REVERSED) else function(left, scalar)
        return result.astype(local.dtypes[0], copy=False)

    return OpDef(name, rule, compute, dtypes=dtypes, attrs=(SCALAR, REVERSED))


def _comparison(name: str) -> OpDef:
    row = _binary(name, name, dtypes=predicate_dtype)

    def compute(local: OpContext, left: Array, right: Array | None = None) -> Array:
        return row.compute(local, _bounded(local, left)) if right is None else row.compute(local, left, right)

    return replace(row, compute=compute)


def _bounded(local: OpContext, x: Array) -> Array:
    """Return what is compared with a number; where that stands for infinity, infinite elements become like it."""
    number = abs(local.read(SCALAR))
    return local.xp.clip(x, -number, number) if number >= INFINITE and x.dtype.kind == "f" else x


def _jointly_linear(signature: OpSignature) -> str:
    return "; linear 0+1" if SCALAR.name not in signature.attrs else ""


def _linear_in_each(signature: OpSignature) -> str:
    return "; linear 0, 1; commutes product 0+1" if SCALAR.name not in signature.attrs else "; linear 0"


def _linear_in_numerator(signature: OpSignature) -> str:
    """Return the modifier of a division: none for integers, whose quotients are rounded and do not add up."""
    rounded = not all(is_float(kind.dtype) for kind in signature.operands)
    return "" if rounded or signature.read(REVERSED) else "; linear 0"


def _commutes(kind: str) -> Callable[[OpSignature], str]:
    return lambda signature: f"; commutes {kind} " + ("0+1" if SCALAR.name not in signature.attrs else "0")


def _apply(numpy_name: str) -> Callable[[OpContext, Array], Array]:
    return lambda local, x: getattr(local.xp, numpy_name)(x)


def sigmoid(local: OpContext, x: Array) -> Array:
    return 1 / (1 + local.xp.exp(-x))


def erf(local: OpContext, x: Array) -> Array:
    """Compute the error function to 1e-15: Taylor series for |x| < 3, else continued fraction (DLMF 7.6.2, 7.9.1)."""
    xp = local.xp
    wide = x.astype("float64")
    square, near = wide * wide, xp.abs(wide) < 3
    inner = xp.where(near, square, 0.0)
    term = total = xp.ones_like(wide)
    for n in range(1, 60):
        term = term * inner * (2 / (2 * n + 1))
        total = total + term
    series = 2 / math.sqrt(math.pi) * wide * xp.exp(-inner) * total
    size = xp.where(near, 3.0, xp.abs(wide))
    tail = size
    for n in range(60, 0, -1):
        tail = size + n / 2 / tail
    far = 1 - xp.exp(-size * size) / (math.sqrt(math.pi) * tail)
    return xp.where(near, series, xp.sign(wide) * far).astype(x.dtype)


def erf_inv(local: OpContext, x: Array) -> Array:
    """Compute the inverse of erf: S. Winitzki's approximation (2008), then Halley's method in f64."""
    xp, a = local.xp, 0.147
    wide = x.astype("float64")
    logarithm = xp.log1p(-wide * wide)
    middle = 2 / (math.pi * a) + logarithm / 2
    y = xp.sign(wide) * xp.sqrt(xp.sqrt(middle * middle - logarithm / a) - middle)
    for _ in range(3):
        error = (erf(local, y) - wide) * (math.sqrt(math.pi) / 2) * xp.exp(y * y)
        y = y - error / (1 + y * error)
    return y.astype(x.dtype)


def _gelu(local: OpContext, x: Array) -> Array:
    if local.read(APPROXIMATE) == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + local.xp.tanh(inner))
    return 0.5 * x * (1 + erf(local, x / math.sqrt(2)))


def _cast_rule(signature: OpSignature) -> str:
    floats = all(is_float(kind.dtype) for kind in (*signature.operands, *signature.results))
    return "... -> ..." + ("; linear 0" if floats else "")


def _cast(local: OpContext, x: Array) -> Array:
    return x.astype(local.dtypes[0], copy=False)


def _integers(signature: OpSignature) -> str | None:
    numbers = all(is_integer(kind.dtype) for kind in (*signature.operands, *signature.results))
    return None if numbers and same_dtype(signature) is None else "operand and result of one integer dtype"


def _bitcast_dtypes(signature: OpSignature) -> str | None:
    kinds = [kind.dtype for kind in (*signature.operands, *signature.results)]
    unsigned = [dtype for dtype in kinds if is_unsigned(dtype)]
    good = len(kinds) == 2 and unsigned and len({DTYPE_BYTES[dtype] for dtype in kinds}) == 1
    good = good and all(is_unsigned(dtype) or dtype in ("f16", "f32", "f64") for dtype in kinds)
    return None if good else "u16, u32 or u64 and the float of its width, in either order"


def _bitcast(local: OpContext, x: Array) -> Array:
    """Reinterpret bits. A float is computed in any precision; the unsigned side tells the width it is declared with."""
    if x.dtype.kind == "u":
        return x if local.dtypes[0].kind == "u" else x.view(f"float{8 * x.dtype.itemsize}")
    return x.astype(f"float{8 * local.dtypes[0].itemsize}").view(local.dtypes[0])


def _select_dtypes(signature: OpSignature) -> str | None:
    kinds = {kind.dtype for kind in (*signature.operands[1:], *signature.results)}
    good = signature.operands[:1] and signature.operands[0].dtype == "bool" and len(kinds) == 1
    return None if good else "a bool condition and branches of one dtype"


def _where(local: OpContext, condition: Array, x: Array, y: Array) -> Array:
    return local.xp.where(condition, x, y)


OP_DEFS = (
    _unary("identity", lambda local, x: x, 0, modifiers="; linear 0"),
    _unary("accumulate", lambda local, x: x.copy(), modifiers="; linear 0"),
    _unary("negate", _apply("negative"), modifiers="; linear 0"),
    _unary("abs", _apply("abs")),
    _unary("square", _apply("square")),
    _smooth("sqrt", _apply("sqrt")),
    _smooth("rsqrt", lambda local, x: 1 / local.xp.sqrt(x), 2),
    _smooth("reciprocal", lambda local, x: 1 / x),
    _smooth("exp", _apply("exp"), 4),
    _smooth("log", _apply("log"), 4),
    _smooth("log1p", _apply("log1p"), 5),
    _smooth("expm1", _apply("expm1"), 5),
    _smooth("floor", _apply("floor")),
    _smooth("ceil", _apply("ceil")),
    _smooth("round", _apply("rint")),
    _smooth("truncate", _apply("trunc")),
    _unary("sign", _apply("sign")),
    _smooth("sin", _apply("sin"), 4),
    _smooth("cos", _apply("cos"), 4),
    _smooth("tan", _apply("tan"), 8),
    _smooth("asin", _apply("arcsin"), 8),
    _smooth("acos", _apply("arccos"), 8),
    _smooth("atan", _apply("arctan"), 8),
    _smooth("sinh", _apply("sinh"), 8),
    _smooth("cosh", _apply("cosh"), 8),
    _smooth("tanh", _apply("tanh"), 6),
    _smooth("asinh", _apply("arcsinh"), 8),
    _smooth("acosh", _apply("arccosh"), 8),
    _smooth("atanh", _apply("arctanh"), 8),
    _smooth("cbrt", _apply("cbrt"), 8),
    _smooth("erf", erf, 8),
    _smooth("erf_inv", erf_inv, 12),
    _smooth("sigmoid", sigmoid, 6),
    _smooth("softplus", lambda local, x: local.xp.logaddexp(x, x.dtype.type(0)), 8),
    _smooth("silu", lambda local, x: x * sigmoid(local, x), 7),
    _unary("relu", lambda local, x: local.xp.maximum(x, 0), modifiers="; commutes max 0; commutes min 0"),
    _unary("logical_not", _apply("logical_not")),
    OpDef("is_finite", "... -> ...", _apply("isfinite"), dtypes=predicate_dtype),
    OpDef("is_nan", "... -> ...", _apply("isnan"), dtypes=predicate_dtype),
    OpDef("bitwise_not", "... -> ...", _apply("bitwise_not"), dtypes=_integers),
    OpDef("gelu", "... -> ...", _gelu, 10, float_dtype, attrs=(APPROXIMATE,)),
    OpDef("cast", _cast_rule, _cast, dtypes=any_dtype),
    OpDef("bitcast", "... -> ...", _bitcast, dtypes=_bitcast_dtypes),
    OpDef("where", "..., ..., ... -> ...; linear 1+2", _where, dtypes=_select_dtypes),
    _binary("add", "add", _jointly_linear),
    _binary("subtract", "subtract", _jointly_linear),
    _binary("multiply", "multiply", _linear_in_each),
    _binary("divide", "true_divide", _linear_in_numerator),
    _binary("pow", "power"),
    _binary("maximum", "maximum", _commutes("max")),
    _binary("minimum", "minimum", _commutes("min")),
    _binary("floor_divide", "floor_divide"),
    _binary("remainder", "remainder"),
    _binary("fmod", "fmod"),
    _binary("atan2", "arctan2", dtypes=float_dtype),
    _binary("logical_and", "logical_and"),
    _binary("logical_or", "logical_or"),
    _binary("logical_xor", "logical_xor"),
    _binary("bitwise_and", "bitwise_and", dtypes=_integers),
    _binary("bitwise_or", "bitwise_or", dtypes=_integers),
    _binary("bitwise_xor", "bitwise_xor", dtypes=_integers),
    _binary("shift_left", "left_shift", dtypes=_integers),
    _binary("shift_right", "right_shift", dtypes=_integers),
    _comparison("equal"),
    _comparison("not_equal"),
    _comparison("less"),
    _comparison("less_equal"),
    _comparison("greater"),
    _comparison("greater_equal"),
)
