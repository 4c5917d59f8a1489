"""Rows for calls that rearrange elements, and for those that make them from nothing."""

from __future__ import annotations

from collections.abc import Sequence

from planner.frontends.torch.call import Call, Row, Value, finite


def reshape(call: Call) -> Value:
    """Every call that keeps the elements in order: the target is the result's shape."""
    value: Value = call["self"]
    return value if value.shape == call.result.shape else call.emit("reshape", value)


def expand(call: Call) -> Value:
    value: Value = call["self"]
    return value if value.shape == call.result.shape else call.emit("expand", value)


def permute(call: Call) -> Value:
    rank = len(call["self"].shape)
    return _permuted(call, [dim % rank for dim in call["dims"]])


def exchange(first: str, second: str) -> Row:
    """Two dims change places."""

    def row(call: Call) -> Value:
        order = list(range(len(call["self"].shape)))
        a, b = call.dim(first), call.dim(second)
        order[a], order[b] = order[b], order[a]
        return _permuted(call, order)

    return row


def reverse_dims(call: Call) -> Value:
    return _permuted(call, list(reversed(range(len(call["self"].shape)))))


def _permuted(call: Call, order: list[int]) -> Value:
    value: Value = call["self"]
    return value if order == sorted(order) else call.emit("transpose", value, permutation=order)


def slice_(call: Call) -> Value:
    value, dim = call["self"], call.dim("dim")
    call.demand(f"step {call['step']}", call["step"] == 1)
    start, stop, _ = slice(call["start"], call["end"]).indices(value.shape[dim])
    whole = (start, stop) == (0, value.shape[dim])
    return value if whole else call.emit("slice", value, dim=dim, start=start, stop=stop)


def select(call: Call) -> Value:
    """One position of a dim, which disappears."""
    value, dim = call["self"], call.dim("dim")
    size = value.shape[dim]
    start = call["index"] % size
    if size == 1:
        return call.emit("reshape", value)
    shape = (*value.shape[:dim], 1, *value.shape[dim + 1 :])
    piece = call.step("slice", [value], shape, value.dtype, dim=dim, start=start, stop=start + 1)
    return call.emit("reshape", piece)


def narrow(call: Call) -> Value:
    value, dim = call["self"], call.dim("dim")
    size, length = value.shape[dim], call["length"]
    start = call["start"] % size
    return value if length == size else call.emit("slice", value, dim=dim, start=start, stop=start + length)


def split(call: Call) -> Sequence[Value]:
    """Pieces along a dim; their sizes are the results'."""
    if len(call.results) == 1:
        return [call["self"]]
    return call.emit_all("split", call["self"], dim=call.dim("dim"))


def unbind(call: Call) -> Sequence[Value]:
    """Every position of a dim, which disappears."""
    value, dim = call["self"], call.dim("dim")
    shape = (*value.shape[:dim], 1, *value.shape[dim + 1 :])
    count = value.shape[dim]
    pieces = call.step_all("split", [value], [shape] * count, value.dtype, dim=dim) if count > 1 else [value]
    return [call.reshaped(piece, result.shape) for piece, result in zip(pieces, call.results, strict=True)]


def concat(call: Call) -> Value:
    dim = call["dim"] % len(call.result.shape)
    pieces = [call.cast(piece, call.result.dtype) for piece in call["tensors"]]
    return pieces[0] if len(pieces) == 1 else call.emit("concat", *pieces, dim=dim)


def stack(call: Call) -> Value:
    dim = call["dim"] % len(call.result.shape)
    shape = (*call.result.shape[:dim], 1, *call.result.shape[dim + 1 :])
    pieces = [call.reshaped(call.cast(piece, call.result.dtype), shape) for piece in call["tensors"]]
    return pieces[0] if len(pieces) == 1 else call.emit("concat", *pieces, dim=dim)


def arange(call: Call) -> Value:
    return call.emit("arange", start=call.arguments.get("start", 0), step=call.arguments.get("step", 1))


def full(argument: str) -> Row:
    """A tensor filled with the number in `argument`."""
    return lambda call: call.emit("full", value=finite(call[argument], call.result.dtype))


def constant(number: int) -> Row:
    """A tensor filled with `number`."""
    return lambda call: call.emit("full", value=number)


def triangle(compare: str) -> Row:
    """tril, triu: zeros where column - row `compare` diagonal does not hold."""

    def row(call: Call) -> Value:
        value: Value = call["self"]
        rows, columns = value.shape[-2:]
        down = call.step("arange", [], [rows], "i64", start=call["diagonal"], step=1)
        across = call.step("arange", [], [columns], "i64", start=0, step=1)
        keep = call.step(compare, [across, call.reshaped(down, [rows, 1])], [rows, columns], "bool")
        return call.emit("where", keep, value, call.scalar(0, value.dtype))

    return row
