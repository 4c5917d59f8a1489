"""Rows for products: dot_general as an einsum, and the three convolutions of a network, forward and backward.

JAX writes the backward of y = conv(x, w; stride s, padding p) as convolutions too:

    dw = conv(x, dy; rhs_dilate s), batch and channels of both exchanged
    dx = conv(dy, w reversed; lhs_dilate s, padding d (r - 1) - p), channels of w exchanged

They are recognised by the dilation of dy and by the reversed kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from planner.frontends.stablehlo.call import Call
from planner.frontends.stablehlo.symbols import Symbol, Tensor
from planner.frontends.stablehlo.views import dilated, padded_value, transposed
from planner.frontends.value import Value
from planner.model.dtypes import DTYPE_BYTES, is_float
from planner.model.sharding import Shape


def dot_general(call: Call) -> Symbol:
    """One loop a dim: batch b, contracted k, and what is left of either side, m and n."""
    numbers = stablehlo.DotDimensionNumbers(call.op.attributes["dot_dimension_numbers"])
    left = _loops(call.operands[0].type.shape, numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions, "m")
    right = _loops(
        call.operands[1].type.shape, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions, "n"
    )
    batch = [left[dim] for dim in numbers.lhs_batching_dimensions]
    free = [name for name in (*left, *right) if name[0] in "mn"]
    terms = [" ".join(term) or "[]" for term in (left, right, batch + free)]
    made = _product(call, "einsum", call.wholes(), call.result.shape, equation=f"{terms[0]}, {terms[1]} -> {terms[2]}")
    return Tensor.of(made)


def _loops(shape: Shape, batch: Sequence[int], contracted: Sequence[int], free: str) -> list[str]:
    known = {dim: f"b{i}" for i, dim in enumerate(batch)} | {dim: f"k{i}" for i, dim in enumerate(contracted)}
    return [known.get(dim, f"{free}{dim}") for dim in range(len(shape))]


def _product(call: Call, op: str, factors: Sequence[Value], shape: Shape, **attrs: Any) -> Value:
    """Of floats in the widest of the factors' dtypes, as it is stored and sent; of integers in the result's."""
    widest = max((value.dtype for value in factors), key=DTYPE_BYTES.__getitem__)
    dtype = widest if is_float(widest) else call.result.dtype
    cast = [value if value.dtype == dtype else _cast(call, value, dtype) for value in factors]
    made = call.writer.made(op, cast, shape, dtype, **attrs)
    return made if dtype == call.result.dtype else _cast(call, made, call.result.dtype)


def _cast(call: Call, value: Value, dtype: str) -> Value:
    return call.writer.made("cast", [value], value.shape, dtype)


@dataclass(frozen=True, slots=True)
class _Convolution:
    """Operands with their dims in our order, and the window of every spatial dim."""

    x: Value
    kernel: Value
    made: Shape
    stride: Shape
    x_dilation: Shape
    dilation: Shape
    low: Shape
    high: Shape
    groups: int


def convolution(call: Call) -> Symbol:
    numbers = stablehlo.ConvDimensionNumbers(call.op.attributes["dimension_numbers"])
    call.demand("groups of the batch", call.integer("batch_group_count") == 1)
    back = (numbers.output_batch_dimension, numbers.output_feature_dimension, *numbers.output_spatial_dimensions)
    given = _given(call, numbers, tuple(call.result.shape[dim] for dim in back))
    flipped = _unflipped(call, list(numbers.kernel_spatial_dimensions))
    if flipped is not None and given.groups == 1 and set(given.stride) == {1}:
        made = _backward_of_x(call, given, transposed(call, flipped, _kernel_order(numbers)))
    elif given.groups == 1 and {*given.stride, *given.x_dilation} == {1} and _small(given):
        made = _backward_of_kernel(call, given)
    else:
        made = _forward(call, given)
    return Tensor.of(transposed(call, made, [back.index(dim) for dim in range(len(back))]))


def _kernel_order(numbers: stablehlo.ConvDimensionNumbers) -> tuple[int, ...]:
    """Filters, channels, taps."""
    ends = (numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension)
    return (*ends, *numbers.kernel_spatial_dimensions)


def _given(call: Call, numbers: stablehlo.ConvDimensionNumbers, made: Shape) -> _Convolution:
    x = (numbers.input_batch_dimension, numbers.input_feature_dimension, *numbers.input_spatial_dimensions)
    rank = len(x) - 2
    call.demand("a kernel reversed by attribute", not any(call.optional_ints("window_reversal", (0,) * rank)))
    low, high = call.edges("padding", rank)
    return _Convolution(
        transposed(call, call.whole(0), x),
        transposed(call, call.whole(1), _kernel_order(numbers)),
        made,
        call.optional_ints("window_strides", (1,) * rank),
        call.optional_ints("lhs_dilation", (1,) * rank),
        call.optional_ints("rhs_dilation", (1,) * rank),
        low,
        high,
        call.integer("feature_group_count"),
    )


def _unflipped(call: Call, spatial: list[int]) -> Value | None:
    """What the kernel was before it was reversed in all its spatial dims."""
    symbol = call.operands[1]
    node = call.writer.maker(symbol.core) if isinstance(symbol, Tensor) else None
    if node is None or node["op"] != "flip" or sorted(node["attrs"]["dims"]) != sorted(spatial):
        return None
    return call.writer.typed(node["inputs"][0])


def _small(given: _Convolution) -> bool:
    """Whether the kernel has more places than the result: then it is a gradient, and the result a kernel's."""
    return math.prod(given.kernel.shape[2:]) > math.prod(given.made[2:])


