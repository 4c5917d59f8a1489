"""Rows for losses over classes, from ops that need no whole row of logits, so that the classes may be split.

loss = sum over counted labels of (log sum_v exp(logits) - logits[label]) / number of counted labels
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.torch.aten_call import AtenCall


def cross_entropy(call: AtenCall) -> Sequence[DocumentValue]:
    """The mean loss, and the log-sum-exp of every row."""
    logits, (_, lse_type) = call["logits"], call.results
    one, wide, dim = lse_type.shape, lse_type.dtype, len(lse_type.shape) - 1
    lse = log_sum_exp(call, logits, one, wide=wide)
    ids, counts = _labels(call, call["labels"], one, ignored=call["ignored"])
    picked = call.step("gather", [logits, ids], one, dim=dim, beyond="drop")
    lost = call.step("subtract", [lse, call.cast(picked, wide)])
    return [_mean_loss(replace(call, results=call.results[:1]), lost, counts), lse]


def cross_entropy_backward(call: AtenCall) -> DocumentValue:
    logits, lse, grad = call["logits"], call["lse"], call["grad"]
    ids, counts = _labels(call, call["labels"], lse.shape, ignored=call["ignored"])
    share = _grad_share(call, call.cast(grad, lse.dtype), counts)
    return call.emit("cross_entropy_backward", share, logits, lse, ids)


def log_sum_exp(call: AtenCall, x: DocumentValue, one: tuple[int, ...], *, wide: str) -> DocumentValue:
    """Emit log sum exp(x) over the last dim, which stays with size 1; `one` is the result's shape."""
    highest = call.step("max", [x], one, dims=[len(one) - 1], keepdim=True)
    highest = call.cast(highest, wide)
    total = call.step("sum_exp", [x, highest], one, dtype=wide)
    return call.step("add", [call.step("log", [total]), highest])


def log_softmax(call: AtenCall) -> DocumentValue:
    """x - log sum exp(x) along the last dim, which may then be split; along another dim the op `log_softmax`."""
    x, shape, dtype = call.cast(call["self"], call.result.dtype), call.result.shape, call.result.dtype
    if call.dim("dim") != len(shape) - 1:
        return call.emit("log_softmax", x, dim=call.dim("dim"))
    return call.emit("subtract", x, log_sum_exp(call, x, (*shape[:-1], 1), wide=dtype))


def nll_loss(call: AtenCall) -> Sequence[DocumentValue]:
    """The mean of the labels' negative log-probabilities, and the number of counted labels."""
    x = _probabilities(call)
    one = (x.shape[0], 1)
    ids, counts = _labels(call, call["target"], one, ignored=call["ignore_index"])
    picked = call.step("gather", [x, ids], one, dim=1, beyond="drop")
    lost = call.step("negate", [picked])
    return [_mean_loss(replace(call, results=call.results[:1]), lost, counts), _count_labels(call, counts, x.dtype)]


def nll_loss_backward(call: AtenCall) -> DocumentValue:
    x = _probabilities(call)
    one = (x.shape[0], 1)
    ids, counts = _labels(call, call["target"], one, ignored=call["ignore_index"])
    places = call.reshape(ids, one[:1])
    hits = call.step("one_hot", [places], x.shape, dtype=x.dtype, beyond="drop")
    share = _grad_share(call, call["grad_output"], counts)
    return call.emit("multiply", hits, call.step("negate", [share]))


def _probabilities(call: AtenCall) -> DocumentValue:
    x: DocumentValue = call["self"]
    call.demand("classes with weights", call["weight"] is None)
    call.demand("a loss that is no mean over rows", call["reduction"] == 1 and len(x.shape) == 2)
    return x


def _labels(
    call: AtenCall, labels: DocumentValue, one: tuple[int, ...], *, ignored: int
) -> tuple[DocumentValue, DocumentValue]:
    """Return the labels as positions of shape `one`, and whether each counts."""
    ids = call.reshape(labels, one)
    return ids, call.step("not_equal", [ids], dtype="bool", scalar=ignored)


def _count_labels(call: AtenCall, counts: DocumentValue, dtype: str) -> DocumentValue:
    every = list(range(len(counts.shape)))
    return call.step("sum", [call.cast(counts, dtype)], (), dims=every, keepdim=False)


def _mean_loss(call: AtenCall, lost: DocumentValue, counts: DocumentValue) -> DocumentValue:
    dtype = lost.dtype
    counted = call.step("where", [counts, lost, call.full(0, (), dtype)], lost.shape, dtype=dtype)
    total = call.step("sum", [counted], (), dims=list(range(len(lost.shape))), keepdim=False)
    mean = call.step("divide", [total, _count_labels(call, counts, dtype)])
    return call.cast(mean, call.result.dtype)


def _grad_share(call: AtenCall, grad: DocumentValue, counts: DocumentValue) -> DocumentValue:
    """Return the gradient of the loss per label: zero for labels that do not count."""
    dtype = grad.dtype
    each = call.step("divide", [grad, _count_labels(call, counts, dtype)], ())
    return call.step("where", [counts, each, call.full(0, (), dtype)], counts.shape, dtype=dtype)
