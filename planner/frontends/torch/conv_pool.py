"""Rows for convolutions, pools and the normalisations between them, on [batch, channels, spatial dims ...]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.torch.aten_call import AtenCall, AtenRow, RowResult
from planner.ir.sharding import Shape


def convolution(call: AtenCall) -> DocumentValue:
    x, weight, bias = call["input"], call["weight"], call["bias"]
    attrs = read_geometry(call, x, weight)
    return call.emit("convolution", *([x, weight] if bias is None else [x, weight, bias]), **attrs)


def convolution_transpose(call: AtenCall) -> DocumentValue:
    """A transposed convolution; the result's shape already includes `output_padding`."""
    x, weight, bias = call["input"], call["weight"], call["bias"]
    attrs = read_geometry(call, x, weight)
    added = zip(_repeat_per_dim(call["output_padding"], len(attrs["stride"])), attrs["stride"], strict=True)
    call.demand("output_padding of a stride or more", all(more < stride for more, stride in added))
    if bias is None:
        return call.emit("convolution_transpose", x, weight, **attrs)
    product = call.step("convolution_transpose", [x, weight], call.result.shape, dtype=call.result.dtype, **attrs)
    return call.emit("add", product, _over_channels(call, bias, product))


def convolution_of_either_kind(call: AtenCall) -> DocumentValue:
    return convolution_transpose(call) if call["transposed"] else convolution(call)


def read_geometry(call: AtenCall, x: DocumentValue, weight: DocumentValue) -> dict[str, Any]:
    rank = len(weight.shape) - 2
    call.demand("an image without a batch dim", len(x.shape) == rank + 2)
    stride, dilation = (_repeat_per_dim(call[key], rank) for key in ("stride", "dilation"))
    padding = _padding(call, weight.shape[2:], dilation)
    return {"stride": stride, "padding": padding, "dilation": dilation, "groups": call["groups"]}


def _padding(call: AtenCall, taps: tuple[int, ...], dilation: list[int]) -> list[int]:
    """Return the padding of every spatial dim; `same` pads in total what the kernel reaches beyond one element."""
    if not isinstance(call["padding"], str):
        return _repeat_per_dim(call["padding"], len(taps))
    reach = [each * (size - 1) if call["padding"] == "same" else 0 for each, size in zip(dilation, taps, strict=True)]
    call.demand("padding of one element more behind than before", all(each % 2 == 0 for each in reach))
    return [each // 2 for each in reach]


def _repeat_per_dim(given: int | list[int], rank: int) -> list[int]:
    """Return a number for every spatial dim; torch accepts one number for all."""
    listed = [given] if isinstance(given, int) else list(given)
    return listed * rank if len(listed) == 1 else listed


def max_pool(rank: int) -> AtenRow:
    return lambda call: _max_pool(call, rank)


def max_pool_with_indices(rank: int) -> AtenRow:
    """Return a row for a max pool that also returns positions, which only its gradient reads: it finds them again."""
    return lambda call: [_max_pool(replace(call, results=call.results[:1]), rank), None]


def _max_pool(call: AtenCall, rank: int) -> DocumentValue:
    return call.emit("max_pool", call["self"], **read_pool(call, rank, pooled=call.result.shape))


def average_pool(rank: int) -> AtenRow:
    return lambda call: call.emit(
        "average_pool", call["self"], **read_pool(call, rank, pooled=call.result.shape, averages=True)
    )


def read_pool(call: AtenCall, rank: int, *, pooled: Shape, averages: bool = False) -> dict[str, Any]:
    """Return the attributes of a pool of `self` to the shape `pooled`."""
    size, padding = (_repeat_per_dim(call[key], rank) for key in ("kernel_size", "padding"))
    if averages:
        call.demand("a mean that leaves padding out", call["count_include_pad"] or not any(padding))
        call.demand("divisor_override", call.arguments.get("divisor_override") is None)
    dilation = _repeat_per_dim(call.arguments.get("dilation", 1), rank)
    stride = _repeat_per_dim(call["stride"], rank) if call["stride"] else size
    steps = zip(call["self"].shape[-rank:], size, stride, padding, dilation, strict=True)
    fitting = [(n + 2 * before - apart * (taps - 1) - 1) // step + 1 for n, taps, step, before, apart in steps]
    call.demand("ceil_mode with a window over the end", tuple(fitting) == pooled[-rank:])
    return {"size": size, "stride": stride, "padding": padding, "dilation": dilation}


def adaptive_average_pool(rank: int) -> AtenRow:
    """Return a row for pools to a size that divides; a pool to one element is a mean."""

    def row(call: AtenCall) -> DocumentValue:
        x = call["self"]
        size = average_pool_size(call, x.shape[-rank:], call.result.shape[-rank:])
        if tuple(size) == x.shape[-rank:]:
            return call.emit("mean", x, dims=list(range(len(x.shape)))[-rank:], keepdim=True)
        return call.emit("average_pool", x, size=size, stride=size)

    return row


def average_pool_size(call: AtenCall, whole: Shape, pooled: Shape) -> list[int]:
    """Return the size of the windows, which touch and do not overlap."""
    pairs = list(zip(whole, pooled, strict=True))
    call.demand("output_size that does not divide", all(size % made == 0 for size, made in pairs))
    return [size // made for size, made in pairs]


def group_norm(call: AtenCall) -> DocumentValue:
    """Normalise by mean and variance over the channels of a group and the spatial dims."""
    return _normalize_groups(call, call["num_groups"])[0]


def native_group_norm(call: AtenCall) -> Sequence[RowResult]:
    """Return the normalised input, and mean and reciprocal deviation of each group, which the gradient reads."""
    normal, mean, root = _normalize_groups(call, call["group"])
    shape = (normal.shape[0], call["group"])
    return [normal, call.reshape(mean, shape), call.reshape(root, shape)]


def _normalize_groups(call: AtenCall, groups: int) -> tuple[DocumentValue, DocumentValue, DocumentValue]:
    x = call["input"]
    parts = call.reshape(x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    mean = _mean_of_groups(call, parts)
    centred = _binary(call, "subtract", parts, right=mean)
    square = call.step("square", [centred])
    variance = _mean_of_groups(call, square)
    root = call.step("rsqrt", [call.step("add", [variance], scalar=call["eps"])])
    normal = call.reshape(_binary(call, "multiply", centred, right=root), x.shape)
    if call["weight"] is not None:
        normal = _binary(call, "multiply", normal, right=_over_channels(call, call["weight"], x))
    if call["bias"] is not None:
        normal = _binary(call, "add", normal, right=_over_channels(call, call["bias"], x))
    return normal, mean, root


def _mean_of_groups(call: AtenCall, parts: DocumentValue) -> DocumentValue:
    rank = len(parts.shape)
    thin = (*parts.shape[:2], *[1] * (rank - 2))
    return call.step("mean", [parts], thin, dims=list(range(2, rank)), keepdim=True)


def _binary(call: AtenCall, op: str, left: DocumentValue, *, right: DocumentValue) -> DocumentValue:
    """Emit an op whose result has the type of its left operand."""
    return call.step(op, [left, right])


def _over_channels(call: AtenCall, vector: DocumentValue, x: DocumentValue) -> DocumentValue:
    """Reshape a vector of one number per channel so that it broadcasts over the spatial dims of x."""
    return call.reshape(vector, (*vector.shape, *[1] * (len(x.shape) - 2)))
