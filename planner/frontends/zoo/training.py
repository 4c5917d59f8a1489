"""A training step: loss, gradients by reverse accumulation, and the optimizer's update, appended to a forward pass.

    loss = mean over tokens of log sum_v exp(logits) - logits[label]

in parts that need no row of logits whole, so that the vocabulary may be split: the maximum, the sum of exp beyond it
and the look-up are sums (or maxima) over its parts, and the backward op works on each part alone.

The outputs are the loss, then the parameters and optimizer states as updated, in the order of the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from planner.frontends.document_value import DocumentValue
from planner.frontends.zoo.backward_ops import BACKWARD_OPS, BackwardCall
from planner.frontends.zoo.graph_writer import ZooOpCall, ZooWriter
from planner.ir.dtypes import is_float
from planner.ir.graph import TensorType

Update = Callable[[ZooWriter, DocumentValue, DocumentValue], dict[str, DocumentValue]]
"""What a parameter and its gradient become: by id of the input (the parameter, a state of its), its new value."""

RATE = 1e-3
MOMENTUM = 0.9


def cross_entropy(w: ZooWriter, logits: DocumentValue, labels: DocumentValue) -> tuple[DocumentValue, DocumentValue]:
    """The loss and its gradient for the logits [batch, sequence, vocabulary]; labels [batch, sequence]."""
    one = (*logits.shape[:-1], 1)
    places = w.node("reshape", [labels], one)
    highest = w.cast(w.node("max", [logits], one, dims=[len(one) - 1], keepdim=True), w.wide)
    total = w.node("log", [w.node("sum_exp", [logits, highest], one, w.wide)])
    lse = w.node("add", [total, highest])
    picked = w.cast(w.node("gather", [logits, places], one, dim=len(one) - 1), w.wide)
    loss = w.node("mean", [w.node("subtract", [lse, picked])], [], dims=list(range(len(one))))
    with w.within("", "backward"):
        (share,) = w.call("full", [], TensorType(one, w.wide), value=1 / math.prod(one))
        operands = [share, logits, lse, places]
        return loss, w.node("cross_entropy_backward", operands, logits.shape, logits.dtype)


def differentiate(
    w: ZooWriter, forward: list[ZooOpCall], seed: tuple[DocumentValue, DocumentValue]
) -> dict[str, DocumentValue]:
    """The gradient of every parameter, by id; `seed` is a value of the forward pass and its gradient."""
    differentiable = _differentiable(w, forward)
    found = {seed[0].id: seed[1]}
    for call in reversed(forward):
        grads = tuple(found.pop(result.id) for result in call.results if result.id in found)
        wanted = frozenset(i for i, operand in enumerate(call.operands) if operand.id in differentiable)
        if not grads or not wanted or call.op not in BACKWARD_OPS:
            continue
        with w.within(call.scope, "backward"):
            for i, gradient in BACKWARD_OPS[call.op](BackwardCall(w, call, grads, wanted)):
                before = found.get(call.operands[i].id)
                found[call.operands[i].id] = gradient if before is None else w.node("add", [before, gradient])
    return found


def _differentiable(w: ZooWriter, forward: list[ZooOpCall]) -> set[str]:
    """Parameters, and the values that depend on one by ops that pass a gradient on."""
    known = {entry.value.id for entry in w.inputs if entry.kind == "parameter"}
    for call in forward:
        if call.op in BACKWARD_OPS and any(operand.id in known for operand in call.operands):
            known.update(result.id for result in call.results if is_float(result.dtype))
    return known


def sgd(w: ZooWriter, weight: DocumentValue, grad: DocumentValue) -> dict[str, DocumentValue]:
    """weight - rate grad."""
    return {weight.id: w.node("subtract", [weight, w.node("multiply", [grad], scalar=RATE)])}


def sgd_momentum(w: ZooWriter, weight: DocumentValue, grad: DocumentValue) -> dict[str, DocumentValue]:
    """weight - rate v', with v' = MOMENTUM v + grad in the wide dtype."""
    velocity = w.input(f"{weight.id}.momentum_buffer", weight.shape, "optimizer_state", w.wide)
    kept = w.node("multiply", [velocity], scalar=MOMENTUM)
    made = w.node("add", [kept, w.cast(grad, w.wide)])
    moved = w.node("subtract", [w.cast(weight, w.wide), w.node("multiply", [made], scalar=RATE)])
    return {weight.id: w.cast(moved, weight.dtype), velocity.id: made}


def adam(w: ZooWriter, weight: DocumentValue, grad: DocumentValue) -> dict[str, DocumentValue]:
    """Moments, and the weight itself where it is narrower, are kept in the wide dtype."""
    names = ("exp_avg", "exp_avg_sq") if weight.dtype == w.wide else ("exp_avg", "exp_avg_sq", "master")
    states = [w.input(f"{weight.id}.{name}", weight.shape, "optimizer_state", w.wide) for name in names]
    step = next(entry.value for entry in w.inputs if entry.value.id == STEP)
    master = states[2] if len(states) == 3 else weight
    operands = [master, grad, *states[:2], step]
    made = w.call("adam", operands, *[master.type] * 3, lr=RATE)
    return {weight.id: w.cast(made[0], weight.dtype)} | dict(
        zip((state.id for state in states), (made[1], made[2], made[0]), strict=False)
    )


STEP = "step"
OPTIMIZERS: Mapping[str, Update] = MappingProxyType({"sgd": sgd, "sgd-momentum": sgd_momentum, "adam": adam})


def append_training_step(
    w: ZooWriter, logits: DocumentValue, labels: DocumentValue, *, optimizer: str
) -> list[DocumentValue]:
    """Appends loss, backward pass and update to the forward pass written so far; the outputs."""
    forward = list(w.calls)
    loss, seed = cross_entropy(w, logits, labels)
    grads = differentiate(w, forward, (logits, seed))
    append_update(w, grads, optimizer)
    return [loss, *next_values(w)]


def append_update(w: ZooWriter, grads: Mapping[str, DocumentValue], optimizer: str) -> None:
    """Appends the update of every parameter that has a gradient, by id; `w.next` says what takes its place."""
    parameters = [entry.value for entry in w.inputs if entry.kind == "parameter" and entry.value.id in grads]
    with w.within("", "update"):
        if optimizer == "adam":
            step = w.input(STEP, [], "optimizer_state", w.wide)
            w.next[step.id] = w.node("add", [step], scalar=1)
        for weight in parameters:
            w.next |= OPTIMIZERS[optimizer](w, weight, grads[weight.id])


def next_values(w: ZooWriter) -> list[DocumentValue]:
    """What takes the place of inputs in the next run, in their order."""
    return [w.next[entry.value.id] for entry in w.inputs if entry.value.id in w.next]
