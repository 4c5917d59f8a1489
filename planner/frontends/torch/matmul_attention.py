"""Rows for matrix products, attention, normalisations and reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.torch.aten_call import DTYPES, AtenCall, AtenRow, DropoutSeed, NormStatistics, RowResult
from planner.frontends.torch.random_ops import read_seed


def linear(call: AtenCall) -> DocumentValue:
    return call.emit("linear", *pass_argument(call["input"], call["weight"], call["bias"]))


def addmm(call: AtenCall) -> DocumentValue:
    call.demand("alpha or beta other than 1", call["alpha"] == call["beta"] == 1)
    return call.emit("addmm", call["self"], call["mat1"], call["mat2"])


def matmul(right: str = "other") -> AtenRow:
    """Return a row for a product of (batches of) matrices; a vector is reshaped to a matrix before."""

    def row(call: AtenCall) -> DocumentValue:
        a, b = call["self"], call[right]
        if len(a.shape) > 1 and len(b.shape) > 1:
            return call.emit("matmul", a, b)
        a = call.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
        b = call.reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
        shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        return call.emit("reshape", call.step("matmul", [a, b], shape))

    return row


def baddbmm(call: AtenCall) -> DocumentValue:
    """beta * self + alpha * batch1 @ batch2."""
    a, b, dtype, shape = call["batch1"], call["batch2"], call.result.dtype, call.result.shape
    product, bias = call.step("matmul", [a, b], shape, dtype=dtype), call["self"]
    if call["alpha"] != 1:
        product = call.step("multiply", [product], scalar=call["alpha"])
    if call["beta"] != 1:
        bias = call.step("multiply", [bias], dtype=dtype, scalar=call["beta"])
    return call.emit("add", bias, product)


SAVED = 8
"""The most results that an attention kernel saves for its gradient."""


def attention(call: AtenCall) -> DocumentValue:
    """Attention; heads that share a key get a dim of their own, along which the key is broadcast."""
    attrs = read_attention(call)
    query, key, value = call["query"], call["key"], call["value"]
    mask = call.arguments.get("attn_mask", call.arguments.get("attn_bias"))
    whole = pass_argument(query, key, value, mask)
    operands = [repeat_groups(call, each, query, key=key) for each in whole]
    if operands == whole:
        return call.emit("scaled_dot_product_attention", *operands, **attrs)
    shape = (*operands[0].shape[:-1], value.shape[-1])
    return call.emit("reshape", call.step("scaled_dot_product_attention", operands, shape, dtype=query.dtype, **attrs))


def read_attention(call: AtenCall) -> dict[str, Any]:
    """Return the attributes of attention or of its gradient, which has the seed of its dropout in its arguments."""
    p = call.arguments.get("dropout_p")
    scale = {} if call["scale"] is None else {"scale": call["scale"]}
    return {"causal": call["is_causal"], **scale, **({"dropout": p, "seed": read_seed(call)} if p else {})}


def fused_attention(call: AtenCall) -> Sequence[RowResult]:
    """Attention under the name of one device's kernel; the backward op computes its saved results again."""
    seed = read_seed(call) if call.arguments.get("dropout_p") else None
    first = replace(call, results=call.results[:1], arguments={**call.arguments, "seed": seed})
    return [attention(first), *[None if seed is None else DropoutSeed(seed)] * SAVED]


def repeat_groups(call: AtenCall, value: DocumentValue, query: DocumentValue, *, key: DocumentValue) -> DocumentValue:
    """Return [..., heads, sequence, head] (or a mask) with a dim for the queries that share a key, if any do."""
    if len(query.shape) < 3 or len(value.shape) < 3 or query.shape[-3] == key.shape[-3]:
        return value
    groups, members = key.shape[-3], query.shape[-3] // key.shape[-3]
    parts = {query.shape[-3]: (groups, members), groups: (groups, 1)}.get(value.shape[-3], (1, 1))
    return call.reshape(value, (*value.shape[:-3], *parts, *value.shape[-2:]))


def embedding(call: AtenCall) -> DocumentValue:
    return call.emit("embedding", call["weight"], call["indices"])


def softmax(call: AtenCall) -> DocumentValue:
    return call.emit("softmax", call.cast(call["self"], call.result.dtype), dim=call.dim("dim"))


