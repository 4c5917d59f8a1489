"""Rows for products: dot_general as an einsum, and the convolutions of a network, forward and backward.

JAX writes the backward of y = conv(x, w; stride s, padding p) as convolutions too:

    dw = conv(x, dy; rhs_dilate s), batch and channels of both exchanged
    dx = conv(dy, w reversed; lhs_dilate s, padding d (r - 1) - p), channels of w exchanged

where r is the kernel's size and d its dilation. They are recognised by the kernel: larger than the result for dw,
reversed for dx.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.stablehlo.op_call import RowResult, StablehloOpCall
from planner.frontends.stablehlo.symbolic_values import TensorSymbol
from planner.frontends.stablehlo.views import dilate_value, pad_value, transpose_value
from planner.ir.dtypes import DTYPE_BYTES, is_float
from planner.ir.sharding import Shape


def dot_general(call: StablehloOpCall) -> RowResult:
    """An einsum with a loop per dim: b for batch, k for contracted, m and n for the free dims of left and right."""
    numbers = stablehlo.DotDimensionNumbers(call.op.attributes["dot_dimension_numbers"])
    left = _loops(
        call.operands[0].type.shape, numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions, free="m"
    )
    right = _loops(
        call.operands[1].type.shape, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions, free="n"
    )
    batch = [left[dim] for dim in numbers.lhs_batching_dimensions]
    free = [name for name in (*left, *right) if name[0] in "mn"]
    terms = [" ".join(term) or "[]" for term in (left, right, batch + free)]
    return _product(
        call, "einsum", call.wholes(), shape=call.result.shape, equation=f"{terms[0]}, {terms[1]} -> {terms[2]}"
    )


def _loops(shape: Shape, batch: Sequence[int], contracted: Sequence[int], *, free: str) -> list[str]:
    known = {dim: f"b{i}" for i, dim in enumerate(batch)} | {dim: f"k{i}" for i, dim in enumerate(contracted)}
    return [known.get(dim, f"{free}{dim}") for dim in range(len(shape))]


def _product(
    call: StablehloOpCall, op: str, factors: Sequence[DocumentValue], *, shape: Shape, **attrs: Any
) -> DocumentValue:
    """Emit a product: floats in the widest dtype of the factors, integers in the result's; then cast to the result's.

    Casting the result instead of the factors keeps factors narrow, and they are what is stored and sent.
    """
    widest = max((value.dtype for value in factors), key=DTYPE_BYTES.__getitem__)
    dtype = widest if is_float(widest) else call.result.dtype
    cast = [value if value.dtype == dtype else _cast(call, value, dtype) for value in factors]
    product = call.builder.emit(op, cast, shape, dtype=dtype, **attrs)
    return product if dtype == call.result.dtype else _cast(call, product, call.result.dtype)


def _cast(call: StablehloOpCall, value: DocumentValue, dtype: str) -> DocumentValue:
    return call.builder.emit("cast", [value], value.shape, dtype=dtype)


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A convolution with operands [batch, channels, spatial ...] and [filters, channels, spatial ...].

    `result_shape` is in that order too; the other tuples have a number for every spatial dim.
    """

    x: DocumentValue
    kernel: DocumentValue
    result_shape: Shape
    stride: Shape
    x_dilation: Shape
    dilation: Shape
    low: Shape
    high: Shape
    groups: int


def convolution(call: StablehloOpCall) -> RowResult:
    numbers = stablehlo.ConvDimensionNumbers(call.op.attributes["dimension_numbers"])
    back = (numbers.output_batch_dimension, numbers.output_feature_dimension, *numbers.output_spatial_dimensions)
    given = _read_convolution(call, numbers, tuple(call.result.shape[dim] for dim in back))
    flipped = _unflip_kernel(call, list(numbers.kernel_spatial_dimensions))
    if flipped is not None and given.groups == 1 and set(given.stride) == {1}:
        result = _emit_input_backward(call, given, transpose_value(call, flipped, _kernel_order(numbers)))
    elif given.groups == 1 and {*given.stride, *given.x_dilation} == {1} and _is_kernel_gradient(given):
        result = _emit_kernel_backward(call, given)
    else:
        result = _emit_forward(call, given)
    return transpose_value(call, result, [back.index(dim) for dim in range(len(back))])


def _kernel_order(numbers: stablehlo.ConvDimensionNumbers) -> tuple[int, ...]:
    """Return the kernel's dims in the order filters, channels, spatial."""
    ends = (numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension)
    return (*ends, *numbers.kernel_spatial_dimensions)


def _read_convolution(
    call: StablehloOpCall, numbers: stablehlo.ConvDimensionNumbers, result_shape: Shape
) -> _Convolution:
    x = (numbers.input_batch_dimension, numbers.input_feature_dimension, *numbers.input_spatial_dimensions)
    rank = len(x) - 2
    call.demand("a kernel reversed by attribute", not any(call.optional_ints("window_reversal", (0,) * rank)))
    low, high = call.edges("padding", rank)
    batch_groups = call.integer("batch_group_count")
    return _Convolution(
        _group_channels(call, transpose_value(call, call.whole(0), x), batch_groups),
        transpose_value(call, call.whole(1), _kernel_order(numbers)),
        result_shape,
        call.optional_ints("window_strides", (1,) * rank),
        call.optional_ints("lhs_dilation", (1,) * rank),
        call.optional_ints("rhs_dilation", (1,) * rank),
        low,
        high,
        call.integer("feature_group_count") * batch_groups,
    )


