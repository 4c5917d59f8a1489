"""The part of the table for calls that compute element by element, cast, or emit nothing."""

from __future__ import annotations

from planner.frontends.torch import pointwise
from planner.frontends.torch.aten_call import AtenRow

UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp expm1 floor log log1p reciprocal relu round rsqrt "
    "sigmoid sign silu sin sinh sqrt square tan tanh"
)
"""Functions of one element that have the same name in torch and in the op table."""
COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
SHIFTS = {"left": "shift_left", "right": "shift_right"}
UNCHANGED = "alias clone contiguous detach detach_ lift_fresh_copy"

ELEMENTS: dict[str, AtenRow] = {
    **{f"aten.{name}.default": pointwise.unary(name) for name in UNARY.split()},
    "aten.erfinv.default": pointwise.unary("erf_inv"),
    "aten.gelu.default": pointwise.gelu,
    "aten.isfinite.default": pointwise.predicate("is_finite"),
    "aten.isnan.default": pointwise.predicate("is_nan"),
    "aten.neg.default": pointwise.unary("negate"),
    "aten.sgn.default": pointwise.unary("sign"),
    "aten.trunc.default": pointwise.unary("truncate"),
    "aten.add.Scalar": pointwise.scaled_binary("add"),
    "aten.add.Tensor": pointwise.scaled_binary("add"),
    "aten.sub.Scalar": pointwise.scaled_binary("subtract"),
    "aten.sub.Tensor": pointwise.scaled_binary("subtract"),
    "aten.rsub.Scalar": pointwise.scaled_binary("subtract", left="other", right="self"),
    "aten.mul.Scalar": pointwise.binary("multiply"),
    "aten.mul.Tensor": pointwise.binary("multiply"),
    "aten.div.Scalar": pointwise.binary("divide"),
    "aten.div.Scalar_mode": pointwise.divide,
    "aten.div.Tensor": pointwise.binary("divide"),
    "aten.div.Tensor_mode": pointwise.divide,
    "aten.floor_divide.default": pointwise.binary("floor_divide"),
    "aten.fmod.Scalar": pointwise.binary("fmod"),
    "aten.fmod.Tensor": pointwise.binary("fmod"),
    "aten.remainder.Scalar": pointwise.binary("remainder"),
    "aten.remainder.Tensor": pointwise.binary("remainder"),
    "aten.pow.Scalar": pointwise.binary("pow", right="exponent"),
    "aten.pow.Tensor_Scalar": pointwise.binary("pow", right="exponent"),
    "aten.pow.Tensor_Tensor": pointwise.binary("pow", right="exponent"),
    "aten.atan2.default": pointwise.binary("atan2"),
    "aten.max.other": pointwise.binary("maximum"),
    "aten.maximum.default": pointwise.binary("maximum"),
    "aten.min.other": pointwise.binary("minimum"),
    "aten.minimum.default": pointwise.binary("minimum"),
    "aten.clamp.default": pointwise.clamp,
    "aten.clamp_max.default": pointwise.clamp,
    "aten.clamp_min.default": pointwise.clamp,
    **{f"aten.{n}.{kind}": pointwise.comparison(op) for n, op in COMPARISONS.items() for kind in ("Scalar", "Tensor")},
    **{
        f"aten.{written}.{kind}": pointwise.bitwise(op)
        for op in ("and", "or", "xor")
        for written in (f"__{op}__", f"bitwise_{op}")
        for kind in ("Scalar", "Tensor")
    },
    **{
        f"aten.__{n[0]}shift__.{kind}": pointwise.binary(op)
        for n, op in SHIFTS.items()
        for kind in ("Scalar", "Tensor")
    },
    **{
        f"aten.bitwise_{n}_shift.{kind}": pointwise.binary(op)
        for n, op in SHIFTS.items()
        for kind in ("Tensor", "Tensor_Scalar")
    },
    "aten.bitwise_not.default": pointwise.bitwise_not,
    "aten.logical_not.default": pointwise.logical_not,
    **{f"aten.{op}.default": pointwise.logical(op) for op in ("logical_and", "logical_or", "logical_xor")},
    "aten.masked_fill.Scalar": pointwise.masked_fill,
    "aten.masked_fill.Tensor": pointwise.masked_fill,
    **{f"aten.where.{kind}": pointwise.where for kind in ("Scalar", "ScalarOther", "ScalarSelf", "self")},
    # casts, and calls that emit nothing
    **{f"aten.to.{kind}": pointwise.to_dtype for kind in ("device", "dtype", "dtype_layout", "other")},
    "aten._to_copy.default": pointwise.to_dtype,
    "aten.type_as.default": pointwise.to_dtype,
    **{f"aten.{name}.default": pointwise.unchanged for name in UNCHANGED.split()},
}
