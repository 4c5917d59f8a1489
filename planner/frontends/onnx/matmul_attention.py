"""Rows for matrix products, attention, normalisations of rows and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.onnx.node_call import OnnxNodeCall, OnnxOperand, OnnxRow


def matmul(call: OnnxNodeCall) -> DocumentValue:
    """A product of (batches of) matrices; a vector is reshaped to a matrix before."""
    a, b = call.value(0), call.value(1)
    if len(a.shape) > 1 and len(b.shape) > 1:
        return call.emit("matmul", a, b)
    a = call.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    b = call.reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    return call.reshape_to_result(call.step("matmul", [a, b], shape))


def gemm(call: OnnxNodeCall) -> DocumentValue:
    """alpha A B + beta C, where A and B may be transposed."""
    a = _transpose_last(call, call.value(0)) if call.attribute("transA", 0) else call.value(0)
    b, turned = call.value(1), bool(call.attribute("transB", 0))
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    bias = _scale_by(call, call.value(2), beta) if call.given(2) is not None and beta != 0 else None
    if alpha != 1:
        a = _scale_by(call, a, alpha)
    if turned and (bias is None or bias.shape == call.result.shape[-1:]):
        return call.emit("linear", a, b, *([] if bias is None else [bias]))
    b = _transpose_last(call, b) if turned else b
    return call.emit("matmul", a, b) if bias is None else call.emit("addmm", bias, a, b)


def _scale_by(call: OnnxNodeCall, value: DocumentValue, factor: float) -> DocumentValue:
    return value if factor == 1 else call.step("multiply", [value], scalar=factor)


def _transpose_last(call: OnnxNodeCall, value: DocumentValue) -> DocumentValue:
    return call.step("transpose", [value], value.shape[::-1], permutation=[1, 0])


def einsum(call: OnnxNodeCall) -> DocumentValue:
    """Einsum with one letter per dim; our notation separates the letters by spaces."""
    text = call.attribute("equation", "").replace(" ", "")
    call.demand("an equation with dots, or without a result", "." not in text and "->" in text)
    read, _, target = text.partition("->")
    equation = ", ".join(" ".join(term) for term in read.split(",")) + " -> " + (" ".join(target) or "[]")
    return call.emit("einsum", *(call.value(k) for k in range(len(call.operands))), equation=equation)


def layer_norm(call: OnnxNodeCall) -> DocumentValue:
    dim = call.dim(default=-1)
    call.demand_one_result()
    operands = [call.value(), *(_scale(call, place, dim) for place in (1, 2) if call.given(place) is not None)]
    count = len(call.shape()) - dim
    return call.emit("layer_norm", *operands, normalized_dims=count, eps=call.attribute("epsilon", 1e-5))


def rms_norm(call: OnnxNodeCall) -> DocumentValue:
    dim = call.dim(default=-1)
    count = len(call.shape()) - dim
    scale = _scale(call, 1, dim)
    return call.emit("rms_norm", call.value(), scale, normalized_dims=count, eps=call.attribute("epsilon", 1e-5))


def _scale(call: OnnxNodeCall, place: int, dim: int) -> DocumentValue:
    """Return a scale or bias, broadcast to the normalised dims."""
    value, wanted = call.value(place), call.shape()[dim:]
    call.demand("a scale of other dims than those normalised", len(value.shape) <= len(wanted))
    return value if value.shape == wanted else call.step("expand", [value], wanted)


def softmax(op: str) -> OnnxRow:
    """Return a row for softmax along one dim. Before version 13 it spans all dims from `axis` on."""

    def row(call: OnnxNodeCall) -> DocumentValue:
        value = call.value()
        dim = call.dim(default=-1 if call.version >= 13 else 1)
        behind = value.shape[dim + 1 :]
        call.demand("softmax over several dims at once", call.version >= 13 or all(size == 1 for size in behind))
        return call.emit(op, value, dim=dim)

    return row


def reduction(op: str) -> OnnxRow:
    """Return a row that reduces over the dims in `axes`, or over all if there are none."""

    def row(call: OnnxNodeCall) -> DocumentValue:
        value = call.value()
        dims = _reduce_dims(call)
        if dims is None:
            return value
        return call.emit(op, value, dims=dims, keepdim=bool(call.attribute("keepdims", 1)))

    return row


def _reduce_dims(call: OnnxNodeCall) -> list[int] | None:
    """Return the reduced dims; None if the node reduces nothing."""
    rank, listed = len(call.shape()), call.integers(1, "axes")
    if not listed:
        return None if call.attribute("noop_with_empty_axes", 0) else list(range(rank))
    return sorted({dim % rank for dim in listed})


def arg_extreme(op: str) -> OnnxRow:
    """Return a row for argmax or argmin, which choose the first of equal elements."""

    def row(call: OnnxNodeCall) -> DocumentValue:
        call.demand("the last of several equal ones", not call.attribute("select_last_index", 0))
        return call.emit(op, call.value(), dim=call.dim(), keepdim=bool(call.attribute("keepdims", 1)))

    return row


def cumsum(call: OnnxNodeCall) -> DocumentValue:
    """Cumulative sum; `reverse` starts at the end, `exclusive` leaves out the element itself."""
    (dim,) = call.integers(1) or [0]
    value = call.value()
    dim %= len(value.shape)
    exclusive, backwards = call.attribute("exclusive", 0), call.attribute("reverse", 0)
    if not exclusive and not backwards:
        return call.emit("cumsum", value, dim=dim)
    turned = call.step("flip", [value], dims=[dim]) if backwards else value
    total = call.step("cumsum", [turned], dim=dim)
    if exclusive:
        total = call.step("subtract", [total, turned])
    return call.emit("flip", total, dims=[dim]) if backwards else total


def attention(call: OnnxNodeCall) -> DocumentValue:
    """Attention of [batch, heads, length, size] or [batch, length, heads * size].

    Queries that share a key get a dim of their own, along which the key is broadcast.
    """
    call.demand("past keys", call.given(4) is None and call.given(5) is None)
    call.demand("softcap", not call.attribute("softcap", 0.0))
    call.demand_one_result()
    apart = len(call.shape()) == 4
    heads = call.shape()[1] if apart else call.attribute("q_num_heads")
    shared = call.shape(1)[1] if apart else call.attribute("kv_num_heads")
    values, causal = [call.value(place) for place in range(3)], bool(call.attribute("is_causal", 0))
    return add_attention(
        call, values, (heads, shared), causal=causal, mask=call.given(3), scale=call.attribute("scale")
    )


def add_attention(
    call: OnnxNodeCall,
    values: list[DocumentValue],
    counts: tuple[int, int],
    *,
    causal: bool,
    mask: OnnxOperand | None,
    scale: float | None,
) -> DocumentValue:
    """Emit attention of queries, keys and values as the call's last node; `counts`: heads of queries and of keys."""
    heads, shared = counts
    call.demand("heads of no number", bool(heads and shared and heads % shared == 0))
    split = [split_heads(call, each, count) for each, count in zip(values, (heads, shared, shared), strict=True)]
    query, key, value = split if heads == shared else _repeat_groups(call, split, shared)
    operands = [query, key, value, *([] if mask is None else [_mask(call, mask, heads, shared=shared)])]
    attrs: dict[str, Any] = {"causal": causal} | ({} if scale is None else {"scale": scale})
    mixed = call.step("scaled_dot_product_attention", operands, (*query.shape[:-1], value.shape[-1]), **attrs)
    mixed = call.reshape(mixed, (query.shape[0], heads, *mixed.shape[-2:]))
    if len(call.result.shape) == 4:
        return mixed
    shape = [mixed.shape[k] for k in (0, 2, 1, 3)]
    return call.emit("reshape", call.step("transpose", [mixed], shape, permutation=[0, 2, 1, 3]))


def split_heads(call: OnnxNodeCall, value: DocumentValue, count: int) -> DocumentValue:
    """Rearrange [batch, length, heads * size] to [batch, heads, length, size], unless it has four dims already."""
    if len(value.shape) == 4:
        return value
    batch, length, width = value.shape
    call.demand(f"{width} numbers in {count} heads", count > 0 and width % count == 0)
    parts = call.reshape(value, (batch, length, count, width // count))
    return call.step("transpose", [parts], (batch, count, length, width // count), permutation=[0, 2, 1, 3])


def _repeat_groups(call: OnnxNodeCall, split: list[DocumentValue], groups: int) -> list[DocumentValue]:
    counts = [value.shape[1] // groups for value in split]
    pairs = zip(split, counts, strict=True)
    return [call.reshape(value, (value.shape[0], groups, count, *value.shape[2:])) for value, count in pairs]


def _mask(call: OnnxNodeCall, mask: OnnxOperand, heads: int, *, shared: int) -> DocumentValue:
    value = mask.value()
    if heads == shared or len(value.shape) < 3:
        return value
    parts = (shared, heads // shared) if value.shape[-3] == heads else (1, 1)
    return call.reshape(value, (*value.shape[:-3], *parts, *value.shape[-2:]))
