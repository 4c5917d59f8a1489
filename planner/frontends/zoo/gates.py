"""Activations of gated feed-forward networks: of a gate and of what it lets through.

silu     silu(gate) up                             N. Shazeer, "GLU variants improve transformer", 2020
gelu     gelu(gate) up, by the tanh approximation
clamped  (u + 1) g sigmoid(1.702 g), g = min(gate, 7), u = up within -7 .. 7        gpt-oss
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.zoo.backward_ops import BackwardCall, Gradients
from planner.frontends.zoo.fused_formula import Term, emit_formula
from planner.frontends.zoo.model_builder import ModelBuilder

SLOPE, LIMIT = 1.702, 7.0

Operands = tuple[DocumentValue, DocumentValue]


def _product(op: str, **attrs: Any) -> Callable[[ModelBuilder, Operands], DocumentValue]:
    def emit(builder: ModelBuilder, operands: Operands) -> DocumentValue:
        gate, up = operands
        return builder.emit("multiply", [builder.emit(op, [gate], **attrs), up])

    return emit


def _clamped(builder: ModelBuilder, operands: Operands) -> DocumentValue:
    result = emit_formula(
        builder,
        operands,
        lambda gate, up: (_within(up) + 1) * _swish(gate.at_most(LIMIT)),
        dtype=operands[0].dtype,
    )
    builder.backward_rules[result.id] = _clamped_backward
    return result


def _clamped_backward(call: BackwardCall) -> Gradients:
    operands = [call.grads[0], *call.operands]

    def in_gate(dy: Term, gate: Term, up: Term) -> Term:
        inside = gate.at_most(LIMIT)
        open_ = (inside * SLOPE).unary("sigmoid")
        slope = open_ + inside * SLOPE * open_ * (open_ * -1.0 + 1)
        return dy * (_within(up) + 1) * slope * gate.is_at_most(LIMIT)

    def in_up(dy: Term, gate: Term, up: Term) -> Term:
        return dy * _swish(gate.at_most(LIMIT)) * (up * up).is_at_most(LIMIT * LIMIT)

    for operand, formula in enumerate((in_gate, in_up)):
        yield operand, emit_formula(call.builder, operands, formula, dtype=operands[0].dtype)


def _within(up: Term) -> Term:
    return up.at_most(LIMIT).at_least(-LIMIT)


def _swish(gate: Term) -> Term:
    return gate * (gate * SLOPE).unary("sigmoid")


GATES: Mapping[str, Callable[[ModelBuilder, Operands], DocumentValue]] = MappingProxyType(
    {"silu": _product("silu"), "gelu": _product("gelu", approximate="tanh"), "clamped": _clamped}
)
