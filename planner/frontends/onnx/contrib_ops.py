"""Rows for operators of `com.microsoft`, which ONNX Runtime's optimizers and exporters write.

The standard's type inference does not know them, so each has a function for the shapes of its results. Attention is
covered without past keys; its results for present keys and values are then the keys and values themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.onnx.matmul_attention import add_attention, split_heads
from planner.frontends.onnx.node_call import OnnxNodeCall, OnnxRow
from planner.frontends.onnx.views import take_slice
from planner.ir.sharding import Shape

DOMAIN = "com.microsoft"
Shapes = Callable[[Sequence[Shape | None], Mapping[str, Any]], Sequence[Shape]]
"""Takes the operands' shapes (None for an operand left out) and the attributes; returns the results' shapes.

The results have the first operand's dtype.
"""


@dataclass(frozen=True, slots=True)
class ContribOp:
    """An operator outside the standard: its row, and the shapes of its results."""

    row: OnnxRow
    shapes: Shapes


def _like_first(shapes: Sequence[Shape | None], _: Mapping[str, Any]) -> Sequence[Shape]:
    return [_require_shape(shapes, 0)]


def _require_shape(shapes: Sequence[Shape | None], place: int) -> Shape:
    """Return the shape of an operand. Raises ValueError if it is left out or its shape is unknown."""
    shape = shapes[place] if place < len(shapes) else None
    if shape is None:
        raise ValueError(f"operand {place} without a shape")
    return shape


def gelu(approximate: str) -> OnnxRow:
    """Return a row for gelu of an input plus a bias, if there is one."""

    def row(call: OnnxNodeCall) -> DocumentValue:
        x = call.value()
        x = x if call.given(1) is None else call.step("add", [x, call.value(1)])
        return call.emit("gelu", x, approximate=approximate)

    return row


def quick_gelu(call: OnnxNodeCall) -> DocumentValue:
    """x / (1 + exp(-alpha x))."""
    x = call.value()
    scaled = call.step("multiply", [x], scalar=call.attribute("alpha", 1.702))
    return call.emit("multiply", x, call.step("sigmoid", [scaled]))


def fused_matmul(call: OnnxNodeCall) -> DocumentValue:
    """alpha A B, where A and B may be transposed in their last two dims."""
    call.demand("a batch that is exchanged", not (call.attribute("transBatchA", 0) or call.attribute("transBatchB", 0)))
    a, b = (_transpose_operand(call, place, key) for place, key in enumerate(("transA", "transB")))
    alpha = call.attribute("alpha", 1.0)
    if alpha == 1:
        return call.emit("matmul", a, b)
    return call.emit("multiply", call.step("matmul", [a, b], call.result.shape), scalar=alpha)


def _transpose_operand(call: OnnxNodeCall, place: int, key: str) -> DocumentValue:
    value = call.value(place)
    call.demand("a product of vectors", len(value.shape) > 1)
    if not call.attribute(key, 0):
        return value
    order = [*range(len(value.shape) - 2), len(value.shape) - 1, len(value.shape) - 2]
    return call.step("transpose", [value], [value.shape[dim] for dim in order], permutation=order)


def _product_shape(shapes: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sequence[Shape]:
    a, b = _require_shape(shapes, 0), _require_shape(shapes, 1)
    rows, inner = a[-2:][::-1] if attrs.get("transA", 0) else a[-2:]
    other, columns = b[-2:][::-1] if attrs.get("transB", 0) else b[-2:]
    if inner != other:
        raise ValueError(f"a product of {list(a)} and {list(b)}")
    return [(*np.broadcast_shapes(a[:-2], b[:-2]), rows, columns)]


def norm(op: str, weights: tuple[int, ...], added: tuple[int, ...], *, eps: float) -> OnnxRow:
    """Return a row for layer_norm or rms_norm of the input plus the operands in the places `added`.

    `weights` are the places of scale and bias. The fourth result is the sum before the norm.
    """

    def row(call: OnnxNodeCall) -> Sequence[DocumentValue]:
        call.demand("mean or variance", not any(call.read[1:3]))
        total = call.value()
        for place in _list_given(call, added):
            total = call.step("add", [total, call.value(place)])
        scales = [call.value(place) for place in _list_given(call, weights)]
        normal = call.emit(op, total, *scales, normalized_dims=1, eps=call.attribute("epsilon", eps))
        return [normal, total, total, total]

    return row


def _list_given(call: OnnxNodeCall, places: Sequence[int]) -> list[int]:
    return [place for place in places if call.given(place) is not None]


def _norm_shapes(shapes: Sequence[Shape | None], _: Mapping[str, Any]) -> Sequence[Shape]:
    whole = _require_shape(shapes, 0)
    return [whole, (*whole[:-1], 1), (*whole[:-1], 1), whole]


def multi_head_attention(call: OnnxNodeCall) -> Sequence[DocumentValue]:
    """Attention of queries, keys and values [batch, length, width]; each adds its part of one joint bias."""
    call.demand("packed queries, keys and values", all(len(call.shape(place)) == 3 for place in range(3)))
    call.demand("a mask of keys, or past ones", all(call.given(place) is None for place in (4, 6, 7)))
    call.demand_one_result()
    values, start = [], 0
    for place in range(3):
        value = call.value(place)
        stop = start + value.shape[-1]
        if call.given(3) is not None:
            part = take_slice(call, call.value(3), 0, places=range(start, stop))
            value = call.step("add", [value, part])
        values.append(value)
        start = stop
    heads, causal = call.attribute("num_heads"), bool(call.attribute("unidirectional", 0))
    return [
        add_attention(call, values, (heads, heads), causal=causal, mask=call.given(5), scale=call.attribute("scale"))
    ]


def group_query_attention(call: OnnxNodeCall) -> Sequence[DocumentValue]:
    """Causal attention of queries that share keys, with rotary positions if requested."""
    heads, shared = call.attribute("num_heads"), call.attribute("kv_num_heads")
    call.demand("packed queries, keys and values", call.given(1) is not None and call.given(2) is not None)
    call.demand("past keys", call.given(3) is None and call.given(4) is None)
    call.demand(
        "softcap or a window", not call.attribute("softcap", 0.0) and call.attribute("local_window_size", -1) < 0
    )
    call.demand("positions or a mask as operands", all(call.given(place) is None for place in (9, 10, 11)))
    values = [call.value(place) for place in range(3)]
    split = [split_heads(call, each, n) for each, n in zip(values, (heads, shared, shared), strict=True)]
    if call.attribute("do_rotary", 0):
        call.demand("neighbours turned together", not call.attribute("rotary_interleaved", 0))
        length = values[0].shape[1]
        angles = [take_slice(call, call.value(place), 0, places=range(length)) for place in (7, 8)]
        split[:2] = [call.step("rope", [each, *angles]) for each in split[:2]]
    return [
        add_attention(call, split, (heads, shared), causal=True, mask=None, scale=call.attribute("scale")),
        *split[1:],
    ]


def _attention_shapes(shapes: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sequence[Shape]:
    batch, length, width = _require_shape(shapes, 0)
    kept, heads = _require_shape(shapes, 2), attrs.get("num_heads", 1)
    shared = attrs.get("kv_num_heads", heads)
    rows = (batch, shared, kept[1], kept[2] // shared)
    return [(batch, length, width if shared != heads else kept[2]), rows, rows]


def rotary(call: OnnxNodeCall) -> DocumentValue:
    """Rotate the halves (x1, x2) of every head to (x1 cos - x2 sin, x2 cos + x1 sin), by the token's position."""
    call.demand("neighbours turned together", not call.attribute("interleaved", 0))
    call.demand("a part of a head", not call.attribute("rotary_embedding_dim", 0))
    x, places = call.value(), call.value(1)
    call.demand("positions counted from a number", len(places.shape) == 2)
    half = call.shape(2)[-1]
    heads = x if len(x.shape) == 4 else split_heads(call, x, x.shape[-1] // (2 * half))
    angles = [call.step("embedding", [call.value(place), places], (*places.shape, half)) for place in (2, 3)]
    cos, sin = (call.reshape(each, (places.shape[0], 1, places.shape[1], half)) for each in angles)
    first, second = (take_slice(call, heads, 3, places=range(start, start + half)) for start in (0, half))
    ends = [
        call.step(op, [call.step("multiply", [one, cos]), call.step("multiply", [other, sin])])
        for op, one, other in (("subtract", first, second), ("add", second, first))
    ]
    if len(x.shape) == 4:
        return call.emit("concat", *ends, dim=3)
    rotated = call.step("concat", ends, heads.shape, dim=3)
    back = call.step("transpose", [rotated], [rotated.shape[k] for k in (0, 2, 1, 3)], permutation=[0, 2, 1, 3])
    return call.emit("reshape", back)


CONTRIB_OPS: Mapping[str, ContribOp] = {
    "BiasGelu": ContribOp(gelu("none"), _like_first),
    "FastGelu": ContribOp(gelu("tanh"), _like_first),
    "Gelu": ContribOp(gelu("none"), _like_first),
    "QuickGelu": ContribOp(quick_gelu, _like_first),
    "FusedMatMul": ContribOp(fused_matmul, _product_shape),
    "SimplifiedLayerNormalization": ContribOp(norm("rms_norm", (1,), (), eps=1e-5), _norm_shapes),
    "SkipLayerNormalization": ContribOp(norm("layer_norm", (2, 3), (1, 4), eps=1e-12), _norm_shapes),
    "SkipSimplifiedLayerNormalization": ContribOp(norm("rms_norm", (2,), (1, 3), eps=1e-12), _norm_shapes),
    "GroupQueryAttention": ContribOp(group_query_attention, _attention_shapes),
    "MultiHeadAttention": ContribOp(multi_head_attention, _attention_shapes),
    "RotaryEmbedding": ContribOp(rotary, _like_first),
}


def find_contrib_op(domain: str, operator: str) -> ContribOp | None:
    """Return the contributed operator, or None. Exporters write one of them under the standard's domain too."""
    return CONTRIB_OPS.get(operator) if domain == DOMAIN or operator == "SimplifiedLayerNormalization" else None
