"""Rows for batch normalisation, in training and in inference, and its gradients.

In training mean and variance are those of the whole batch, as of a single device or of SyncBatchNorm; the running
statistics that follow from them are the next values of their buffers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.torch.aten_call import AtenCall, RowResult
from planner.frontends.torch.matmul_attention import pass_argument


def batch_norm(call: AtenCall) -> DocumentValue:
    """Batch normalisation as a call with one result, of a graph that keeps no running statistics or only reads them."""
    result, *_ = native_batch_norm(call)
    assert isinstance(result, DocumentValue)
    return result


def native_batch_norm(call: AtenCall) -> Sequence[RowResult]:
    """The normalised x; in training also the mean, 1 / deviation, and the next running statistics where it has any."""
    if not call.arguments.get("training"):
        running = call["running_mean"], call["running_var"]
        return [_normalize(call, *running), None, None, *running]
    x, kept = call["input"], [call.arguments.get(name) for name in ("running_mean", "running_var")]
    dtype = "f64" if x.dtype == "f64" else "f32"
    mean = call.step("mean", [x], x.shape[1:2], dtype=dtype, dims=_others(x), keepdim=False)
    variance = call.step("batch_norm_variance", [x, mean], mean.shape, dtype=dtype)
    count = _count(x)
    following = zip(kept, (mean, variance), (1, count / max(count - 1, 1)), strict=True)
    return [
        _normalize(call, mean, variance),
        mean,
        _root(call, variance),
        *(_blend(call, old, new, scale=scale) for old, new, scale in following if old is not None),
    ]


def _normalize(call: AtenCall, mean: DocumentValue, variance: DocumentValue) -> DocumentValue:
    weight, bias = call["weight"], call["bias"]
    call.demand("a bias without a weight", weight is not None or bias is None)
    operands = pass_argument(call["input"], mean, variance, weight, bias)
    return replace(call, results=call.results[:1]).emit("batch_norm", *operands, eps=call["eps"])


def _root(call: AtenCall, variance: DocumentValue) -> DocumentValue:
    return call.step("rsqrt", [call.step("add", [variance], scalar=call["eps"])])


def _blend(call: AtenCall, old: DocumentValue, new: DocumentValue, *, scale: float) -> DocumentValue:
    """Return (1 - momentum) old + momentum scale new: the running variance is that of a sample."""
    kept = call.step("multiply", [old], scalar=1 - call["momentum"])
    added = call.step("multiply", [call.cast(new, old.dtype)], scalar=call["momentum"] * scale)
    return call.step("add", [kept, added])


def backward(call: AtenCall) -> Sequence[RowResult]:
    """The gradients of x, weight and bias; without training those of a scale that does not depend on x."""
    grad, x, weight, wanted = call["grad_out"], call["input"], call["weight"], call["output_mask"]
    mean, root = call["save_mean"], call["save_invstd"]
    if not call["train"]:
        mean, root = call["running_mean"], _root(call, call["running_var"])
    kinds = [mean.type, mean.type]
    total, aligned = call.step_all("batch_norm_backward_sums", [grad, x, mean, root], kinds)
    vectors = pass_argument(mean, root, total, aligned, weight)
    in_x = None
    if wanted[0] and call["train"]:
        in_x = call.step("batch_norm_backward", [grad, x, *vectors], x.shape, dtype=x.dtype)
    elif wanted[0]:
        in_x = _scale(
            call, grad, root if weight is None else call.step("multiply", [root, call.cast(weight, root.dtype)])
        )
    dtype = root.dtype if weight is None else weight.dtype
    return [
        in_x,
        *(call.cast(each, dtype) if on else None for each, on in zip((aligned, total), wanted[1:], strict=True)),
    ]


def _scale(call: AtenCall, x: DocumentValue, vector: DocumentValue) -> DocumentValue:
    factors = call.reshape(call.cast(vector, x.dtype), (*vector.shape, *[1] * (len(x.shape) - 2)))
    return call.step("multiply", [x, factors])


def _others(x: DocumentValue) -> list[int]:
    """Return all dims but the channels."""
    return [dim for dim in range(len(x.shape)) if dim != 1]


def _count(x: DocumentValue) -> int:
    return math.prod(x.shape[dim] for dim in _others(x))
