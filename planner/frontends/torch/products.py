"""Rows for matrix products, attention, normalisations and reductions."""

from __future__ import annotations

import torch

from planner.frontends.torch.call import DTYPES, Call, Row, Value


def linear(call: Call) -> Value:
    return call.emit("linear", *_given(call["input"], call["weight"], call["bias"]))


def addmm(call: Call) -> Value:
    call.demand("alpha or beta other than 1", call["alpha"] == call["beta"] == 1)
    return call.emit("addmm", call["self"], call["mat1"], call["mat2"])


def matmul(right: str = "other") -> Row:
    """A product of matrices or batches of them; a vector becomes a matrix for the time being."""

    def row(call: Call) -> Value:
        a, b = call["self"], call[right]
        if len(a.shape) > 1 and len(b.shape) > 1:
            return call.emit("matmul", a, b)
        a = call.reshaped(a, (1, *a.shape)) if len(a.shape) == 1 else a
        b = call.reshaped(b, (*b.shape, 1)) if len(b.shape) == 1 else b
        shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        return call.emit("reshape", call.step("matmul", [a, b], shape, a.dtype))

    return row


def baddbmm(call: Call) -> Value:
    """beta * self + alpha * batch1 @ batch2."""
    a, b, dtype, shape = call["batch1"], call["batch2"], call.result.dtype, call.result.shape
    product, bias = call.step("matmul", [a, b], shape, dtype), call["self"]
    if call["alpha"] != 1:
        product = call.step("multiply", [product], shape, dtype, scalar=call["alpha"])
    if call["beta"] != 1:
        bias = call.step("multiply", [bias], bias.shape, dtype, scalar=call["beta"])
    return call.emit("add", bias, product)


def attention(call: Call) -> Value:
    """Grouped queries: the heads that share a key get a dim of their own, along which keys are broadcast."""
    call.demand("attention with dropout", call["dropout_p"] == 0)
    attrs = {"causal": call["is_causal"]}
    if call["scale"] is not None:
        attrs["scale"] = call["scale"]
    query, key, value, mask = call["query"], call["key"], call["value"], call["attn_mask"]
    if query.shape[:-2] == key.shape[:-2] or not call["enable_gqa"]:
        return call.emit("scaled_dot_product_attention", *_given(query, key, value, mask), **attrs)
    heads, groups = query.shape[-3], key.shape[-3]
    apart = [
        call.reshaped(query, _grouped(query, groups, heads // groups)),
        call.reshaped(key, _grouped(key, groups, 1)),
        call.reshaped(value, _grouped(value, groups, 1)),
    ]
    if mask is not None and len(mask.shape) > 2:
        parts = (groups, heads // groups) if mask.shape[-3] == heads else (1, 1)
        mask = call.reshaped(mask, _grouped(mask, *parts))
    operands, shape = _given(*apart, mask), (*apart[0].shape[:-1], value.shape[-1])
    made = call.step("scaled_dot_product_attention", operands, shape, query.dtype, **attrs)
    return call.emit("reshape", made)


def _grouped(value: Value, groups: int, members: int) -> tuple[int, ...]:
    return (*value.shape[:-3], groups, members, *value.shape[-2:])


def embedding(call: Call) -> Value:
    return call.emit("embedding", call["weight"], call["indices"])


def softmax(call: Call) -> Value:
    return call.emit("softmax", call.cast(call["self"], call.result.dtype), dim=call.dim("dim"))


def layer_norm(call: Call) -> Value:
    call.demand("a bias without a weight", call["weight"] is not None or call["bias"] is None)
    operands = _given(call["input"], call["weight"], call["bias"])
    return call.emit("layer_norm", *operands, normalized_dims=len(call["normalized_shape"]), eps=call["eps"])


def rms_norm(call: Call) -> Value:
    """x / sqrt(mean(x^2) + eps) * weight; torch's default eps is the dtype's resolution."""
    x, weight, eps = call["input"], call["weight"], call["eps"]
    rank, count = len(x.shape), len(call["normalized_shape"])
    thin = (*x.shape[: rank - count], *[1] * count)
    eps = torch.finfo(DTYPES[x.dtype]).eps if eps is None else eps
    square = call.step("square", [x], x.shape, x.dtype)
    mean = call.step("mean", [square], thin, x.dtype, dims=list(range(rank - count, rank)), keepdim=True)
    root = call.step("rsqrt", [call.step("add", [mean], thin, x.dtype, scalar=eps)], thin, x.dtype)
    if weight is None:
        return call.emit("multiply", x, root)
    return call.emit("multiply", call.step("multiply", [x, root], x.shape, x.dtype), weight)


def reduction(op: str) -> Row:
    """Over the dims in `dim`, all when there are none; in the result's dtype."""

    def row(call: Call) -> Value:
        value = call.cast(call["self"], call.result.dtype)
        rank, dims = len(value.shape), call.arguments.get("dim")
        listed = [dims] if isinstance(dims, int) else dims or range(rank)
        keepdim = call.arguments.get("keepdim", False)
        return call.emit(op, value, dims=sorted(dim % rank for dim in listed), keepdim=keepdim)

    return row


def cumsum(call: Call) -> Value:
    return call.emit("cumsum", call.cast(call["self"], call.result.dtype), dim=call.dim("dim"))


def _given(*operands: Value | None) -> list[Value]:
    return [operand for operand in operands if operand is not None]
