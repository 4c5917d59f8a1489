"""Rows for operators that read or write at positions. Negative positions count from the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.frontends.graph_builder import DocumentValue, clamp_infinity
from planner.frontends.onnx.node_call import OnnxNodeCall
from planner.frontends.onnx.views import take_slice
from planner.ir.graph import TensorType

OUT_OF_RANGE = "wrap"
_REDUCTIONS = {"add": "sum", "max": "max", "min": "min"}


def gather(call: OnnxNodeCall) -> DocumentValue:
    """A gather along one dim: a slice for one known position, an embedding for rows of a table, else `index`."""
    dim, number = call.dim(), call.number(1)
    value = call.value()
    if number is not None:
        at = int(number) % value.shape[dim]
        return call.reshape_to_result(take_slice(call, value, dim, places=range(at, at + 1)))
    ids = call.value(1)
    if dim == 0 and len(value.shape) == 2:
        return call.emit("embedding", value, ids, beyond=OUT_OF_RANGE)
    return call.emit("index", value, ids, dims=[dim], beyond=OUT_OF_RANGE)


def gather_elements(call: OnnxNodeCall) -> DocumentValue:
    """Gather along a dim; in the other dims the data is cut to the size of the ids."""
    dim, ids, value = call.dim(), call.value(1), call.value()
    for other, size in enumerate(ids.shape):
        if other != dim and size < value.shape[other]:
            value = take_slice(call, value, other, places=range(size))
    return call.emit("gather", value, ids, dim=dim, beyond=OUT_OF_RANGE)


def gather_nd(call: OnnxNodeCall) -> DocumentValue:
    """Read at positions whose last dim lists one number per indexed dim; batch dims are read at their own position."""
    value, ids, batch = call.value(), call.value(1), int(call.attribute("batch_dims", 0))
    places = [*_batch_places(call, ids, batch), *_columns(call, ids)]
    return call.reshape_to_result(_gather_at(call, value, places))


def _gather_at(call: OnnxNodeCall, value: DocumentValue, places: Sequence[DocumentValue]) -> DocumentValue:
    return call.emit("index", value, *places, dims=list(range(len(places))), beyond=OUT_OF_RANGE)


def _columns(call: OnnxNodeCall, ids: DocumentValue) -> list[DocumentValue]:
    """Split ids along their last dim into the positions of each dim."""
    count, shape = ids.shape[-1], ids.shape[:-1]
    dim = len(shape)
    if count == 1:
        return [call.reshape(ids, shape)]
    types = [TensorType((*shape, 1), ids.dtype)] * count
    return [call.reshape(column, shape) for column in call.step_all("split", [ids], types, dim=dim)]


def _batch_places(call: OnnxNodeCall, ids: DocumentValue, batch: int) -> list[DocumentValue]:
    """Return 0, 1, ... along every batch dim, broadcastable to the positions."""
    rank = len(ids.shape) - 1
    shapes = [[n if k == dim else 1 for k in range(rank)] for dim, n in enumerate(ids.shape[:batch])]
    return [
        call.step("arange", [], shape, dtype=ids.dtype, start=0, step=1, dim=dim) for dim, shape in enumerate(shapes)
    ]


def scatter_elements(call: OnnxNodeCall) -> DocumentValue:
    dim, value, ids = call.dim(), call.value(), call.value(1)
    others = all(size == value.shape[k] for k, size in enumerate(ids.shape) if k != dim)
    call.demand("ids that end before the data do", others)
    return call.emit("scatter", value, ids, call.value(2), dim=dim, beyond=OUT_OF_RANGE, **_read_reduction(call))


def scatter_nd(call: OnnxNodeCall) -> DocumentValue:
    """Write at positions whose last dim lists one number per indexed dim."""
    places = _columns(call, call.value(1))
    dims = list(range(len(places)))
    return call.emit(
        "index_put", call.value(), *places, call.value(2), dims=dims, beyond=OUT_OF_RANGE, **_read_reduction(call)
    )


def _read_reduction(call: OnnxNodeCall) -> dict[str, Any]:
    kind = call.attribute("reduction", "none")
    call.demand(f"reduction {kind}", kind in ("none", *_REDUCTIONS))
    return {"accumulate": True, "reduction": _REDUCTIONS[kind]} if kind in _REDUCTIONS else {}


def topk(call: OnnxNodeCall) -> Sequence[DocumentValue]:
    """The largest elements, or the smallest as the largest of the negated ones."""
    value, dim = call.value(), call.dim(default=-1)
    call.demand("a result left out", len(call.results) == 2)
    if call.attribute("largest", 1):
        return call.emit_all("topk", value, dim=dim)
    negative = call.step("negate", [value])
    found, places = call.step_all("topk", [negative], call.results, dim=dim)
    return [call.emit("negate", found), places]


def one_hot(call: OnnxNodeCall) -> DocumentValue:
    """One number at the position of each id and another number elsewhere."""
    listed = call.operand(2).known
    call.demand("values that depend on data", listed is not None and listed.size == 2)
    assert listed is not None
    off, on = listed.reshape(-1).tolist()
    rank, dtype = len(call.result.shape), call.result.dtype
    dim = call.dim(default=-1, rank=rank)
    others = [k for k in range(rank) if k != dim]
    shape = [call.result.shape[k] for k in (*others, dim)]
    hits = call.step("one_hot", [call.value()], shape, dtype=dtype, beyond=OUT_OF_RANGE)
    if (off, on) != (0, 1):
        hits = call.step("multiply", [hits], scalar=clamp_infinity(on - off, dtype))
        hits = call.step("add", [hits], scalar=clamp_infinity(off, dtype))
    order = [others.index(k) if k != dim else rank - 1 for k in range(rank)]
    return hits if order == sorted(order) else call.emit("transpose", hits, permutation=order)
