"""Rows for convolutions, pools and the normalisations between them, on [batch, channels, spatial dims ...].

Padding that differs between both sides, or that the last window needs, is emitted as a `pad`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.onnx.node_call import OnnxNodeCall
from planner.frontends.onnx.views import pad_value


@dataclass(frozen=True, slots=True)
class OnnxWindows:
    """Window sizes, strides, dilations and the padding on both sides, for every spatial dim."""

    size: list[int]
    stride: list[int]
    dilation: list[int]
    low: list[int]
    high: list[int]

    @classmethod
    def of(cls, call: OnnxNodeCall, taps: Sequence[int]) -> OnnxWindows:
        """Return the windows that map the first operand's spatial dims to the result's; `taps` are their sizes."""
        rank = len(taps)
        stride, dilation = (list(call.attribute(key, [1] * rank)) for key in ("strides", "dilations"))
        spans = [d * (n - 1) + 1 for d, n in zip(dilation, taps, strict=True)]
        made, whole = call.result.shape[-rank:], call.shape()[-rank:]
        read = [s * (n - 1) + span for s, n, span in zip(stride, made, spans, strict=True)]
        low = _low_padding(call, [max(0, r - n) for r, n in zip(read, whole, strict=True)], rank)
        high = [r - n - before for r, n, before in zip(read, whole, low, strict=True)]
        return cls(list(taps), stride, dilation, low, high)

    @property
    def attrs(self) -> dict[str, list[int]]:
        return {
            "stride": self.stride,
            "padding": self.low if self._alike else [0] * len(self.low),
            "dilation": self.dilation,
        }

    @property
    def _alike(self) -> bool:
        """Whether the padding below, used on both sides, admits the same number of windows."""
        steps = zip(self.low, self.high, self.stride, strict=True)
        return all(behind <= before < behind + stride for before, behind, stride in steps)

    def pad_value(self, call: OnnxNodeCall, value: DocumentValue, number: float) -> DocumentValue:
        """Return the operand with the padding that `attrs` cannot express."""
        if self._alike:
            return value
        rank = [0] * (len(value.shape) - len(self.low))
        return pad_value(call, value, [*rank, *self.low], high=[*rank, *self.high], number=number)


def _low_padding(call: OnnxNodeCall, total: Sequence[int], rank: int) -> list[int]:
    kind = call.attribute("auto_pad", "NOTSET")
    if kind == "NOTSET":
        return list(call.attribute("pads", [0] * 2 * rank))[:rank]
    if kind == "VALID":
        return [0] * rank
    return [(n + (kind == "SAME_LOWER")) // 2 for n in total]


def convolution(call: OnnxNodeCall) -> DocumentValue:
    weight = call.value(1)
    windows = OnnxWindows.of(call, weight.shape[2:])
    x = windows.pad_value(call, call.value(), 0.0)
    bias = [] if call.given(2) is None else [call.value(2)]
    return call.emit("convolution", x, weight, *bias, **windows.attrs, groups=int(call.attribute("group", 1)))


def convolution_transpose(call: OnnxNodeCall) -> DocumentValue:
    """A transposed convolution; the result's shape already includes `output_padding`."""
    weight = call.value(1)
    rank = len(weight.shape) - 2
    stride, dilation = (list(call.attribute(key, [1] * rank)) for key in ("strides", "dilations"))
    pads = list(call.attribute("pads", [0] * 2 * rank))
    plain = call.attribute("auto_pad", "NOTSET") == "NOTSET" and call.attribute("output_shape") is None
    call.demand("padding that is computed from the result", plain)
    call.demand("padding that differs before and behind", pads[:rank] == pads[rank:])
    attrs: dict[str, Any] = {"stride": stride, "padding": pads[:rank], "dilation": dilation}
    attrs["groups"] = int(call.attribute("group", 1))
    if call.given(2) is None:
        return call.emit("convolution_transpose", call.value(), weight, **attrs)
    product = call.step("convolution_transpose", [call.value(), weight], call.result.shape, **attrs)
    return call.emit("add", product, broadcast_over_channels(call, call.value(2), product))


def max_pool(call: OnnxNodeCall) -> DocumentValue:
    call.demand_one_result()
    windows = OnnxWindows.of(call, call.attribute("kernel_shape"))
    x = windows.pad_value(call, call.value(), -math.inf)
    return call.emit("max_pool", x, size=windows.size, **windows.attrs)


def average_pool(call: OnnxNodeCall) -> DocumentValue:
    """A mean pool; where padding does not count, the mean is divided by the share of the window inside the image."""
    windows = OnnxWindows.of(call, call.attribute("kernel_shape"))
    value = call.value()
    counts = call.attribute("count_include_pad", 0)
    call.demand("a mean that counts a part of the padding", not (counts and call.attribute("ceil_mode", 0)))

    def pooled(x: DocumentValue, write: Callable[..., DocumentValue]) -> DocumentValue:
        x = windows.pad_value(call, x, 0.0)
        return write("average_pool", x, size=windows.size, **windows.attrs)

    if counts or max(*windows.low, *windows.high) <= 0:
        return pooled(value, call.emit)
    shape = call.result.shape
    sums = pooled(value, lambda op, x, **attrs: call.step(op, [x], shape, **attrs))
    rank = len(windows.size)
    ones = call.full(1, (1,) * (len(shape) - rank) + value.shape[-rank:], value.dtype)
    thin = (*ones.shape[:-rank], *shape[-rank:])
    shares = pooled(ones, lambda op, x, **attrs: call.step(op, [x], thin, **attrs))
    return call.emit("divide", sums, shares)


def global_pool(op: str) -> Callable[[OnnxNodeCall], DocumentValue]:
    return lambda call: call.emit(op, call.value(), dims=list(range(2, len(call.shape()))), keepdim=True)


def batch_norm(call: OnnxNodeCall) -> DocumentValue:
    """Normalise by the running statistics."""
    call.demand("batch normalisation in training", not call.attribute("training_mode", 0))
    call.demand_one_result()
    x, scale, bias, mean, variance = (call.value(k) for k in range(5))
    return call.emit("batch_norm", x, mean, variance, scale, bias, eps=call.attribute("epsilon", 1e-5))


def instance_norm(call: OnnxNodeCall) -> DocumentValue:
    """Normalise every channel of every image by its own mean and deviation."""
    x = call.value()
    flat = call.reshape(x, (*x.shape[:2], math.prod(x.shape[2:])))
    normal = call.step("layer_norm", [flat], normalized_dims=1, eps=call.attribute("epsilon", 1e-5))
    scaled = call.step(
        "multiply", [call.reshape(normal, x.shape), broadcast_over_channels(call, call.value(1), x)], x.shape
    )
    return call.emit("add", scaled, broadcast_over_channels(call, call.value(2), x))


def broadcast_over_channels(call: OnnxNodeCall, vector: DocumentValue, x: DocumentValue) -> DocumentValue:
    """Reshape a vector of one number per channel so that it broadcasts over the spatial dims of x."""
    return call.reshape(vector, (*vector.shape, *[1] * (len(x.shape) - 2)))
