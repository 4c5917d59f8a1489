"""Rows for losses over classes, in parts that need no row of logits whole, so that the classes may be split.

loss = sum over labels that count of (log sum_v exp(logits) - logits[label]) / their number
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.frontends.torch.call import Call, Value, finite


def cross_entropy(call: Call) -> Sequence[Value]:
    """And the log-sum-exp of every row."""
    logits, (_, lse_type) = call["logits"], call.results
    one, wide, dim = lse_type.shape, lse_type.dtype, len(lse_type.shape) - 1
    lse = log_sum_exp(call, logits, one, wide)
    ids, counts = _labels(call, call["labels"], one, call["ignored"])
    picked = call.step("gather", [logits, ids], one, logits.dtype, dim=dim, beyond="drop")
    lost = call.step("subtract", [lse, call.cast(picked, wide)], one, wide)
    return [_mean(replace(call, results=call.results[:1]), lost, counts), lse]


def cross_entropy_backward(call: Call) -> Value:
    logits, lse, grad = call["logits"], call["lse"], call["grad"]
    ids, counts = _labels(call, call["labels"], lse.shape, call["ignored"])
    share = _share(call, call.cast(grad, lse.dtype), counts)
    return call.emit("cross_entropy_backward", share, logits, lse, ids)


def log_sum_exp(call: Call, x: Value, one: tuple[int, ...], wide: str) -> Value:
    """Over the last dim, which is kept as one."""
    highest = call.step("max", [x], one, x.dtype, dims=[len(one) - 1], keepdim=True)
    highest = call.cast(highest, wide)
    total = call.step("sum_exp", [x, highest], one, wide)
    return call.step("add", [call.step("log", [total], one, wide), highest], one, wide)


def log_softmax(call: Call) -> Value:
    """Along the last dim in parts; along another by the op for it."""
    x, shape, dtype = call.cast(call["self"], call.result.dtype), call.result.shape, call.result.dtype
    if call.dim("dim") != len(shape) - 1:
        return call.emit("log_softmax", x, dim=call.dim("dim"))
    return call.emit("subtract", x, log_sum_exp(call, x, (*shape[:-1], 1), dtype))


def nll_loss(call: Call) -> Sequence[Value]:
    """The mean of minus the labels' log-probabilities, and how many count."""
    x = _probabilities(call)
    one = (x.shape[0], 1)
    ids, counts = _labels(call, call["target"], one, call["ignore_index"])
    picked = call.step("gather", [x, ids], one, x.dtype, dim=1, beyond="drop")
    lost = call.step("negate", [picked], one, x.dtype)
    return [_mean(replace(call, results=call.results[:1]), lost, counts), _number(call, counts, x.dtype)]


def nll_loss_backward(call: Call) -> Value:
    x = _probabilities(call)
    one = (x.shape[0], 1)
    ids, counts = _labels(call, call["target"], one, call["ignore_index"])
    places = call.reshaped(ids, one[:1])
    hits = call.step("one_hot", [places], x.shape, x.dtype, beyond="drop")
    share = _share(call, call["grad_output"], counts)
    return call.emit("multiply", hits, call.step("negate", [share], one, x.dtype))


def _probabilities(call: Call) -> Value:
    x: Value = call["self"]
    call.demand("classes with weights", call["weight"] is None)
    call.demand("a loss that is no mean over rows", call["reduction"] == 1 and len(x.shape) == 2)
    return x


def _labels(call: Call, labels: Value, one: tuple[int, ...], ignored: int) -> tuple[Value, Value]:
    """Positions, and whether they count."""
    ids = call.reshaped(labels, one)
    return ids, call.step("not_equal", [ids], one, "bool", scalar=ignored)


def _number(call: Call, counts: Value, dtype: str) -> Value:
    every = list(range(len(counts.shape)))
    return call.step("sum", [call.cast(counts, dtype)], (), dtype, dims=every, keepdim=False)


def _mean(call: Call, lost: Value, counts: Value) -> Value:
    dtype = lost.dtype
    kept = call.step("where", [counts, lost, call.scalar(0, dtype)], lost.shape, dtype)
    total = call.step("sum", [kept], (), dtype, dims=list(range(len(lost.shape))), keepdim=False)
    made = call.step("divide", [total, _number(call, counts, dtype)], (), dtype)
    return call.cast(made, call.result.dtype)


def _share(call: Call, grad: Value, counts: Value) -> Value:
    """What the loss's gradient is for every label; none for one that does not count."""
    dtype = grad.dtype
    each = call.step("divide", [grad, _number(call, counts, dtype)], (), dtype)
    return call.step("where", [counts, each, call.scalar(finite(0, dtype), dtype)], counts.shape, dtype)
