"""Rows for elementwise operators, which broadcast as numpy does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.frontends.graph_builder import DocumentValue, clamp_infinity
from planner.frontends.onnx.node_call import Number, OnnxNodeCall, OnnxRow


def unary(op: str) -> OnnxRow:
    return lambda call: call.emit(op, call.value())


def unchanged(call: OnnxNodeCall) -> DocumentValue:
    return call.value()


def gelu(call: OnnxNodeCall) -> DocumentValue:
    return call.emit("gelu", call.value(), approximate=call.attribute("approximate", "none"))


def cast(call: OnnxNodeCall) -> DocumentValue:
    value = call.value()
    return value if value.dtype == call.result.dtype else call.emit("cast", value)


def binary(op: str) -> OnnxRow:
    return lambda call: _binary(call, op)


def modulo(call: OnnxNodeCall) -> DocumentValue:
    return _binary(call, "fmod" if call.attribute("fmod", 0) else "remainder")


def _binary(call: OnnxNodeCall, op: str) -> DocumentValue:
    """Emit a binary op on operands of one dtype; a known number becomes an attribute if it adds no dims."""
    dtype = call.operand(0).type.dtype
    for place, attrs in ((1, {}), (0, {"reversed": True})):
        number = call.number(place)
        if number is not None and call.shape(1 - place) == call.result.shape:
            return call.emit(op, call.cast(call.value(1 - place), dtype), scalar=clamp_infinity(number, dtype), **attrs)
    return call.emit(op, call.value(0), call.cast(call.value(1), dtype))


def chain(op: str) -> OnnxRow:
    """Return a row that folds an op over any number of operands."""

    def row(call: OnnxNodeCall) -> DocumentValue:
        total = _fold_operands(call, op, len(call.operands) - 1)
        return total if len(call.operands) == 1 else call.emit(op, total, call.value(len(call.operands) - 1))

    return row


def mean(call: OnnxNodeCall) -> DocumentValue:
    return call.emit("divide", _fold_operands(call, "add", len(call.operands)), scalar=len(call.operands))


def _fold_operands(call: OnnxNodeCall, op: str, count: int) -> DocumentValue:
    total = call.value()
    for place in range(1, count):
        shape = np.broadcast_shapes(total.shape, call.shape(place))
        total = call.step(op, [total, call.value(place)], shape)
    return total


def clip(call: OnnxNodeCall) -> DocumentValue:
    """maximum with the lower bound, then minimum with the upper; in older versions the bounds are attributes."""
    value = call.value()
    bounds = [("maximum", _read_bound(call, 1, "min")), ("minimum", _read_bound(call, 2, "max"))]
    for op, bound in bounds:
        if isinstance(bound, DocumentValue):
            value = call.step(op, [value, bound])
        elif bound is not None:
            value = call.step(op, [value], scalar=clamp_infinity(bound, value.dtype))
    return value


def _read_bound(call: OnnxNodeCall, place: int, name: str) -> DocumentValue | Number | None:
    if call.given(place) is None:
        bound: Number | None = call.attribute(name)
        return bound
    number = call.number(place)
    return call.value(place) if number is None else number


def where(call: OnnxNodeCall) -> DocumentValue:
    return call.emit("where", call.value(0), call.value(1), call.value(2))


def is_infinite(call: OnnxNodeCall) -> DocumentValue:
    """Infinite: neither finite nor NaN."""
    both = call.attribute("detect_negative", 1) and call.attribute("detect_positive", 1)
    call.demand("infinities of one sign", bool(both))
    tame = [call.step(op, [call.value()], dtype="bool") for op in ("is_finite", "is_nan")]
    return call.emit("logical_not", call.step("logical_or", tame))


def dropout(call: OnnxNodeCall) -> Sequence[DocumentValue]:
    call.demand("dropout in training mode", not call.number(2))
    call.demand_one_result()
    return [call.value()]
