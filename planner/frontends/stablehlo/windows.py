"""Rows for windows that slide over dims: cumulative sums, pools, and the backward of max pools.

Pools of the op table work on the last dims, with equal padding on both sides. Dims are transposed to that order, and
other padding is emitted as a `pad`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.stablehlo.op_call import RowResult, StablehloOpCall
from planner.frontends.stablehlo.reductions import KINDS, neutral
from planner.frontends.stablehlo.views import pad_value, transpose_value
from planner.ir.sharding import Shape


@dataclass(frozen=True, slots=True)
class _ReduceWindows:
    """Window size, stride, dilation and padding on both sides, for every dim."""

    size: Shape
    stride: Shape
    dilation: Shape
    low: Shape
    high: Shape

    @property
    def order(self) -> list[int]:
        """The dims without windows, then those with."""
        wide = [dim for dim, (size, step) in enumerate(zip(self.size, self.stride, strict=True)) if size * step > 1]
        return [dim for dim in range(len(self.size)) if dim not in wide] + wide

    @property
    def wide(self) -> list[int]:
        return [dim for dim in self.order if self.size[dim] * self.stride[dim] > 1]

    @property
    def plain(self) -> bool:
        """Whether the padding is one that pools of the op table have."""
        narrow = all(2 * low <= size for low, size in zip(self.low, self.size, strict=True))
        return self.low == self.high and narrow

    def attrs(self, padding: Shape) -> dict[str, Any]:
        columns = {"size": self.size, "stride": self.stride, "padding": padding, "dilation": self.dilation}
        return {key: [column[dim] for dim in self.wide] for key, column in columns.items()}


def reduce_window(call: StablehloOpCall) -> RowResult:
    """A cumulative sum or product where the window spans all elements before one, else a pool."""
    call.demand("several operands", len(call.operands) == 2)
    rank, body = len(call.result.shape), call.reducer()
    size = call.ints("window_dimensions")
    stride, dilation = (call.optional_ints(f"window_{name}", (1,) * rank) for name in ("strides", "dilations"))
    call.demand("elements apart", set(call.optional_ints("base_dilations", (1,) * rank)) == {1})
    call.demand("an initial value", neutral(call.operands[1], KINDS.get(body, "")))
    low, high = call.edges("padding", rank)
    wide = [dim for dim in range(rank) if size[dim] > 1]
    if body in ("add", "multiply") and len(wide) == 1 and {*stride, *dilation} == {1}:
        (dim,) = wide
        if size[dim] == call.result.shape[dim] and {low[dim], high[dim]} == {0, size[dim] - 1}:
            return _emit_scan(call, "cumsum" if body == "add" else "cumprod", dim, from_behind=high[dim] > 0)
    return _emit_pool(call, body, _ReduceWindows(size, stride, dilation, low, high))


def _emit_scan(call: StablehloOpCall, op: str, dim: int, *, from_behind: bool) -> RowResult:
    x = call.whole(0)
    if not from_behind:
        return call.emit(op, x, dim=dim)
    back = call.step("flip", [x], x.shape, dims=[dim])
    return call.emit("flip", call.step(op, [back], x.shape, dim=dim), dims=[dim])


def _emit_pool(call: StablehloOpCall, body: str, windows: _ReduceWindows) -> RowResult:
    """Emit a pool; a sum is the mean times the window's size."""
    call.demand(f"windows of {body}", body in ("add", "maximum") and bool(windows.wide))
    x, padding = call.whole(0), windows.low
    if not windows.plain:
        x = pad_value(call, x, windows.low, high=windows.high, number=0 if body == "add" else -math.inf)
        padding = (0,) * len(windows.low)
    order = windows.order
    shape = [call.result.shape[dim] for dim in order]
    op = "average_pool" if body == "add" else "max_pool"
    pooled = call.step(op, [transpose_value(call, x, order)], shape, **windows.attrs(padding))
    if body == "add":
        pooled = call.step("multiply", [pooled], shape, scalar=math.prod(windows.size))
    return _reverse_order(call, pooled, order)


def select_and_scatter(call: StablehloOpCall) -> RowResult:
    """The gradient of a max pool."""
    rank = len(call.result.shape)
    call.demand("a body that does not add", call.reducer(1) == "add" and neutral(call.operands[2], "sum"))
    call.demand("a selection that is not of the largest", call.reducer(0) == "compare")
    size, stride = (
        call.optional_ints("window_dimensions", (1,) * rank),
        call.optional_ints("window_strides", (1,) * rank),
    )
    windows = _ReduceWindows(size, stride, (1,) * rank, *call.edges("padding", rank))
    call.demand("padding that is not alike", windows.plain)
    order = windows.order
    operands = [transpose_value(call, call.whole(k), order) for k in (1, 0)]
    shape = [call.result.shape[dim] for dim in order]
    gradient = call.step("max_pool_backward", operands, shape, **windows.attrs(windows.low))
    return _reverse_order(call, gradient, order)


def _reverse_order(call: StablehloOpCall, value: DocumentValue, order: list[int]) -> DocumentValue:
    return transpose_value(call, value, [order.index(dim) for dim in range(len(order))])
