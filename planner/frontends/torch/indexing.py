"""Rows for calls that read and write at positions, or sort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.torch.aten_call import AtenCall, AtenRow
from planner.ir.dtypes import is_integer


def index(call: AtenCall) -> DocumentValue:
    ids, dims = _read_index(call)
    return call.emit("index", call["self"], *ids, dims=dims, beyond="wrap")


def index_put(call: AtenCall) -> DocumentValue:
    """Write at positions; the written values are broadcast to the shape that the same positions would read."""
    ids, dims = _read_index(call)
    x, written = call["self"], call.cast(call["values"], call.result.dtype)
    places = _broadcast([each.shape for each in ids])
    shape = (*x.shape[: dims[0]], *places, *x.shape[dims[0] + len(dims) :])
    if written.shape != shape:
        written = call.step("expand", [written], shape)
    return call.emit("index_put", x, *ids, written, dims=dims, accumulate=bool(call["accumulate"]), beyond="wrap")


def _read_index(call: AtenCall) -> tuple[list[DocumentValue], list[int]]:
    """Return the ids and the dims they index. Raises NotCovered for masks and for dims that are not adjacent."""
    dims = [dim for dim, ids in enumerate(call["indices"]) if ids is not None]
    ids = [call["indices"][dim] for dim in dims]
    call.demand("a mask in the place of positions: what it chooses has no fixed shape", _is_integer_index(ids))
    call.demand("positions in dims apart", dims == list(range(dims[0], dims[0] + len(dims))))
    return ids, dims


def _is_integer_index(ids: Sequence[DocumentValue]) -> bool:
    return all(is_integer(each.dtype) and each.dtype != "u8" for each in ids)


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*aligned, strict=True))


def gather(call: AtenCall) -> DocumentValue:
    """Gather along a dim; the data's other dims are cut to the size of the positions."""
    x, ids, dim = call["self"], call["index"], call.dim("dim")
    return call.emit("gather", _trim_to_ids(call, x, ids, dim=dim), ids, dim=dim)


def _trim_to_ids(call: AtenCall, x: DocumentValue, ids: DocumentValue, *, dim: int) -> DocumentValue:
    for other, size in enumerate(ids.shape):
        if other != dim:
            x = call.cut(x, other, stop=size)
    return x


def scatter(reduction: str | None) -> AtenRow:
    return lambda call: _scatter(call, reduction)


def scatter_reduce(call: AtenCall) -> DocumentValue:
    """Reduce what is there with what is written."""
    call.demand("what is there left out", call["include_self"])
    kind = {"sum": "sum", "amax": "max", "amin": "min"}.get(call["reduce"])
    call.demand(f"reduce {call['reduce']!r}", kind is not None)
    return _scatter(call, kind)


def _scatter(call: AtenCall, reduction: str | None) -> DocumentValue:
    x, ids, written, dim = call["self"], call["index"], call["src"], call.dim("dim")
    others = zip(x.shape[:dim] + x.shape[dim + 1 :], ids.shape[:dim] + ids.shape[dim + 1 :], strict=True)
    call.demand("fewer positions than the data in another dim", all(a == b for a, b in others))
    call.demand("more written than positions", written.shape == ids.shape)
    attrs = {} if reduction is None else {"accumulate": True, "reduction": reduction}
    return call.emit("scatter", x, ids, written, dim=dim, **attrs)


def scatter_number(call: AtenCall) -> DocumentValue:
    """Write one number at all positions."""
    written = call.full(call["value"], call["index"].shape, call["self"].dtype)
    return _scatter(replace(call, arguments={**call.arguments, "src": written}), None)


def index_select(call: AtenCall) -> DocumentValue:
    return call.emit("index", call["self"], call["index"], dims=[call.dim("dim")], beyond="refuse")


def topk(call: AtenCall) -> Sequence[DocumentValue]:
    call.demand("the smallest", call["largest"])
    return call.emit_all("topk", call["self"], dim=call.dim("dim"))


def sort(call: AtenCall) -> Sequence[DocumentValue]:
    return call.emit_all("sort", call["self"], dim=call.dim("dim"), descending=bool(call["descending"]))


def argsort(call: AtenCall) -> DocumentValue:
    both = replace(call, results=(call["self"].type, call.result))
    return sort(both)[1]


def extreme(op: str) -> AtenRow:
    """Return a row for the extreme values along a dim and their positions."""

    def row(call: AtenCall) -> Sequence[DocumentValue]:
        x, dim, keepdim = call["self"], call.dim("dim"), call["keepdim"]
        values, places = call.results
        best = call.step(op, [x], values.shape, dtype=values.dtype, dims=[dim], keepdim=keepdim)
        return [best, call.step(f"arg{op}", [x], places.shape, dtype=places.dtype, dim=dim, keepdim=keepdim)]

    return row


def argument(op: str) -> AtenRow:
    def row(call: AtenCall) -> DocumentValue:
        call.demand("a position among all elements", call["dim"] is not None)
        return call.emit(op, call["self"], dim=call.dim("dim"), keepdim=call["keepdim"])

    return row


def histogram(call: AtenCall) -> DocumentValue:
    """Count how often each of the integers 0, 1, ... occurs; every integer has its own bin."""
    ids = _integers_of(call, call["self"])
    call.demand("bins of anything but integers 0, 1, ...", (call["min"], call["max"]) == (0, call["bins"] - 1))
    return _counts(call, ids, call["bins"])


def integer_histogram(call: AtenCall) -> DocumentValue:
    return _counts(call, call["ids"], call["bins"])


def _counts(call: AtenCall, ids: DocumentValue, bins: int) -> DocumentValue:
    dtype, rank = call.result.dtype, len(ids.shape)
    hits = call.step("one_hot", [ids], (*ids.shape, bins), dtype=dtype, beyond="drop")
    return call.emit("sum", hits, dims=list(range(rank)), keepdim=False)


def _integers_of(call: AtenCall, value: DocumentValue) -> DocumentValue:
    """Return the integers that floats were cast from. Raises NotCovered for any other floats."""
    if is_integer(value.dtype):
        return value
    node = call.builder.find_node(value)
    source = call.builder.find_value(node["inputs"][0]) if node and node["op"] == "cast" else value
    call.demand("bins of floats", is_integer(source.dtype))
    return source


def difference(call: AtenCall) -> DocumentValue:
    """x[k + 1] - x[k] along a dim, after `prepend` and `append` are joined to x."""
    call.demand(f"differences of order {call['n']}", call["n"] == 1)
    pieces = [each for each in (call["prepend"], call["self"], call["append"]) if each is not None]
    dim, dtype = call.dim("dim"), call.result.dtype
    call.demand("differences of bool", dtype != "bool")
    sizes = [each.shape[dim] for each in pieces]
    before, behind = call.result.shape[:dim], call.result.shape[dim + 1 :]
    whole = pieces[0]
    if len(pieces) > 1:
        whole = call.step("concat", pieces, (*before, sum(sizes), *behind), dtype=dtype, dim=dim)
    last = sum(sizes) - 1
    ends = [
        call.step("slice", [whole], call.result.shape, dtype=dtype, dim=dim, start=start, stop=start + last)
        for start in (1, 0)
    ]
    return call.emit("subtract", *ends)