def layer_norm(call: AtenCall) -> DocumentValue:
    call.demand("a bias without a weight", call["weight"] is not None or call["bias"] is None)
    operands = pass_argument(call["input"], call["weight"], call["bias"])
    return call.emit("layer_norm", *operands, normalized_dims=len(call["normalized_shape"]), eps=call["eps"])


def native_layer_norm(call: AtenCall) -> Sequence[RowResult]:
    saved = NormStatistics(call["eps"])
    return [layer_norm(replace(call, results=call.results[:1])), saved, saved]


def rms_norm(call: AtenCall) -> DocumentValue:
    """RMS norm; torch's default eps is the resolution of the dtype."""
    x, weight = call["input"], call["weight"]
    count = len(call["normalized_shape"])
    return call.emit("rms_norm", *pass_argument(x, weight), normalized_dims=count, eps=_resolution(call))


def native_rms_norm(call: AtenCall) -> Sequence[RowResult]:
    return [rms_norm(replace(call, results=call.results[:1])), NormStatistics(_resolution(call))]


def _resolution(call: AtenCall) -> float:
    return float(torch.finfo(DTYPES[call["input"].dtype]).eps if call["eps"] is None else call["eps"])


def reduce_all(op: str, *operands: str, **attrs: str) -> AtenRow:
    """Return a row that emits `op` on the arguments named in `operands`, with attributes from those in `attrs`."""

    def row(call: AtenCall) -> DocumentValue:
        named = {attr: call[argument] for attr, argument in attrs.items()}
        return call.emit(op, *pass_argument(*(call[each] for each in operands)), **named)

    return row


def transform(call: AtenCall) -> Sequence[DocumentValue]:
    """A Fourier transform of a real and maybe an imaginary part."""
    return call.emit_all("fft", *pass_argument(call["real"], call["imag"]), dims=call["dims"], inverse=call["inverse"])


def grouped(call: AtenCall) -> DocumentValue:
    """Multiply each group of rows by its own matrix or, for two matrices, multiply x^T y within each group of rows."""
    x, weight, ends = call["self"], call["mat2"], call["offs"]
    call.demand("a bias", call["bias"] is None)
    call.demand("batches without groups", ends is not None and len(x.shape) == 2)
    if len(weight.shape) == 3:
        return call.emit("grouped_mm", x, weight, ends)
    turned = call.step("transpose", [x], x.shape[::-1], permutation=[1, 0])
    return call.emit("grouped_mm_weight_backward", turned, weight, ends)


def reduction(op: str) -> AtenRow:
    """Return a row that reduces, in the result's dtype, over the dims in `dim` or over all if there are none."""

    def row(call: AtenCall) -> DocumentValue:
        value = call.cast(call["self"], call.result.dtype)
        rank, dims = len(value.shape), call.arguments.get("dim")
        listed = [dims] if isinstance(dims, int) else dims or range(rank)
        keepdim = call.arguments.get("keepdim", False)
        return call.emit(op, value, dims=sorted(dim % rank for dim in listed), keepdim=keepdim)

    return row


def variance(*, root: bool = False) -> AtenRow:
    """Return a row for the variance over `dim`, of a sample if `correction` is 1, or for its square root."""

    def row(call: AtenCall) -> DocumentValue:
        x, rank, listed = call.cast(call["self"], call.result.dtype), len(call["self"].shape), call["dim"]
        dims = sorted(dim % rank for dim in (listed or range(rank)))
        thin = tuple(1 if dim in dims else size for dim, size in enumerate(x.shape))
        mean = call.step("mean", [x], thin, dims=dims, keepdim=True)
        square = call.step("square", [call.step("subtract", [x, mean])])
        shape, count = call.result.shape, math.prod(x.shape[dim] for dim in dims)
        correction = 1 if call["correction"] is None else call["correction"]
        call.demand("no more elements than the correction", count > correction)
        total = call.step("sum", [square], shape, dims=dims, keepdim=call["keepdim"])
        value = call.step("divide", [total], scalar=count - correction)
        return call.step("sqrt", [value]) if root else value

    return row


def cumulative(op: str) -> AtenRow:
    """Return a row for the sums or the products up to each position of a dim."""
    return lambda call: call.emit(op, call.cast(call["self"], call.result.dtype), dim=call.dim("dim"))


def pass_argument(*operands: DocumentValue | None) -> list[DocumentValue]:
    return [operand for operand in operands if operand is not None]
