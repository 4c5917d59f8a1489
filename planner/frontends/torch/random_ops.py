"""Rows for dropout and for calls that draw random numbers.

Each call has a seed of its own, by which its numbers depend on the position in the whole tensor alone. The bits are
not torch's, the distributions are.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.torch.aten_call import AtenCall, AtenRow, RowResult
from planner.ir.dtypes import is_float
from planner.ir.graph import TensorType


def read_seed(call: AtenCall) -> int:
    """Return the seed that a training step gave its call, so that the gradient draws the same; else a fresh one."""
    seed = call.arguments.get("seed")
    return call.builder.fresh_seed() if seed is None else int(seed)


def dropout(call: AtenCall) -> DocumentValue:
    value: DocumentValue = call["input"]
    if not call.arguments.get("train", True) or not call["p"]:
        return value
    return call.emit("dropout", value, p=call["p"], seed=read_seed(call))


def native_dropout(call: AtenCall) -> Sequence[RowResult]:
    """The result and the mask of a dropout; the mask is a dropout of ones with the same seed."""
    value, ones = call["input"], call.full(1, call["input"].shape, call["input"].dtype)
    p, seed = call["p"] if call["train"] is not False else 0, read_seed(call)
    kept, mask = (call.step("dropout", [each], p=p, seed=seed) for each in (value, ones))
    return [kept, call.step("not_equal", [mask], dtype="bool", scalar=0)]


def native_dropout_backward(call: AtenCall) -> DocumentValue:
    grad = call["grad_output"]
    kept = call.step("multiply", [grad, call.cast(call["mask"], grad.dtype)])
    return call.emit("multiply", kept, scalar=call["scale"])


def feature_dropout(call: AtenCall) -> DocumentValue:
    """Drop whole channels: the first two dims have draws of their own."""
    value: DocumentValue = call["input"]
    if not call["train"] or not call["p"]:
        return value
    ones = call.full(1, (*value.shape[:2], *[1] * (len(value.shape) - 2)), value.dtype)
    return call.emit("multiply", value, call.step("dropout", [ones], p=call["p"], seed=read_seed(call)))


def bernoulli(call: AtenCall) -> DocumentValue:
    """1 with the probability `p`, or with that which an element of `self` is."""
    p, result = call.arguments.get("p", call["self"]), call.result
    drawn = _draw(call, "uniform")
    below = {"scalar": p} if isinstance(p, float | int) else {}
    operands = [drawn] if below else [drawn, call.cast(p, drawn.dtype)]
    hits = call.step("less", operands, result.shape, dtype="bool", **below)
    return call.cast(hits, result.dtype)


def uniform(low: str = "", high: str = "") -> AtenRow:
    """Return a row for floats between the arguments `low` and `high`, or between 0 and 1."""

    def row(call: AtenCall) -> DocumentValue:
        start, stop = (call[low], call[high]) if low else (0, 1)
        return _scale(call, "uniform", width=stop - start, centre=start)

    return row


def normal(mean: str = "", deviation: str = "") -> AtenRow:
    """Return a row for normally distributed floats of the arguments `mean` and `deviation`, or of 0 and 1."""

    def row(call: AtenCall) -> DocumentValue:
        centre, width = (call[mean], call[deviation]) if mean else (0, 1)
        return _scale(call, "normal", width=width, centre=centre)

    return row


def integers(call: AtenCall) -> DocumentValue:
    """Whole numbers from `low`, or 0, to below `high`."""
    low = call.arguments.get("low", 0)
    drawn = call.step("multiply", [_draw(call, "uniform")], scalar=call["high"] - low)
    whole = call.step("add", [call.step("floor", [drawn])], scalar=low)
    return call.cast(whole, call.result.dtype)


def _scale(call: AtenCall, distribution: str, *, width: float, centre: float) -> DocumentValue:
    if (width, centre) == (1, 0):
        return call.emit("random", distribution=distribution, seed=call.builder.fresh_seed())
    drawn = call.step("multiply", [_draw(call, distribution)], scalar=width)
    return call.emit("add", drawn, scalar=centre)


def _draw(call: AtenCall, distribution: str) -> DocumentValue:
    """Emit draws in the result's shape, in its dtype if that is a float, else in f32."""
    dtype = call.result.dtype if is_float(call.result.dtype) else "f32"
    kind = TensorType(call.result.shape, dtype)
    (drawn,) = call.step_all("random", [], [kind], distribution=distribution, seed=call.builder.fresh_seed())
    return drawn
