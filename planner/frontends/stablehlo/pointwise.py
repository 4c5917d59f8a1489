"""Rows for ops that work element by element: on cores, so that broadcasts stay unwritten.

A splat on one side becomes the attribute `scalar`; numbers known on both sides are worked out, integers always (they
may be positions), floats where all elements are one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from planner.frontends.stablehlo.call import Call, Row
from planner.frontends.stablehlo.symbols import MAX_KNOWN, Literal, Symbol, Tensor, evenly_spaced
from planner.frontends.stablehlo.writer import finite, numpy_dtype
from planner.frontends.value import Value
from planner.model.dtypes import is_float
from planner.model.graph import TensorType

NEUTRAL = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1, "pow": 1, "maximum": -math.inf, "minimum": math.inf}
"""The scalar on the right that changes nothing."""
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


def unary(op: str, known: Function) -> Row:
    def row(call: Call) -> Symbol:
        return _known(call, known) or _emitted(call, op, call.writer.core(call.operands[0]))

    return row


def binary(op: str, known: Function) -> Row:
    return lambda call: _known(call, known) or _combined(call, op)


def of_bool(op: str, of_integers: str, known: Function) -> Row:
    """A logical op; of integers it works bit by bit."""

    def row(call: Call) -> Symbol:
        name = op if call.operands[0].type.dtype == "bool" else of_integers
        absorbed = _absorbed(call) if name != of_integers else None
        return _known(call, known) or absorbed or _emitted(call, name, *map(call.writer.core, call.operands))

    return row


def _absorbed(call: Call) -> Symbol | None:
    """The other operand of `and true`, `or false`."""
    neutral = {"and": True, "or": False}.get(call.name)
    for one, other in (call.operands, call.operands[::-1]) if len(call.operands) == 2 else ():
        if isinstance(one, Literal) and one.splat and one.number is neutral:
            return other
    return None


def compare(call: Call) -> Symbol:
    op, known = COMPARISONS[call.text("comparison_direction")]
    return _known(call, known) or _combined(call, op)


def convert(call: Call) -> Symbol:
    (x,) = call.operands
    if x.type.dtype == call.result.dtype:
        return x
    if isinstance(x, Literal) and (x.splat or evenly_spaced(x.core)):
        return call.literal(x.core.astype(numpy_dtype(call.result.dtype)))
    return _emitted(call, "cast", call.writer.core(x))


def select(call: Call) -> Symbol:
    """NaN beside what was looked up stands for positions out of range, which a look-up does not have."""
    condition, x, y = call.operands
    if isinstance(condition, Literal) and condition.splat:
        return x if condition.number else y
    if isinstance(y, Literal) and y.splat and math.isnan(y.number) and _looked_up(call, x):
        return x
    return _known(call, np.where) or _emitted(call, "where", *map(call.writer.core, call.operands))


def _looked_up(call: Call, symbol: Symbol) -> bool:
    node = call.writer.maker(symbol.core) if isinstance(symbol, Tensor) else None
    while node and node["op"] in ("reshape", "transpose", "expand"):
        node = call.writer.maker(call.writer.typed(node["inputs"][0]))
    return node is not None and node["op"] in ("gather", "embedding", "index")


def clamp(call: Call) -> Symbol:
    """minimum(maximum(x, low), high)."""
    low, x, high = call.operands
    if isinstance(low, Literal) and isinstance(x, Literal) and isinstance(high, Literal):
        return _known(call, lambda low, x, high: np.minimum(np.maximum(x, low), high)) or x
    middle = _pair(call, "maximum", x, low)
    return _pair(call, "minimum", middle, high)


def erfc(call: Call) -> Symbol:
    """1 - erf(x)."""
    x = call.writer.core(call.operands[0])
    return _of(call, call.step("subtract", [call.step("erf", [x], x.shape)], x.shape, scalar=1, reversed=True))


def same(call: Call) -> Symbol:
    """What leaves its operand as it is."""
    return call.operands[0]


def _of(call: Call, core: Value) -> Tensor:
    return Tensor(core, call.result)


def _known(call: Call, function: Function) -> Literal | None:
    """What is known of the result without a node; None where an operand is not known."""
    literals = [symbol for symbol in call.operands if isinstance(symbol, Literal)]
    if len(literals) != len(call.operands):
        return None
    splat, size = all(each.splat for each in literals), max(each.core.size for each in literals)
    if not splat and (is_float(call.result.dtype) or is_float(literals[0].type.dtype) or not _line(literals, size)):
        return None
    with np.errstate(all="ignore"):
        made = np.asarray(function(*(each.core for each in literals)))
    return call.literal(made.astype(numpy_dtype(call.result.dtype), copy=False))


def _line(literals: list[Literal], size: int) -> bool:
    """Numbers along one dim."""
    return size <= MAX_KNOWN and math.prod(np.broadcast_shapes(*(each.core.shape for each in literals))) == size


def _combined(call: Call, op: str) -> Symbol:
    left, right = call.operands
    return _pair(call, op, left, right)


def _pair(call: Call, op: str, left: Symbol, right: Symbol) -> Symbol:
    if isinstance(left, Literal) and left.splat and op in SYMMETRIC:
        left, right = right, left
    if isinstance(right, Literal) and right.splat:
        if NEUTRAL.get(op) == right.number:
            return _as_result(call, left)
        return _emitted(call, op, call.writer.core(left), scalar=finite(right.number, right.type.dtype))
    if isinstance(left, Literal) and left.splat:
        number = finite(left.number, left.type.dtype)
        return _emitted(call, op, call.writer.core(right), scalar=number, reversed=True)
    return _emitted(call, op, call.writer.core(left), call.writer.core(right))


def _as_result(call: Call, symbol: Symbol) -> Symbol:
    return symbol if symbol.type == call.result else Tensor(call.writer.core(symbol), call.result)


def _emitted(call: Call, op: str, *cores: Value, **attrs: Any) -> Tensor:
    shape = np.broadcast_shapes(*(core.shape for core in cores))
    kind = TensorType(tuple(shape), call.result.dtype)
    rule = f"{', '.join(['...'] * len(cores))} -> ..."
    return _of(call, call.writer.node(op, cores, [kind], attrs, rule)[0])


def quotient(left: Any, right: Any) -> Any:
    """Of integers towards zero."""
    return np.trunc(left / right) if left.dtype.kind in "iu" else left / right
