"""A training step appended to a forward pass: loss, gradients by reverse accumulation, optimizer update.

    loss = mean over tokens of log sum_v exp(logits) - logits[label]

The loss is built from ops that need no whole row of logits, so that the vocabulary may be split: the maximum, the sum
of exponentials and the look-up are sums or maxima over parts of a row, and the backward op works on each part alone.

The outputs are the loss, then the updated parameters and optimizer states in the order of the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from planner.frontends.graph_builder import DocumentValue, Entry
from planner.frontends.zoo.backward_ops import BackwardCall, find_backward_rule
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.frontends.zoo.update import Training, append_update, next_values
from planner.ir.dtypes import is_float
from planner.ir.graph import value_id


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
        rule = find_backward_rule(builder, node)
        if not grads or not wanted or rule is None:
            continue
        with builder.within(node["scope"], "backward"):
            call = BackwardCall(builder, node["op"], node["attrs"], operands, results, grads, wanted)
            for i, gradient in rule(call):
                before = gradients.get(operands[i].id)
                gradients[operands[i].id] = gradient if before is None else builder.emit("add", [before, gradient])
    return gradients


def _differentiable(builder: ModelBuilder, forward: Iterable[Entry]) -> set[str]:
    """Return the parameters, and the values that depend on one through ops that pass a gradient on."""
    reached = {parameter.id for parameter in builder.parameters}
    for node in forward:
        if find_backward_rule(builder, node) and not reached.isdisjoint(node["inputs"]):
            floats = (k for k, output in enumerate(node["outputs"]) if is_float(output["dtype"]))
            reached.update(value_id(node["id"], k) for k in floats)
    return reached


def append_training_step(
    builder: ModelBuilder, logits: DocumentValue, labels: DocumentValue, *, training: Training
) -> list[DocumentValue]:
    """Append loss, backward pass and update to the forward pass written so far; return the outputs."""
    forward = list(builder.nodes)
    loss, seed = cross_entropy(builder, logits, labels)
    grads = differentiate(builder, forward, (logits, seed))
    append_update(builder, grads, training)
    return [loss, *next_values(builder)]
