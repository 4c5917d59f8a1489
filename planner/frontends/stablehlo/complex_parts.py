"""Complex numbers as pairs of real symbols, and the calls that the rows of `complex_rules` see.

Documents have no complex dtype. An op of complex numbers is emitted as the ops of real numbers that compute its parts,
by the rows of real numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxlib.mlir import ir

from planner.errors import UnsupportedOp
from planner.frontends.stablehlo.symbol_builder import SymbolBuilder
from planner.frontends.stablehlo.symbolic_values import KnownNumbers, Numbers, RowStack, Symbol, numpy_dtype
from planner.ir.graph import TensorType

WANTED = (
    "complex numbers that the function makes itself, in jnp.fft, sums, products, quotients, views, abs, angle, exp, "
    "log, real, imag and conj; real and imaginary part as two real arrays elsewhere"
)


@dataclass(frozen=True, slots=True, eq=False)
class ComplexParts:
    """The real and the imaginary part of a complex value."""

    real: Symbol
    imag: Symbol

    @property
    def type(self) -> TensorType:
        """The type of either part."""
        return self.real.type

    def __iter__(self) -> Iterator[Symbol]:
        return iter((self.real, self.imag))


Value = Symbol | ComplexParts
RunRow = Callable[[str, Sequence[Symbol], TensorType], Symbol]
"""Applies the row of an op of real numbers to operands, with the attributes of the complex op."""


@dataclass(frozen=True, slots=True, eq=False)
class ComplexCall:
    """An op that reads or makes complex numbers, with the type of its result or of either part of it."""

    op: ir.Operation
    operands: tuple[Value, ...]
    result: TensorType
    builder: SymbolBuilder
    run_row: RunRow

    @property
    def name(self) -> str:
        return str(self.op.name)

    def refuse(self, got: str) -> UnsupportedOp:
        return UnsupportedOp("complex numbers", got=got, wanted=WANTED)

    def pair(self, operand: int) -> ComplexParts:
        """Return an operand as a pair; a real one has an imaginary part of 0."""
        value = self.operands[operand]
        return value if isinstance(value, ComplexParts) else ComplexParts(value, zeros(value.type))

    def run(self, op: str, *operands: Symbol) -> Symbol:
        """Apply the row of `stablehlo.op` to real numbers, for a result of the call's type."""
        return self.run_row(f"stablehlo.{op}", operands, self.result)

    def multiply(self, x: Symbol, y: Symbol) -> Symbol:
        return zeros(self.result) if is_zero(x) or is_zero(y) else self.run("multiply", x, y)

    def add(self, x: Symbol, y: Symbol) -> Symbol:
        return y if is_zero(x) and y.type == self.result else self.run("add", x, y)

    def subtract(self, x: Symbol, y: Symbol) -> Symbol:
        return self.run("subtract", x, y)

    def square_length(self, z: ComplexParts) -> Symbol:
        return self.add(self.multiply(z.real, z.real), self.multiply(z.imag, z.imag))


def zeros(kind: TensorType) -> KnownNumbers:
    return KnownNumbers(np.zeros((), numpy_dtype(kind.dtype)), kind)


def is_zero(symbol: Symbol) -> bool:
    """Return whether all elements are known to be 0."""
    if isinstance(symbol, RowStack):
        return is_zero(symbol.below) and all(map(is_zero, symbol.rows.values()))
    return isinstance(symbol, KnownNumbers) and not np.any(symbol.core)


def read_constant(call: ComplexCall) -> ComplexParts:
    """Read the numbers of a constant from its text: the bindings have no attribute for complex ones."""
    text = call.op.get_asm()
    listed = text[text.index("dense<") : text.rindex("> : ") + 1]
    if '"0x' in listed:
        raw = np.frombuffer(bytes.fromhex(listed.split('"')[1][2:]), numpy_dtype(call.result.dtype)).reshape(-1, 2)
        return _make_constant(call, raw[:, 0], raw[:, 1])
    return _make_constant(call, *(_read_part(call, listed, side) for side in (1, 2)))


def _read_part(call: ComplexCall, listed: str, side: int) -> Numbers:
    """Return the first or second number of every pair in a text."""
    numbers = re.sub(r"\(([^,()]+),([^,()]+)\)", rf"\{side}", listed)
    sizes = "x".join(map(str, (*call.result.shape, call.result.dtype)))
    return np.array(ir.Attribute.parse(f"{numbers} : tensor<{sizes}>", call.op.context))


def _make_constant(call: ComplexCall, *parts: Numbers) -> ComplexParts:
    """Return arrays as known numbers, equal ones as one number."""
    shaped = (part.reshape(call.result.shape) for part in parts)
    cores = [part.reshape(-1)[0] if np.all(part == part.reshape(-1)[0]) else part for part in shaped]
    return ComplexParts(*(KnownNumbers(np.asarray(core), call.result) for core in cores))
