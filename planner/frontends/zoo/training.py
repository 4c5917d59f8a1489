"""A training step: loss, gradients by reverse accumulation, and the optimizer's update, appended to a forward pass.

    loss = mean over tokens of log sum_v exp(logits) - logits[label]

in parts that need no row of logits whole, so that the vocabulary may be split: the maximum, the sum of exp beyond it
and the look-up are sums (or maxima) over its parts, and the backward op works on each part alone.

The outputs are the loss, then the parameters and optimizer states as updated, in the order of the inputs.
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
"""What a parameter and its gradient become: by id of the input (the parameter, a state of its), its new value."""

RATE = 1e-3
MOMENTUM = 0.9


def cross_entropy(w: ModelBuilder, logits: DocumentValue, labels: DocumentValue) -> tuple[DocumentValue, DocumentValue]:
    """The loss and its gradient for the logits [batch, sequence, vocabulary]; labels [batch, sequence]."""
    one = (*logits.shape[:-1], 1)
    places = w.emit("reshape", [labels], one)
    highest = w.cast(w.emit("max", [logits], one, dims=[len(one) - 1], keepdim=True), w.wide)
    total = w.emit("log", [w.emit("sum_exp", [logits, highest], one, dtype=w.wide)])
    lse = w.emit("add", [total, highest])
    picked = w.cast(w.emit("gather", [logits, places], one, dim=len(one) - 1), w.wide)
    loss = w.emit("mean", [w.emit("subtract", [lse, picked])], [], dims=list(range(len(one))))
    with w.within("", "backward"):
        share = w.full(1 / math.prod(one), one, w.wide)
        operands = [share, logits, lse, places]
        return loss, w.emit("cross_entropy_backward", operands, logits.shape, dtype=logits.dtype)


def differentiate(
    w: ModelBuilder, forward: Sequence[Entry], seed: tuple[DocumentValue, DocumentValue]
) -> dict[str, DocumentValue]:
    """Return the gradient of every parameter by its id; `seed` is a value of the forward pass and its gradient."""
    differentiable = _differentiable(w, forward)
    gradients = {seed[0].id: seed[1]}
    for node in reversed(forward):
        operands = tuple(map(w.find_value, node["inputs"]))
        results = tuple(w.find_value(value_id(node["id"], k)) for k in range(len(node["outputs"])))
        grads = tuple(gradients.pop(result.id) for result in results if result.id in gradients)
        wanted = frozenset(i for i, operand in enumerate(operands) if operand.id in differentiable)
        if not grads or not wanted or node["op"] not in BACKWARD_OPS:
            continue
        with w.within(node["scope"], "backward"):
            call = BackwardCall(w, node["op"], node["attrs"], operands, results, grads, wanted)
            for i, gradient in BACKWARD_OPS[node["op"]](call):
                before = gradients.get(operands[i].id)
                gradients[operands[i].id] = gradient if before is None else w.emit("add", [before, gradient])
    return gradients


def _differentiable(w: ModelBuilder, forward: Iterable[Entry]) -> set[str]:
    """Return the parameters, and the values that depend on one through ops that pass a gradient on."""
    known = {parameter.id for parameter in w.parameters}
    for node in forward:
        if node["op"] in BACKWARD_OPS and not known.isdisjoint(node["inputs"]):
            floats = (k for k, output in enumerate(node["outputs"]) if is_float(output["dtype"]))
            known.update(value_id(node["id"], k) for k in floats)
    return known


def sgd(w: ModelBuilder, weight: DocumentValue, grad: DocumentValue) -> dict[str, DocumentValue]:
    """weight - rate grad."""
    return {weight.id: w.emit("subtract", [weight, w.emit("multiply", [grad], scalar=RATE)])}


def sgd_momentum(w: ModelBuilder, weight: DocumentValue, grad: DocumentValue) -> dict[str, DocumentValue]:
    """weight - rate v', with v' = MOMENTUM v + grad in the wide dtype."""
    velocity = w.input(f"{weight.id}.momentum_buffer", weight.shape, "optimizer_state", dtype=w.wide)
    kept = w.emit("multiply", [velocity], scalar=MOMENTUM)
    made = w.emit("add", [kept, w.cast(grad, w.wide)])
    moved = w.emit("subtract", [w.cast(weight, w.wide), w.emit("multiply", [made], scalar=RATE)])
    return {weight.id: w.cast(moved, weight.dtype), velocity.id: made}


def adam(w: ModelBuilder, weight: DocumentValue, grad: DocumentValue) -> dict[str, DocumentValue]:
    """Moments, and the weight itself where it is narrower, are kept in the wide dtype."""
    names = ("exp_avg", "exp_avg_sq") if weight.dtype == w.wide else ("exp_avg", "exp_avg_sq", "master")
    states = [w.input(f"{weight.id}.{name}", weight.shape, "optimizer_state", dtype=w.wide) for name in names]
    master = states[2] if len(states) == 3 else weight
    operands = [master, grad, *states[:2], w.find_value(STEP)]
    made = w.emit_all("adam", operands, [master.type] * 3, attrs={"lr": RATE})
    return {weight.id: w.cast(made[0], weight.dtype)} | dict(
        zip((state.id for state in states), (made[1], made[2], made[0]), strict=False)
    )


STEP = "step"
OPTIMIZERS: Mapping[str, Update] = MappingProxyType({"sgd": sgd, "sgd-momentum": sgd_momentum, "adam": adam})


def append_training_step(
    w: ModelBuilder, logits: DocumentValue, labels: DocumentValue, *, optimizer: str
) -> list[DocumentValue]:
    """Appends loss, backward pass and update to the forward pass written so far; the outputs."""
    forward = list(w.nodes)
    loss, seed = cross_entropy(w, logits, labels)
    grads = differentiate(w, forward, (logits, seed))
    append_update(w, grads, optimizer)
    return [loss, *next_values(w)]


def append_update(w: ModelBuilder, grads: Mapping[str, DocumentValue], optimizer: str) -> None:
    """Appends the update of every parameter that has a gradient, by id; `w.next` says what takes its place."""
    parameters = [parameter for parameter in w.parameters if parameter.id in grads]
    with w.within("", "update"):
        if optimizer == "adam":
            step = w.input(STEP, [], "optimizer_state", dtype=w.wide)
            w.next[step.id] = w.emit("add", [step], scalar=1)
        for weight in parameters:
            w.next |= OPTIMIZERS[optimizer](w, weight, grads[weight.id])


def next_values(w: ModelBuilder) -> list[DocumentValue]:
    """What takes the place of inputs in the next run, in their order."""
    return [w.next[name] for name in w.inputs if name in w.next]
