"""Rows for the gradients of convolutions and pools, on [batch, channels, spatial dims ...]."""

from __future__ import annotations

from collections.abc import Sequence

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.torch.aten_call import AtenCall, AtenRow, RowResult
from planner.frontends.torch.conv_pool import average_pool_size, read_geometry, read_pool


def convolution(call: AtenCall) -> Sequence[RowResult]:
    """The gradients of image, kernel and bias that `output_mask` requests.

    The gradient of a transposed convolution is a convolution of the gradient; that of its kernel has both exchanged.
    """
    grad, x, weight, wanted = call["grad_output"], call["input"], call["weight"], call["output_mask"]
    attrs = read_geometry(call, x, weight)
    others = [i for i in range(len(grad.shape)) if i != 1]
    in_x, pair = ("convolution", [grad, x]) if call["transposed"] else ("convolution_transpose", [x, grad])
    return [
        call.step(in_x, [grad, weight], x.shape, dtype=x.dtype, **attrs) if wanted[0] else None,
        call.step("convolution_weight_backward", pair, weight.shape, **attrs) if wanted[1] else None,
        call.step("sum", [grad], grad.shape[1:2], dtype=x.dtype, dims=others, keepdim=False) if wanted[2] else None,
    ]


def max_pool(rank: int) -> AtenRow:
    """Return a row for the gradient of a max pool, which finds the highest elements again."""

    def row(call: AtenCall) -> DocumentValue:
        attrs = read_pool(call, rank, pooled=call["grad_output"].shape)
        return call.emit("max_pool_backward", call["grad_output"], call["self"], **attrs)

    return row


def average_pool(rank: int) -> AtenRow:
    def row(call: AtenCall) -> DocumentValue:
        attrs = read_pool(call, rank, pooled=call["grad_output"].shape, averages=True)
        return call.emit("average_pool_backward", call["grad_output"], **attrs)

    return row


def adaptive_average_pool(rank: int) -> AtenRow:
    def row(call: AtenCall) -> DocumentValue:
        grad, shape = call["grad_output"], call["self"].shape
        size = average_pool_size(call, shape[-rank:], grad.shape[-rank:])
        return call.emit("average_pool_backward", grad, size=size, stride=size)

    return row
