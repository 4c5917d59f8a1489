"""Rows for elementwise calls, which broadcast as numpy does."""

from __future__ import annotations

from planner.frontends.graph_builder import DocumentValue, clamp_infinity
from planner.frontends.torch.aten_call import AtenCall, AtenRow, promote_dtypes
from planner.ir.dtypes import is_float

NEUTRAL = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1, "pow": 1}
"""The neutral right operand of every op."""

Operand = DocumentValue | float


def unary(op: str) -> AtenRow:
    return lambda call: call.emit(op, call.cast(call["self"], call.result.dtype))


def predicate(op: str) -> AtenRow:
    return lambda call: call.emit(op, call["self"])


def gelu(call: AtenCall) -> DocumentValue:
    return call.emit("gelu", call["self"], approximate=call["approximate"])


def binary(op: str, left: str = "self", right: str = "other") -> AtenRow:
    """Return a row for `left` op `right` in the result's dtype."""
    return lambda call: _emit(call, op, call[left], right=call[right], dtype=call.result.dtype)


def scaled_binary(op: str, left: str = "self", right: str = "other") -> AtenRow:
    """Return a row for `left` op alpha * `right`; alpha scales the argument `other`."""

    def row(call: AtenCall) -> DocumentValue:
        dtype, alpha = call.result.dtype, call["alpha"]
        operands = {"self": call["self"], "other": call["other"]}
        call.demand(f"alpha = {alpha}", alpha == 1 or isinstance(operands[right], DocumentValue))
        if alpha != 1:
            scaled = call.cast(operands[right], dtype)
            operands[right] = call.step("multiply", [scaled], scalar=alpha)
        return _emit(call, op, operands[left], right=operands[right], dtype=dtype)

    return row


def comparison(op: str) -> AtenRow:
    """Return a row for `self` op `other`, in the dtype in which torch compares them."""

    def row(call: AtenCall) -> DocumentValue:
        left, right = call["self"], call["other"]
        return _emit(call, op, left, right=right, dtype=promote_dtypes(left, right))

    return row


def logical(op: str) -> AtenRow:
    """Return a row for `self` op `other`, of which any element but zero is true."""
    return lambda call: call.emit(op, *(call.cast(call[each], "bool") for each in ("self", "other")))


def bitwise(op: str) -> AtenRow:
    """Return a row for `self` op `other`, which is logical on bool tensors."""

    def row(call: AtenCall) -> DocumentValue:
        dtype = call.result.dtype
        family = "logical" if dtype == "bool" else "bitwise"
        return _emit(call, f"{family}_{op}", call["self"], right=call["other"], dtype=dtype)

    return row


def logical_not(call: AtenCall) -> DocumentValue:
    return call.emit("logical_not", call.cast(call["self"], "bool"))


def bitwise_not(call: AtenCall) -> DocumentValue:
    return call.emit("logical_not" if call.result.dtype == "bool" else "bitwise_not", call["self"])


def _emit(call: AtenCall, op: str, left: Operand, *, right: Operand, dtype: str) -> DocumentValue:
    if isinstance(left, DocumentValue) and isinstance(right, DocumentValue):
        return call.emit(op, call.cast(left, dtype), call.cast(right, dtype))
    if isinstance(left, DocumentValue) and not isinstance(right, DocumentValue):
        x = call.cast(left, dtype)
        return x if NEUTRAL.get(op) == right else call.emit(op, x, scalar=clamp_infinity(right, dtype))
    if isinstance(right, DocumentValue) and not isinstance(left, DocumentValue):
        return call.emit(op, call.cast(right, dtype), scalar=clamp_infinity(left, dtype), reversed=True)
    raise TypeError(f"{op} of two scalars")  # no overload in the table accepts two scalars


def divide(call: AtenCall) -> DocumentValue:
    """Divide; `floor` rounds down, `trunc` rounds towards zero (integers only), None does not round."""
    integers = not is_float(call.result.dtype)
    op = {None: "divide", "floor": "floor_divide", "trunc": "divide"}[call["rounding_mode"]]
    call.demand("floats rounded towards zero", call["rounding_mode"] != "trunc" or integers)
    return _emit(call, op, call["self"], right=call["other"], dtype=call.result.dtype)


def clamp(call: AtenCall) -> DocumentValue:
    """maximum with `min`, then minimum with `max`; either bound may be absent."""
    dtype = call.result.dtype
    value = call.cast(call["self"], dtype)
    low, high = (call.arguments.get(bound) for bound in ("min", "max"))
    if low is not None and high is not None:
        value = call.step("maximum", [value], scalar=clamp_infinity(low, dtype))
        return call.emit("minimum", value, scalar=clamp_infinity(high, dtype))
    if low is not None:
        return call.emit("maximum", value, scalar=clamp_infinity(low, dtype))
    return value if high is None else call.emit("minimum", value, scalar=clamp_infinity(high, dtype))


def where(call: AtenCall) -> DocumentValue:
    return _select(call, call["condition"], call["self"], call["other"])


def masked_fill(call: AtenCall) -> DocumentValue:
    return _select(call, call["mask"], call["value"], call["self"])


def _select(call: AtenCall, condition: DocumentValue, *branches: Operand) -> DocumentValue:
    dtype = call.result.dtype
    x, y = (call.cast(b, dtype) if isinstance(b, DocumentValue) else call.full(b, (), dtype) for b in branches)
    return call.emit("where", call.cast(condition, "bool"), x, y)


def to_dtype(call: AtenCall) -> DocumentValue:
    """Cast to the result's dtype; moves between devices and memory layouts emit nothing."""
    value: DocumentValue = call["self"]
    return value if value.dtype == call.result.dtype else call.emit("cast", value)


def unchanged(call: AtenCall) -> DocumentValue:
    """Calls that copy, or that matter to autograd only."""
    value: DocumentValue = call["self"]
    return value