def _forward(call: Call, given: _Convolution) -> Value:
    x, padding = given.x, given.low
    for i, step in enumerate(given.x_dilation):
        x = dilated(call, x, i + 2, step)
    if given.low != given.high or min(given.low) < 0:
        x = padded_value(call, x, (0, 0, *given.low), (0, 0, *given.high), 0)
        padding = (0,) * len(given.low)
    attrs = {"stride": given.stride, "padding": padding, "dilation": given.dilation}
    return _emitted(call, "convolution", x, given.kernel, given.made, attrs | {"groups": given.groups})


def _backward_of_kernel(call: Call, given: _Convolution) -> Value:
    """The dilation of dy is the stride of the forward pass; dw leaves with filters before channels."""
    x, padding = given.x, given.low
    if given.low != given.high or min(given.low) < 0:
        x = padded_value(call, x, (0, 0, *given.low), (0, 0, *given.high), 0)
        padding = (0,) * len(given.low)
    attrs = {"stride": given.dilation, "padding": padding, "dilation": given.stride}
    shape = _exchanged(given.made)
    operands = (_swapped(call, x), _swapped(call, given.kernel))
    return _swapped(call, _emitted(call, "convolution_weight_backward", *operands, shape, attrs))


def _backward_of_x(call: Call, given: _Convolution, kernel: Value) -> Value:
    """Of the whole of x and its padding, from which x is cut."""
    spans = [step * (taps - 1) for step, taps in zip(given.dilation, kernel.shape[2:], strict=True)]
    dilated_dy = [step * (size - 1) + 1 for step, size in zip(given.x_dilation, given.x.shape[2:], strict=True)]
    full = [size + span for size, span in zip(dilated_dy, spans, strict=True)]
    before = [span - low for span, low in zip(spans, given.low, strict=True)]
    behind = [size - low - made for size, low, made in zip(full, before, given.made[2:], strict=True)]
    even = before == behind and min(before) >= 0
    shape = given.made if even else (*given.made[:2], *full)
    attrs = {"stride": given.x_dilation, "padding": before if even else [0] * len(full), "dilation": given.dilation}
    made = _emitted(call, "convolution_transpose", given.x, _swapped(call, kernel), shape, attrs)
    first, last = ((0, 0, *(-size for size in side)) for side in (before, behind))
    return made if even else padded_value(call, made, first, last, 0)


def _exchanged(shape: Shape) -> Shape:
    return (shape[1], shape[0], *shape[2:])


def _swapped(call: Call, value: Value) -> Value:
    return transposed(call, value, (1, 0, *range(2, len(value.shape))))


def _emitted(call: Call, op: str, x: Value, other: Value, shape: Shape, attrs: dict[str, Any]) -> Value:
    attrs = {key: list(value) if isinstance(value, Sequence) else value for key, value in attrs.items()}
    return _product(call, op, [x, other], shape, **attrs)
