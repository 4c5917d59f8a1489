"""A training step appended to a forward pass: loss, gradients by reverse accumulation, optimizer update.

    loss = mean over tokens of log sum_v exp(logits) - logits[label]

The loss is built from ops that need no whole row of logits, so that the vocabulary may be split: the maximum, the sum
of exponentials and the look-up are sums or maxima over parts of a row, and the backward op works on each part alone.

The outputs are the loss, then the updated parameters and optimizer states in the order of the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from planner.frontends.graph_builder import DocumentValue, Entry
from planner.frontends.zoo.backward_ops import BACKWARD_OPS, BackwardCall
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.ir.dtypes import is_float
from planner.ir.graph import value_id

Update = Callable[[ModelBuilder, DocumentValue, DocumentValue], dict[str, DocumentValue]]
"""Takes a parameter and its gradient; returns the new values of the parameter and of its states by their ids."""

RATE = 1e-3
MOMENTUM = 0.9


def cross_entropy(
    builder: ModelBuilder, logits: DocumentValue, labels: DocumentValue
) -> tuple[DocumentValue, DocumentValue]:
    """Return the loss and its gradient with respect to logits [batch, sequence, vocabulary]; labels are
    [batch, sequence]."""
    one = (*logits.shape[:-1], 1)
    places = builder.emit("reshape", [labels], one)
    highest = builder.cast(builder.emit("max", [logits], one, dims=[len(one) - 1], keepdim=True), builder.wide)
    total = builder.emit("log", [builder.emit("sum_exp", [logits, highest], one, dtype=builder.wide)])
    lse = builder.emit("add", [total, highest])
    picked = builder.cast(builder.emit("gather", [logits, places], one, dim=len(one) - 1), builder.wide)
    loss = builder.emit("mean", [builder.emit("subtract", [lse, picked])], [], dims=list(range(len(one))))
    with builder.within("", "backward"):
        share = builder.full(1 / math.prod(one), one, builder.wide)
        operands = [share, logits, lse, places]
        return loss, builder.emit("cross_entropy_backward", operands, logits.shape, dtype=logits.dtype)


def differentiate(
    builder: ModelBuilder, forward: Sequence[Entry], seed: tuple[DocumentValue, DocumentValue]
) -> dict[str, DocumentValue]:
    """Return the gradient of every parameter by its id; `seed` is a value of the forward pass and its gradient."""
    differentiable = _differentiable(builder, forward)
    gradients = {seed[0].id: seed[1]}
    for node in reversed(forward):
        operands = tuple(map(builder.find_value, node["inputs"]))
        results = tuple(builder.find_value(value_id(node["id"], k)) for k in range(len(node["outputs"])))
        grads = tuple(gradients.pop(result.id) for result in results if result.id in gradients)
        wanted = frozenset(i for i, operand in enumerate(operands) if operand.id in differentiable)
        if not grads or not wanted or node["op"] not in BACKWARD_OPS:
            continue
        with builder.within(node["scope"], "backward"):
            call = BackwardCall(builder, node["op"], node["attrs"], operands, results, grads, wanted)
            for i, gradient in BACKWARD_OPS[node["op"]](call):
                before = gradients.get(operands[i].id)
                gradients[operands[i].id] = gradient if before is None else builder.emit("add", [before, gradient])
    return gradients


def _differentiable(builder: ModelBuilder, forward: Iterable[Entry]) -> set[str]:
    """Return the parameters, and the values that depend on one through ops that pass a gradient on."""
    reached = {parameter.id for parameter in builder.parameters}
    for node in forward:
        if node["op"] in BACKWARD_OPS and not reached.isdisjoint(node["inputs"]):
            floats = (k for k, output in enumerate(node["outputs"]) if is_float(output["dtype"]))
            reached.update(value_id(node["id"], k) for k in floats)
    return reached


def sgd(builder: ModelBuilder, weight: DocumentValue, grad: DocumentValue) -> dict[str, DocumentValue]:
    """weight' = weight - rate * grad."""
    return {weight.id: builder.emit("subtract", [weight, builder.emit("multiply", [grad], scalar=RATE)])}


def sgd_momentum(builder: ModelBuilder, weight: DocumentValue, grad: DocumentValue) -> dict[str, DocumentValue]:
    """weight' = weight - rate * v', where v' = MOMENTUM * v + grad in the wide dtype."""
    velocity = builder.input(f"{weight.id}.momentum_buffer", weight.shape, "optimizer_state", dtype=builder.wide)
    decayed = builder.emit("multiply", [velocity], scalar=MOMENTUM)
    updated = builder.emit("add", [decayed, builder.cast(grad, builder.wide)])
    moved = builder.emit(
        "subtract", [builder.cast(weight, builder.wide), builder.emit("multiply", [updated], scalar=RATE)]
    )
    return {weight.id: builder.cast(moved, weight.dtype), velocity.id: updated}


def adam(builder: ModelBuilder, weight: DocumentValue, grad: DocumentValue) -> dict[str, DocumentValue]:
    """Adam with moments in the wide dtype, and a master copy of a weight whose own dtype is narrower."""
    names = ("exp_avg", "exp_avg_sq") if weight.dtype == builder.wide else ("exp_avg", "exp_avg_sq", "master")
    states = [
        builder.input(f"{weight.id}.{name}", weight.shape, "optimizer_state", dtype=builder.wide) for name in names
    ]
    master = states[2] if len(states) == 3 else weight
    operands = [master, grad, *states[:2], builder.find_value(STEP)]
    updated = builder.emit_all("adam", operands, [master.type] * 3, attrs={"lr": RATE})
    return {weight.id: builder.cast(updated[0], weight.dtype)} | dict(
        zip((state.id for state in states), (updated[1], updated[2], updated[0]), strict=False)
    )


STEP = "step"
OPTIMIZERS: Mapping[str, Update] = MappingProxyType({"sgd": sgd, "sgd-momentum": sgd_momentum, "adam": adam})


def append_training_step(
    builder: ModelBuilder, logits: DocumentValue, labels: DocumentValue, *, optimizer: str
) -> list[DocumentValue]:
    """Append loss, backward pass and update to the forward pass written so far; return the outputs."""
    forward = list(builder.nodes)
    loss, seed = cross_entropy(builder, logits, labels)
    grads = differentiate(builder, forward, (logits, seed))
    append_update(builder, grads, optimizer)
    return [loss, *next_values(builder)]


def append_update(builder: ModelBuilder, grads: Mapping[str, DocumentValue], optimizer: str) -> None:
    """Append the update of every parameter that has a gradient in `grads` (by id), and set `builder.next`."""
    parameters = [parameter for parameter in builder.parameters if parameter.id in grads]
    with builder.within("", "update"):
        if optimizer == "adam":
            step = builder.input(STEP, [], "optimizer_state", dtype=builder.wide)
            builder.next[step.id] = builder.emit("add", [step], scalar=1)
        for weight in parameters:
            builder.next |= OPTIMIZERS[optimizer](builder, weight, grads[weight.id])


def next_values(builder: ModelBuilder) -> list[DocumentValue]:
    """Return the outputs that replace inputs in the next run, in the order of the inputs."""
    return [builder.next[name] for name in builder.inputs if name in builder.next]
