"""Rows for elementwise ops. They work on cores, so that broadcasts are not emitted.

A splat on one side becomes the attribute `scalar`. Known numbers on both sides are computed at import: integers always,
since they may be positions; floats only for splats.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.stablehlo.op_call import StablehloOpCall, StablehloRow
from planner.frontends.stablehlo.symbolic_values import (
    MAX_KNOWN,
    KnownNumbers,
    Symbol,
    TensorSymbol,
    find_spacing,
    numpy_dtype,
)
from planner.frontends.uncovered_ops import NotCovered
from planner.ir.dtypes import DTYPE_BYTES, is_float, is_integer
from planner.ir.graph import TensorType

NEUTRAL = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1, "pow": 1, "maximum": -math.inf, "minimum": math.inf}
"""The neutral right operand of every op."""
SYMMETRIC = ("add", "multiply", "maximum", "minimum")
COMPARISONS = {
    "EQ": ("equal", np.equal),
    "NE": ("not_equal", np.not_equal),
    "LT": ("less", np.less),
    "LE": ("less_equal", np.less_equal),
    "GT": ("greater", np.greater),
    "GE": ("greater_equal", np.greater_equal),
}

Function = Callable[..., Any]


def unary(op: str, known: Function) -> StablehloRow:
    def row(call: StablehloOpCall) -> Symbol:
        return _fold_known(call, known) or _emit_result(call, op, call.builder.core(call.operands[0]))

    return row


def binary(op: str, known: Function) -> StablehloRow:
    return lambda call: _fold_known(call, known) or _combine(call, op)


def of_known(known: Function) -> StablehloRow:
    """Return a row for an op without a row in the op table: of known numbers alone."""

    def row(call: StablehloOpCall) -> Symbol:
        folded = _fold_known(call, known)
        if folded is None:
            raise NotCovered("of numbers that are not known")
        return folded

    return row


def of_bool(op: str, of_integers: str, known: Function) -> StablehloRow:
    """Return a row for an op that is logical on bool and bitwise on integers."""

    def row(call: StablehloOpCall) -> Symbol:
        name = op if call.operands[0].type.dtype == "bool" else of_integers
        absorbed = _absorb_identity(call) if name != of_integers else None
        return _fold_known(call, known) or absorbed or _emit_result(call, name, *map(call.builder.core, call.operands))

    return row


def _absorb_identity(call: StablehloOpCall) -> Symbol | None:
    """Return the other operand of `and true` or `or false`; None for anything else."""
    neutral = {"and": True, "or": False}.get(call.name)
    for one, other in (call.operands, call.operands[::-1]) if len(call.operands) == 2 else ():
        if isinstance(one, KnownNumbers) and one.splat and one.number is neutral:
            return other
    return None


def compare(call: StablehloOpCall) -> Symbol:
    op, known = COMPARISONS[call.text("comparison_direction")]
    return _fold_known(call, known) or _combine(call, op)


def convert(call: StablehloOpCall) -> Symbol:
    (x,) = call.operands
    if x.type.dtype == call.result.dtype:
        return x
    if isinstance(x, KnownNumbers) and (x.splat or find_spacing(x.core)):
        return call.literal(x.core.astype(numpy_dtype(call.result.dtype)))
    return _emit_result(call, "cast", call.builder.core(x))


def round_half_away(call: StablehloOpCall) -> Symbol:
    """sign(x) floor(|x| + 1/2)."""
    x = call.builder.core(call.operands[0])
    size = call.step("floor", [call.step("add", [call.step("abs", [x])], scalar=0.5)])
    return _of(call, call.step("multiply", [call.step("sign", [x]), size]))


def shift_right(signedness: str) -> StablehloRow:
    """Return the row of a shift that fills with the sign (`i`) or with zeros (`u`); the op itself goes by the dtype."""

    def row(call: StablehloOpCall) -> Symbol:
        dtype = call.result.dtype
        if known := _fold_known(call, lambda x, by: _as_signed(x, signedness) >> by):
            return known
        x, by = (call.builder.core(each) for each in call.operands)
        if dtype[0] == signedness:
            return _combine(call, "shift_right")
        wanted = signedness + dtype[1:]
        shifted = call.step(
            "shift_right",
            [call.cast(x, wanted), call.cast(by, wanted)],
            tuple(map(int, np.broadcast_shapes(x.shape, by.shape))),
        )
        return _of(call, call.cast(shifted, dtype))

    return row


def _as_signed(x: Any, signedness: str) -> Any:
    return x.view(("int" if signedness == "i" else "uint") + str(8 * x.dtype.itemsize))


def bitcast(call: StablehloOpCall) -> Symbol:
    """Reinterpret bits, between dtypes of one width of which `bitcast` takes one; a signed integer goes by unsigned."""
    (x,), made = call.operands, call.result.dtype
    source = x.type.dtype
    bits = 8 * DTYPE_BYTES[made]
    kinds = {source, made}
    if DTYPE_BYTES[source] != DTYPE_BYTES[made] or "bool" in kinds:
        raise NotCovered("between dtypes of several widths")
    if all(is_integer(dtype) for dtype in kinds):
        return _emit_result(call, "cast", call.builder.core(x))
    if "bf16" in kinds:
        return _bitcast_bf16(call, call.builder.core(x))
    if not kinds <= {f"f{bits}", f"i{bits}", f"u{bits}"} or bits == 8:
        raise NotCovered(f"{source} as {made}")
    if isinstance(x, KnownNumbers) and x.splat and x.core.dtype.itemsize * 8 == bits:
        return call.literal(x.core.view(numpy_dtype(made)))
    core, unsigned = call.builder.core(x), f"u{bits}"
    if is_float(source):
        return _of(call, call.cast(call.step("bitcast", [core], dtype=unsigned), made))
    return _of(call, call.step("bitcast", [call.cast(core, unsigned)], dtype=made))


def _bitcast_bf16(call: StablehloOpCall, x: DocumentValue) -> Symbol:
    """Reinterpret bf16 or as bf16: its bits are the upper half of those of f32."""
    if x.dtype == "bf16":
        word = call.step("bitcast", [call.cast(x, "f32")], dtype="u32")
        return _of(call, call.cast(call.step("shift_right", [word], scalar=16), call.result.dtype))
    half = call.cast(call.cast(x, "u16"), "u32")
    word = call.step("shift_left", [half], scalar=16)
    return _of(call, call.cast(call.step("bitcast", [word], dtype="f32"), "bf16"))


def erf_inv(x: float) -> float:
    """Return the inverse of erf."""
    return statistics.NormalDist().inv_cdf((x + 1) / 2) / math.sqrt(2) if abs(x) < 1 else math.copysign(math.inf, x)


def select(call: StablehloOpCall) -> Symbol:
    """Select. JAX selects NaN for look-ups out of range; our look-ups clamp, so that select returns the look-up."""
    condition, x, y = call.operands
    if isinstance(condition, KnownNumbers) and condition.splat:
        return x if condition.number else y
    if isinstance(y, KnownNumbers) and y.splat and math.isnan(y.number) and _look_up_elements(call, x):
        return x
    return _fold_known(call, np.where) or _emit_result(call, "where", *map(call.builder.core, call.operands))


def _look_up_elements(call: StablehloOpCall, symbol: Symbol) -> bool:
    node = call.builder.find_node(symbol.core) if isinstance(symbol, TensorSymbol) else None
    while node and node["op"] in ("reshape", "transpose", "expand"):
        node = call.builder.find_node(call.builder.find_value(node["inputs"][0]))
    return node is not None and node["op"] in ("gather", "embedding", "index")


def clamp(call: StablehloOpCall) -> Symbol:
    """minimum(maximum(x, low), high)."""
    low, x, high = call.operands
    if isinstance(low, KnownNumbers) and isinstance(x, KnownNumbers) and isinstance(high, KnownNumbers):
        return _fold_known(call, lambda low, x, high: np.minimum(np.maximum(x, low), high)) or x
    middle = _pair(call, "maximum", x, right=low)
    return _pair(call, "minimum", middle, right=high)


def erfc(call: StablehloOpCall) -> Symbol:
    """1 - erf(x)."""
    x = call.builder.core(call.operands[0])
    return _of(call, call.step("subtract", [call.step("erf", [x], x.shape)], x.shape, scalar=1, reversed=True))


def pass_through(call: StablehloOpCall) -> Symbol:
    """Ops that return their operand unchanged."""
    return call.operands[0]


def _of(call: StablehloOpCall, core: DocumentValue) -> TensorSymbol:
    return TensorSymbol(core, call.result)


def _fold_known(call: StablehloOpCall, function: Function) -> KnownNumbers | None:
    """Compute the result from known operands; None if one is unknown or the elements are not worth computing."""
    literals = [symbol for symbol in call.operands if isinstance(symbol, KnownNumbers)]
    if len(literals) != len(call.operands):
        return None
    splat, size = all(each.splat for each in literals), max(each.core.size for each in literals)
    if not splat and (is_float(call.result.dtype) or is_float(literals[0].type.dtype) or not _line(literals, size)):
        return None
    with np.errstate(all="ignore"):
        numbers = np.asarray(function(*(each.core for each in literals)))
    return call.literal(numbers.astype(numpy_dtype(call.result.dtype), copy=False))


def _line(literals: list[KnownNumbers], size: int) -> bool:
    """Return whether the result has at most MAX_KNOWN numbers, along one dim."""
    return size <= MAX_KNOWN and math.prod(np.broadcast_shapes(*(each.core.shape for each in literals))) == size


def _combine(call: StablehloOpCall, op: str) -> Symbol:
    left, right = call.operands
    return _pair(call, op, left, right=right)


def _pair(call: StablehloOpCall, op: str, left: Symbol, *, right: Symbol) -> Symbol:
    if isinstance(left, KnownNumbers) and left.is_scalar and op in SYMMETRIC:
        left, right = right, left
    if isinstance(right, KnownNumbers) and right.is_scalar:
        if NEUTRAL.get(op) == right.number:
            return _as_result(call, left)
        return _emit_result(call, op, call.builder.core(left), scalar=right.scalar)
    if isinstance(left, KnownNumbers) and left.is_scalar:
        return _emit_result(call, op, call.builder.core(right), scalar=left.scalar, reversed=True)
    return _emit_result(call, op, call.builder.core(left), call.builder.core(right))


def _as_result(call: StablehloOpCall, symbol: Symbol) -> Symbol:
    return symbol if symbol.type == call.result else TensorSymbol(call.builder.core(symbol), call.result)


def _emit_result(call: StablehloOpCall, op: str, *cores: DocumentValue, **attrs: Any) -> TensorSymbol:
    shape = np.broadcast_shapes(*(core.shape for core in cores))
    kind = TensorType(tuple(shape), call.result.dtype)
    rule = f"{', '.join(['...'] * len(cores))} -> ..."
    return _of(call, call.builder.emit_all(op, cores, [kind], attrs=attrs, rule=rule)[0])


def quotient(left: Any, right: Any) -> Any:
    """Divide; integers round towards zero."""
    return np.trunc(left / right) if left.dtype.kind in "iu" else left / right
