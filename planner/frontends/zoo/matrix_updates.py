"""Updates that treat a parameter as a matrix, in ops of the op table."""

from __future__ import annotations

import math

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.zoo.fused_formula import Term, emit_sum_of_squares
from planner.frontends.zoo.parameter_updates import NewValues, Update

EPSILON = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
"""The distance from 1 to the next larger number, by dtype."""
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration: K. Jordan, Muon, 2024."""


def adafactor(update: Update) -> NewValues:
    """N. Shazeer, M. Stern, Adafactor, 2018, with the step size and the epsilons of torch.optim."""
    numbers, tiny, size = update.numbers, EPSILON[update.weight.dtype], math.prod(update.weight.shape)
    variance, states = _factored_variance(update, tiny)
    scaled = update.formula(
        [update.grad, *variance],
        lambda g, *v: g * _estimate(v, tiny).at_least(tiny * tiny).unary("rsqrt"),
    )
    squares = emit_sum_of_squares(update.builder, update.weight), emit_sum_of_squares(update.builder, scaled)

    def move(w: Term, u: Term, w2: Term, u2: Term, t: Term) -> Term:
        rate = (w2 / size).unary("sqrt").at_least(numbers["eps"]) * t.unary("rsqrt").at_most(numbers["lr"])
        clip = ((u2 / size).unary("sqrt") / numbers["clip"]).at_least(1.0)
        return update.decay * w - rate / clip * u

    return update.formula([update.weight, scaled, *squares, update.counted], move), states


def _factored_variance(update: Update, tiny: float) -> tuple[list[DocumentValue], dict[str, DocumentValue]]:
    """Return the operands of the variance's estimate and the new states."""
    builder, rank = update.builder, len(update.weight.shape)
    squares = update.formula([update.grad], lambda g: g * g)
    means = {"variance": squares}
    if rank > 1:
        for name, dim in (("row_var", rank - 1), ("col_var", rank - 2)):
            means[name] = builder.emit("mean", [squares], update.states[name].shape, dims=[dim], keepdim=True)
    states = {
        name: update.formula(
            [old, means[name], update.counted], lambda v, mean, t: v + (mean - v) * t ** update.numbers["beta2_decay"]
        )
        for name, old in update.states.items()
    }
    if rank < 2:
        return [*states.values()], states
    rows = states["row_var"]
    whole = builder.emit("mean", [rows], (*rows.shape[:-2], 1, 1), dims=[rank - 2], keepdim=True)
    return [*states.values(), whole], states


def _estimate(variance: tuple[Term, ...], tiny: float) -> Term:
    if len(variance) == 1:
        return variance[0]
    rows, columns, whole = variance
    return rows * columns / whole.at_least(tiny)


def muon(update: Update) -> NewValues:
    """K. Jordan, Muon, 2024: momentum, made orthogonal by Newton-Schulz iterations in bf16."""
    lr, momentum = update.numbers["lr"], update.numbers["momentum"]
    buffer = update.formula(
        [update.grad, update.states["momentum_buffer"]], lambda g, b: momentum * b + (1 - momentum) * g
    )
    nesterov = update.formula([update.grad, buffer], lambda g, b: (1 - momentum) * g + momentum * b)
    direction = _orthogonal(update, nesterov)
    rows, columns = update.weight.shape
    rate = lr * math.sqrt(max(1.0, rows / columns))
    weight = update.formula([update.weight, direction], lambda w, x: update.decay * w - rate * x)
    return weight, {"momentum_buffer": buffer}


def _orthogonal(update: Update, matrix: DocumentValue) -> DocumentValue:
    builder, (rows, columns) = update.builder, matrix.shape
    norm = emit_sum_of_squares(builder, matrix)
    x = update.formula([matrix, norm], lambda m, n: m / n.unary("sqrt").at_least(1e-7), dtype="bf16")
    if rows > columns:
        x = builder.emit("transpose", [x], (columns, rows), permutation=[1, 0])
    a, b, c = NEWTON_SCHULZ
    side = (min(rows, columns),) * 2
    for _ in range(int(update.numbers["ns_steps"])):
        gram = builder.emit("einsum", [x, x], side, equation="i k, j k -> i j")
        square = builder.emit("matmul", [gram, gram], side)
        factor = update.formula([gram, square], lambda g, s: b * g + c * s, dtype="bf16")
        product = builder.emit("matmul", [factor, x], x.shape)
        x = update.formula([x, product], lambda x, p: a * x + p, dtype="bf16")
    return builder.emit("transpose", [x], (rows, columns), permutation=[1, 0]) if rows > columns else x
