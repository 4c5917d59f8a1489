"""Formulas in Python's arithmetic, each emitted as one `pointwise` op, as a fused optimizer computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.ir.graph import TensorType


@dataclass(slots=True)
class _Tape:
    """The steps of a `pointwise` op, which compute in one dtype."""

    dtype: str
    operands: int
    steps: list[list[Any]] = field(default_factory=list)

    def record(self, op: str, reads: Sequence[int], dtype: str = "", **attrs: object) -> Term:
        self.steps.append([op, list(reads), dtype or self.dtype, attrs])
        return Term(self, self.operands + len(self.steps) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A tensor inside a formula. Arithmetic with numbers and other terms is elementwise, with broadcasting."""

    tape: _Tape
    number: int

    def __add__(self, other: Term | float) -> Term:
        return self._binary("add", other)

    def __sub__(self, other: Term | float) -> Term:
        return self._binary("subtract", other)

    def __mul__(self, other: Term | float) -> Term:
        return self._binary("multiply", other)

    def __rmul__(self, other: float) -> Term:
        return self._binary("multiply", other)

    def __truediv__(self, other: Term | float) -> Term:
        return self._binary("divide", other)

    def __pow__(self, other: float) -> Term:
        return self._binary("pow", other)

    def at_least(self, other: Term | float) -> Term:
        return self._binary("maximum", other)

    def at_most(self, other: Term | float) -> Term:
        return self._binary("minimum", other)

    def is_at_most(self, limit: float) -> Term:
        """Return 1 where the term is at most `limit`, else 0."""
        flag = self.tape.record("less_equal", [self.number], "bool", scalar=limit)
        return self.tape.record("cast", [flag.number])

    def unary(self, op: str) -> Term:
        """Apply a pointwise op of the op table, such as sqrt or sign."""
        return self.tape.record(op, [self.number])

    def _binary(self, op: str, other: Term | float) -> Term:
        if isinstance(other, Term):
            return self.tape.record(op, [self.number, other.number])
        return self.tape.record(op, [self.number], scalar=other)


def emit_formula(
    builder: ModelBuilder, operands: Sequence[DocumentValue], formula: Callable[..., Term], *, dtype: str = ""
) -> DocumentValue:
    """Emit formula(*operands) as one op that computes in the wide dtype; its result has `dtype`, or the wide one."""
    tape = _Tape(builder.wide, len(operands))
    terms = [
        Term(tape, n) if value.dtype == builder.wide else tape.record("cast", [n]) for n, value in enumerate(operands)
    ]
    result = formula(*terms)
    if dtype and dtype != builder.wide:
        tape.record("cast", [result.number], dtype)
    shape = np.broadcast_shapes(*(value.shape for value in operands))
    kind = TensorType(tuple(map(int, shape)), dtype or builder.wide)
    return builder.emit_all("pointwise", operands, [kind], attrs={"steps": tape.steps})[0]


def emit_sum_of_squares(builder: ModelBuilder, value: DocumentValue) -> DocumentValue:
    """Emit the sum of the squares of all elements, a scalar of the wide dtype."""
    squares = emit_formula(builder, [value], lambda x: x * x)
    return builder.emit("sum", [squares], [], dims=list(range(len(value.shape))))
