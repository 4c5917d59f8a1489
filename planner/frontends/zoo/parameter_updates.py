"""Updates that treat every element of a parameter alike, in ops of the op table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.zoo.fused_formula import Term, emit_formula
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.ops.optimizers import BETA1, BETA2, EPS, WEIGHT_DECAY

Numbers = Mapping[str, float]
NewValues = tuple[DocumentValue, dict[str, DocumentValue]]
"""The new weight, and the new states by name."""


@dataclass(frozen=True, slots=True)
class Update:
    """One parameter's update: `weight` is what is updated, the parameter or its master copy in the wide dtype.

    `step` is the number of the step, from 1, for a row that counts steps.
    """

    builder: ModelBuilder
    weight: DocumentValue
    grad: DocumentValue
    states: Mapping[str, DocumentValue]
    numbers: Numbers
    step: DocumentValue | None = None

    def formula(
        self, operands: Sequence[DocumentValue], formula: Callable[..., Term], *, dtype: str = ""
    ) -> DocumentValue:
        return emit_formula(self.builder, operands, formula, dtype=dtype)

    @property
    def decay(self) -> float:
        """The factor of decoupled weight decay."""
        return 1 - self.numbers["lr"] * self.numbers["weight_decay"]

    @property
    def counted(self) -> DocumentValue:
        assert self.step is not None, "the row counts steps"
        return self.step


def sgd(update: Update) -> NewValues:
    """weight' = weight - lr (grad + weight_decay weight), in the weight's dtype."""
    builder, weight = update.builder, update.weight
    grad = _with_decay(update, builder.cast(update.grad, weight.dtype), weight)
    return builder.emit("subtract", [weight, builder.emit("multiply", [grad], scalar=update.numbers["lr"])]), {}


def sgd_momentum(update: Update) -> NewValues:
    """weight' = weight - lr v', where v' = momentum v + grad + weight_decay weight, in the wide dtype."""
    builder = update.builder
    decayed = builder.emit("multiply", [update.states["momentum_buffer"]], scalar=update.numbers["momentum"])
    grad = _with_decay(update, builder.cast(update.grad, builder.wide), update.weight)
    velocity = builder.emit("add", [decayed, grad])
    weight = builder.cast(update.weight, builder.wide)
    moved = builder.emit("multiply", [velocity], scalar=update.numbers["lr"])
    return builder.emit("subtract", [weight, moved]), {"momentum_buffer": velocity}


def _with_decay(update: Update, grad: DocumentValue, weight: DocumentValue) -> DocumentValue:
    factor = update.numbers["weight_decay"]
    if not factor:
        return grad
    return update.formula([grad, weight], lambda g, w: g + factor * w, dtype=grad.dtype)


def sgd_nesterov(update: Update) -> NewValues:
    """weight' = weight - lr (d + momentum v'), where d = grad + weight_decay weight and v' = momentum v + d."""
    lr, momentum, decay = (update.numbers[name] for name in ("lr", "momentum", "weight_decay"))
    operands = [update.weight, update.grad, update.states["momentum_buffer"]]
    velocity = update.formula(operands, lambda w, g, v: momentum * v + (g + decay * w))
    weight = update.formula([*operands[:2], velocity], lambda w, g, v: w - lr * (g + decay * w + momentum * v))
    return weight, {"momentum_buffer": velocity}


def adam(update: Update) -> NewValues:
    """The op `adam`, whose attributes are written where they are not the op's defaults."""
    builder, weight = update.builder, update.builder.cast(update.weight, update.builder.wide)
    operands = [weight, update.grad, update.states["exp_avg"], update.states["exp_avg_sq"], update.counted]
    plain = {each.name: each.default for each in (BETA1, BETA2, EPS, WEIGHT_DECAY)}
    changed = {name: number for name, number in update.numbers.items() if plain.get(name) != number}
    moved, first, second = builder.emit_all("adam", operands, [weight.type] * 3, attrs=changed)
    return moved, {"exp_avg": first, "exp_avg_sq": second}


def lion(update: Update) -> NewValues:
    """X. Chen et al., Symbolic discovery of optimization algorithms, 2023."""
    lr, beta1, beta2 = (update.numbers[name] for name in ("lr", "beta1", "beta2"))
    operands = [update.weight, update.grad, update.states["exp_avg"]]
    weight = update.formula(
        operands, lambda w, g, m: update.decay * w - lr * (beta1 * m + (1 - beta1) * g).unary("sign")
    )
    return weight, {"exp_avg": update.formula(operands[1:], lambda g, m: beta2 * m + (1 - beta2) * g)}
