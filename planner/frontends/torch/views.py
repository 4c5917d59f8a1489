"""Rows for calls that rearrange elements, and for calls that create constants and ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.frontends.graph_builder import DocumentValue, clamp_infinity
from planner.frontends.torch.aten_call import AtenCall, AtenRow
from planner.ir.graph import TensorType


def reshape(call: AtenCall) -> DocumentValue:
    """Any call that keeps the order of the elements: reshape to the result's shape."""
    return call.reshape_to_result(call["self"])


def expand(call: AtenCall) -> DocumentValue:
    value: DocumentValue = call["self"]
    return value if value.shape == call.result.shape else call.emit("expand", value)


def permute(call: AtenCall) -> DocumentValue:
    rank = len(call["self"].shape)
    return _permute(call, [dim % rank for dim in call["dims"]])


def exchange(first: str, second: str) -> AtenRow:
    """Return a row that exchanges the dims in two arguments."""

    def row(call: AtenCall) -> DocumentValue:
        order = list(range(len(call["self"].shape)))
        a, b = call.dim(first), call.dim(second)
        order[a], order[b] = order[b], order[a]
        return _permute(call, order)

    return row


def reverse_dims(call: AtenCall) -> DocumentValue:
    return _permute(call, list(reversed(range(len(call["self"].shape)))))


def _permute(call: AtenCall, order: list[int]) -> DocumentValue:
    value: DocumentValue = call["self"]
    return value if order == sorted(order) else call.emit("transpose", value, permutation=order)


def slice_(call: AtenCall) -> DocumentValue:
    value, dim = call["self"], call.dim("dim")
    start, stop, step = slice(call["start"], call["end"], call["step"]).indices(value.shape[dim])
    if step > 1:
        return _every_other(call, value, start=start, stop=stop)
    whole = (start, stop) == (0, value.shape[dim])
    return value if whole else call.emit("slice", value, dim=dim, start=start, stop=stop)


def _every_other(call: AtenCall, value: DocumentValue, *, start: int, stop: int) -> DocumentValue:
    """Every `step`-th position: the first of each group of so many, the last of which may have to be padded."""
    dim, step = call.dim("dim"), call["step"]
    before, count, behind = value.shape[:dim], call.result.shape[dim], value.shape[dim + 1 :]
    stop = min(start + count * step, value.shape[dim])
    value = call.cut(value, dim, start=start, stop=stop)
    if missing := count * step - (stop - start):
        low, high = [0] * len(value.shape), [0] * len(value.shape)
        high[dim] = missing
        value = call.step("pad", [value], (*before, count * step, *behind), low=low, high=high)
    groups = call.reshape(value, (*before, count, step, *behind))
    return call.emit("reshape", call.cut(groups, dim + 1, stop=1))


def select(call: AtenCall) -> DocumentValue:
    """One position along a dim; the dim disappears."""
    value, dim = call["self"], call.dim("dim")
    start = call["index"] % value.shape[dim]
    return call.emit("reshape", call.cut(value, dim, start=start, stop=start + 1))


def narrow(call: AtenCall) -> DocumentValue:
    value, dim = call["self"], call.dim("dim")
    size, length = value.shape[dim], call["length"]
    start = call["start"] % size
    return value if length == size else call.emit("slice", value, dim=dim, start=start, stop=start + length)


def split(call: AtenCall) -> Sequence[DocumentValue | None]:
    """Pieces along a dim, of the sizes of the results; None stands for a piece without elements."""
    whole = call["self"]
    pieces = [whole] if len(call.results) == 1 else call.emit_all("split", whole, dim=call.dim("dim"))
    left = iter(pieces)
    return [next(left) if size else None for size in call.arguments.get("split_sizes", call.results)]


def unbind(call: AtenCall) -> Sequence[DocumentValue]:
    """Every position along a dim, as one result each; the dim disappears."""
    value, dim = call["self"], call.dim("dim")
    shape = (*value.shape[:dim], 1, *value.shape[dim + 1 :])
    count = value.shape[dim]
    pieces = (
        call.step_all("split", [value], [TensorType(shape, value.dtype)] * count, dim=dim) if count > 1 else [value]
    )
    return [call.reshape(piece, result.shape) for piece, result in zip(pieces, call.results, strict=True)]


def concat(call: AtenCall) -> DocumentValue:
    dim = call["dim"] % len(call.result.shape)
    pieces = [call.cast(piece, call.result.dtype) for piece in call["tensors"] if piece is not None]
    return pieces[0] if len(pieces) == 1 else call.emit("concat", *pieces, dim=dim)


def stack(call: AtenCall) -> DocumentValue:
    dim = call["dim"] % len(call.result.shape)
    shape = (*call.result.shape[:dim], 1, *call.result.shape[dim + 1 :])
    pieces = [call.reshape(call.cast(piece, call.result.dtype), shape) for piece in call["tensors"]]
    return pieces[0] if len(pieces) == 1 else call.emit("concat", *pieces, dim=dim)


def arange(call: AtenCall) -> DocumentValue:
    return call.emit("arange", start=call.arguments.get("start", 0), step=call.arguments.get("step", 1))


def full(argument: str) -> AtenRow:
    """Return a row for a tensor filled with the number in `argument`."""
    return lambda call: call.emit("full", value=clamp_infinity(call[argument], call.result.dtype))


def constant(number: int) -> AtenRow:
    """Return a row for a tensor filled with `number`."""
    return lambda call: call.emit("full", value=number)


def triangle(op: str) -> AtenRow:
    """Return a row for tril or triu."""
    return lambda call: call.emit(op, call["self"], diagonal=call["diagonal"])


def pad(call: AtenCall) -> DocumentValue:
    """Pad by a constant; torch lists (low, high) pairs from the last dim backwards."""
    x: DocumentValue = call["self"]
    widths, rank = call["pad"], len(x.shape)
    call.demand("padding by what is there", call.arguments.get("mode", "constant") == "constant")
    count = rank - len(widths) // 2
    low, high = ([0] * count + list(widths[side::2])[::-1] for side in (0, 1))
    for dim, (before, after) in enumerate(zip(low, high, strict=True)):
        # A negative width cuts off.
        x = call.cut(x, dim, start=max(0, -before), stop=x.shape[dim] - max(0, -after))
    low, high = ([max(0, width) for width in widths] for widths in (low, high))
    if not any((*low, *high)):
        return x
    return call.emit("pad", x, low=low, high=high, value=clamp_infinity(call["value"] or 0, x.dtype))


def roll(call: AtenCall) -> DocumentValue:
    """Shift along each dim; what leaves at the end comes in at the start. Without dims the tensor is flat."""
    x, dims, shifts = call["self"], call["dims"], list(call["shifts"])
    if dims:
        return call.emit("roll", x, dims=[dim % len(x.shape) for dim in dims], shifts=shifts)
    flat = call.reshape(x, (math.prod(x.shape),))
    return call.reshape(call.step("roll", [flat], dims=[0], shifts=shifts), x.shape)


def flip(call: AtenCall) -> DocumentValue:
    rank = len(call["self"].shape)
    return call.emit("flip", call["self"], dims=sorted(dim % rank for dim in call["dims"]))


def given_results(call: AtenCall) -> list[DocumentValue]:
    """Return the values that pass through a call unchanged."""
    return list(call["results"])
