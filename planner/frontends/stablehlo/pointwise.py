"""Rows for elementwise ops. They work on cores, so that broadcasts are not emitted.

A splat on one side becomes the attribute `scalar`. Known numbers on both sides are computed at import: integers always,
since they may be positions; floats only for splats.
"""

from __future__ import annotations

import math
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
from planner.ir.dtypes import is_float
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
    if isinstance(left, KnownNumbers) and left.splat and op in SYMMETRIC:
        left, right = right, left
    if isinstance(right, KnownNumbers) and right.splat:
        if NEUTRAL.get(op) == right.number:
            return _as_result(call, left)
        return _emit_result(call, op, call.builder.core(left), scalar=right.scalar)
    if isinstance(left, KnownNumbers) and left.splat:
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