def _group_channels(call: StablehloOpCall, x: DocumentValue, groups: int) -> DocumentValue:
    """Return x with groups of its batch as groups of its channels, which give the same convolution."""
    if groups == 1:
        return x
    batch, channels, *spatial = x.shape
    apart = call.builder.reshape(x, (groups, batch // groups, channels, *spatial))
    beside = transpose_value(call, apart, (1, 0, *range(2, len(apart.shape))))
    return call.builder.reshape(beside, (batch // groups, groups * channels, *spatial))


def _unflip_kernel(call: StablehloOpCall, spatial: list[int]) -> DocumentValue | None:
    """Return the kernel before it was reversed in all its spatial dims; None if it was not."""
    symbol = call.operands[1]
    node = call.builder.find_node(symbol.core) if isinstance(symbol, TensorSymbol) else None
    if node is None or node["op"] != "flip" or sorted(node["attrs"]["dims"]) != sorted(spatial):
        return None
    return call.builder.find_value(node["inputs"][0])


def _is_kernel_gradient(given: _Convolution) -> bool:
    """Return whether the kernel is larger than the result: then the "kernel" is dy and the result a gradient."""
    return math.prod(given.kernel.shape[2:]) > math.prod(given.result_shape[2:])


def _emit_forward(call: StablehloOpCall, given: _Convolution) -> DocumentValue:
    x, padding = given.x, given.low
    for i, step in enumerate(given.x_dilation):
        x = dilate_value(call, x, i + 2, step=step)
    if given.low != given.high or min(given.low) < 0:
        x = pad_value(call, x, (0, 0, *given.low), high=(0, 0, *given.high), number=0)
        padding = (0,) * len(given.low)
    attrs = {"stride": given.stride, "padding": padding, "dilation": given.dilation}
    return _emit_convolution(
        call, "convolution", x, other=given.kernel, shape=given.result_shape, attrs=attrs | {"groups": given.groups}
    )


def _emit_kernel_backward(call: StablehloOpCall, given: _Convolution) -> DocumentValue:
    """The dilation of dy is the stride of the forward pass; dw leaves with filters before channels."""
    x, padding = given.x, given.low
    if given.low != given.high or min(given.low) < 0:
        x = pad_value(call, x, (0, 0, *given.low), high=(0, 0, *given.high), number=0)
        padding = (0,) * len(given.low)
    attrs = {"stride": given.dilation, "padding": padding, "dilation": given.stride}
    shape = _swap_first_two(given.result_shape)
    operands = (_swap_batch_and_channels(call, x), _swap_batch_and_channels(call, given.kernel))
    return _swap_batch_and_channels(
        call, _emit_convolution(call, "convolution_weight_backward", *operands, shape, attrs)
    )


def _emit_input_backward(call: StablehloOpCall, given: _Convolution, kernel: DocumentValue) -> DocumentValue:
    """Emit the gradient of x; where padding differs between both sides, compute it with its padding and cut x out."""
    spans = [step * (taps - 1) for step, taps in zip(given.dilation, kernel.shape[2:], strict=True)]
    dilated_dy = [step * (size - 1) + 1 for step, size in zip(given.x_dilation, given.x.shape[2:], strict=True)]
    full = [size + span for size, span in zip(dilated_dy, spans, strict=True)]
    before = [span - low for span, low in zip(spans, given.low, strict=True)]
    behind = [size - low - wanted for size, low, wanted in zip(full, before, given.result_shape[2:], strict=True)]
    even = before == behind and min(before) >= 0
    shape = given.result_shape if even else (*given.result_shape[:2], *full)
    attrs = {"stride": given.x_dilation, "padding": before if even else [0] * len(full), "dilation": given.dilation}
    gradient = _emit_convolution(
        call, "convolution_transpose", given.x, other=_swap_batch_and_channels(call, kernel), shape=shape, attrs=attrs
    )
    first, last = ((0, 0, *(-size for size in side)) for side in (before, behind))
    return gradient if even else pad_value(call, gradient, first, high=last, number=0)


def _swap_first_two(shape: Shape) -> Shape:
    return (shape[1], shape[0], *shape[2:])


def _swap_batch_and_channels(call: StablehloOpCall, value: DocumentValue) -> DocumentValue:
    return transpose_value(call, value, (1, 0, *range(2, len(value.shape))))


def _emit_convolution(
    call: StablehloOpCall, op: str, x: DocumentValue, other: DocumentValue, shape: Shape, attrs: dict[str, Any]
) -> DocumentValue:
    attrs = {key: list(value) if isinstance(value, Sequence) else value for key, value in attrs.items()}
    return _product(call, op, [x, other], shape=shape, **attrs)
