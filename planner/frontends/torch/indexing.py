"""Rows for calls that read, write or order by positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.frontends.torch.aten_call import AtenCall, AtenRow, AtenValue
from planner.ir.dtypes import is_integer
from planner.ir.graph import TensorType


def index(call: AtenCall) -> AtenValue:
    ids, dims = _read_index(call)
    return call.emit("index", call["self"], *ids, dims=dims, beyond="wrap")


def index_put(call: AtenCall) -> AtenValue:
    """What is written has the shape that would be read."""
    ids, dims = _read_index(call)
    x, written = call["self"], call.cast(call["values"], call.result.dtype)
    places = _broadcast([each.shape for each in ids])
    shape = (*x.shape[: dims[0]], *places, *x.shape[dims[0] + len(dims) :])
    if written.shape != shape:
        written = call.step("expand", [written], shape, written.dtype)
    return call.emit("index_put", x, *ids, written, dims=dims, accumulate=bool(call["accumulate"]), beyond="wrap")


def _read_index(call: AtenCall) -> tuple[list[AtenValue], list[int]]:
    """The ids, and the dims they are for. Raises NotCovered for masks, and for dims apart."""
    dims = [dim for dim, ids in enumerate(call["indices"]) if ids is not None]
    ids = [call["indices"][dim] for dim in dims]
    call.demand("a mask in the place of positions: what it chooses has no fixed shape", _is_integer_index(ids))
    call.demand("positions in dims apart", dims == list(range(dims[0], dims[0] + len(dims))))
    return ids, dims


def _is_integer_index(ids: Sequence[AtenValue]) -> bool:
    return all(is_integer(each.dtype) and each.dtype != "u8" for each in ids)


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*aligned, strict=True))


def gather(call: AtenCall) -> AtenValue:
    """Positions may be fewer than the data in the other dims, which are then cut."""
    x, ids, dim = call["self"], call["index"], call.dim("dim")
    return call.emit("gather", _trim_to_ids(call, x, ids, dim=dim), ids, dim=dim)


def _trim_to_ids(call: AtenCall, x: AtenValue, ids: AtenValue, *, dim: int) -> AtenValue:
    for other, size in enumerate(ids.shape):
        if other != dim and size != x.shape[other]:
            shape = (*x.shape[:other], size, *x.shape[other + 1 :])
            x = call.step("slice", [x], shape, x.dtype, dim=other, start=0, stop=size)
    return x


def scatter(accumulate: bool) -> AtenRow:
    def row(call: AtenCall) -> AtenValue:
        x, ids, written, dim = call["self"], call["index"], call["src"], call.dim("dim")
        others = zip(x.shape[:dim] + x.shape[dim + 1 :], ids.shape[:dim] + ids.shape[dim + 1 :], strict=True)
        call.demand("fewer positions than the data in another dim", all(a == b for a, b in others))
        call.demand("more written than positions", written.shape == ids.shape)
        return call.emit("scatter", x, ids, written, dim=dim, accumulate=accumulate)

    return row


def index_select(call: AtenCall) -> AtenValue:
    return call.emit("index", call["self"], call["index"], dims=[call.dim("dim")], beyond="refuse")


def topk(call: AtenCall) -> Sequence[AtenValue]:
    call.demand("the smallest", call["largest"])
    return call.emit_all("topk", call["self"], dim=call.dim("dim"))


def sort(call: AtenCall) -> Sequence[AtenValue]:
    return call.emit_all("sort", call["self"], dim=call.dim("dim"), descending=bool(call["descending"]))


def argsort(call: AtenCall) -> AtenValue:
    both = replace(call, results=(call["self"].type, call.result))
    return sort(both)[1]


def extreme(op: str) -> AtenRow:
    """Values and positions along a dim."""

    def row(call: AtenCall) -> Sequence[AtenValue]:
        x, dim, keepdim = call["self"], call.dim("dim"), call["keepdim"]
        values, places = call.results
        best = call.step(op, [x], values.shape, values.dtype, dims=[dim], keepdim=keepdim)
        return [best, call.step(f"arg{op}", [x], places.shape, places.dtype, dim=dim, keepdim=keepdim)]

    return row


def argument(op: str) -> AtenRow:
    def row(call: AtenCall) -> AtenValue:
        call.demand("a position among all elements", call["dim"] is not None)
        return call.emit(op, call["self"], dim=call.dim("dim"), keepdim=call["keepdim"])

    return row


def histogram(call: AtenCall) -> AtenValue:
    """How many of the integers 0, 1, ... there are, where every one has a bin of its own."""
    ids = _integers_of(call, call["self"])
    call.demand("bins of anything but integers 0, 1, ...", (call["min"], call["max"]) == (0, call["bins"] - 1))
    return _counts(call, ids, call["bins"])


def integer_histogram(call: AtenCall) -> AtenValue:
    return _counts(call, call["ids"], call["bins"])


def _counts(call: AtenCall, ids: AtenValue, bins: int) -> AtenValue:
    dtype, rank = call.result.dtype, len(ids.shape)
    hits = call.step("one_hot", [ids], (*ids.shape, bins), dtype, beyond="drop")
    return call.emit("sum", hits, dims=list(range(rank)), keepdim=False)


def _integers_of(call: AtenCall, value: AtenValue) -> AtenValue:
    """What a float was cast from. Raises NotCovered where that was no integer."""
    if is_integer(value.dtype):
        return value
    nodes = {node["id"]: node for node in call.nodes}
    maker = nodes.get(value.id, {"op": "", "inputs": []})
    read, _, number = "".join(maker["inputs"][:1]).partition(":")
    types = nodes[read]["outputs"] if maker["op"] == "cast" and read in nodes else []
    dtype = types[int(number or 0)]["dtype"] if types else ""
    call.demand("bins of floats", is_integer(dtype))
    return AtenValue(maker["inputs"][0], TensorType(value.shape, dtype))


def difference(call: AtenCall) -> AtenValue:
    """x[k + 1] - x[k], of x with what is to stand before and behind it."""
    call.demand(f"differences of order {call['n']}", call["n"] == 1)
    pieces = [each for each in (call["prepend"], call["self"], call["append"]) if each is not None]
    dim, dtype = call.dim("dim"), call.result.dtype
    call.demand("differences of bool", dtype != "bool")
    sizes = [each.shape[dim] for each in pieces]
    before, behind = call.result.shape[:dim], call.result.shape[dim + 1 :]
    whole = pieces[0]
    if len(pieces) > 1:
        whole = call.step("concat", pieces, (*before, sum(sizes), *behind), dtype, dim=dim)
    last = sum(sizes) - 1
    ends = [
        call.step("slice", [whole], call.result.shape, dtype, dim=dim, start=start, stop=start + last)
        for start in (1, 0)
    ]
    return call.emit("subtract", *ends)
