"""The table: StableHLO or CHLO op -> row for complex numbers, in the ops of their parts. One op is one row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxlib.mlir import ir

from planner.frontends.stablehlo import fourier
from planner.frontends.stablehlo.complex_parts import (
    ComplexCall,
    ComplexParts,
    Value,
    is_zero,
    read_constant,
    zeros,
)
from planner.frontends.stablehlo.symbolic_values import KnownNumbers, Symbol

ComplexRow = Callable[[ComplexCall], Value]
LINEAR = (
    "add broadcast_in_dim concatenate dynamic_slice dynamic_update_slice gather negate pad reduce_window reshape "
    "reverse scatter select slice subtract transpose"
)
"""Ops that treat both parts alike, and make zeros of zeros."""


def translate_complex(call: ComplexCall) -> Value:
    """Emit an op that reads or makes complex numbers. Raises UnsupportedOp for one outside the table."""
    row = COMPLEX_TABLE.get(call.name)
    if row is None or len(call.op.results) != 1:
        raise call.refuse(call.name)
    return row(call)


def _apply_to_parts(call: ComplexCall) -> ComplexParts:
    """Apply the row of real numbers to each part. Operands that are real, such as positions, are read by both."""
    if others := {each.name for each in _body(call)} - {"stablehlo.add", "stablehlo.return"}:
        raise call.refuse(f"{call.name} by {', '.join(sorted(others))}")
    numbers = [each for each in call.operands if isinstance(each, ComplexParts)]
    real = [each.real if isinstance(each, ComplexParts) else each for each in call.operands]
    imag = [each.imag if isinstance(each, ComplexParts) else each for each in call.operands]
    made = call.run_row(call.name, real, call.result)
    if all(is_zero(each.imag) for each in numbers):
        return ComplexParts(made, zeros(call.result))
    return ComplexParts(made, call.run_row(call.name, imag, call.result))


def _body(call: ComplexCall) -> list[ir.Operation]:
    return [each.operation for region in call.op.regions for each in region.blocks[0].operations]


def _reduce(call: ComplexCall) -> ComplexParts:
    """A sum; or a product over dims of size 1."""
    if [each.name for each in _body(call)] != ["stablehlo.multiply", "stablehlo.return"]:
        return _apply_to_parts(call)
    x, start = call.pair(0), call.pair(1)
    if any(x.type.shape[dim] != 1 for dim in call.op.attributes["dimensions"]):
        raise call.refuse("a product over a dim")
    return _product(call, ComplexParts(*(call.run("reshape", part) for part in x)), start)


def _convert(call: ComplexCall) -> ComplexParts:
    return ComplexParts(*(call.run("convert", part) for part in call.pair(0)))


def _multiply(call: ComplexCall) -> ComplexParts:
    return _product(call, call.pair(0), call.pair(1))


def _product(call: ComplexCall, z: ComplexParts, w: ComplexParts) -> ComplexParts:
    """(a + bi) (c + di) = ac - bd + (ad + bc) i."""
    real = call.subtract(call.multiply(z.real, w.real), call.multiply(z.imag, w.imag))
    return ComplexParts(real, call.add(call.multiply(z.real, w.imag), call.multiply(z.imag, w.real)))


def _divide(call: ComplexCall) -> ComplexParts:
    z, w = call.pair(0), call.pair(1)
    if is_zero(w.imag):
        return _quotient(call, z, w)
    above = _product(call, z, ComplexParts(w.real, call.run("negate", w.imag)))
    return _quotient(call, above, ComplexParts(call.square_length(w), w.imag))


def _quotient(call: ComplexCall, z: ComplexParts, w: ComplexParts) -> ComplexParts:
    """Divide by a real part."""
    return ComplexParts(*(part if is_zero(part) else call.run("divide", part, w.real) for part in z))


def _dot_general(call: ComplexCall) -> ComplexParts:
    """The product of matrices, by those of their parts."""
    z, w = call.pair(0), call.pair(1)
    (ac, bd), (ad, bc) = (
        [
            zeros(call.result) if is_zero(x) or is_zero(y) else call.run_row(call.name, [x, y], call.result)
            for x, y in pairs
        ]
        for pairs in (((z.real, w.real), (z.imag, w.imag)), ((z.real, w.imag), (z.imag, w.real)))
    )
    return ComplexParts(call.subtract(ac, bd), call.add(ad, bc))


def _length(call: ComplexCall) -> Symbol:
    z = call.pair(0)
    return call.run("abs", z.real) if is_zero(z.imag) else call.run("sqrt", call.square_length(z))


def _exponential(call: ComplexCall) -> ComplexParts:
    z = call.pair(0)
    length = call.run("exponential", z.real)
    return ComplexParts(*(call.multiply(length, call.run(turned, z.imag)) for turned in ("cosine", "sine")))


def _logarithm(call: ComplexCall) -> ComplexParts:
    z = call.pair(0)
    return ComplexParts(call.run("log", _length(call)), call.run("atan2", z.imag, z.real))


def _square_root(call: ComplexCall) -> ComplexParts:
    """The root of a known number, by which transforms are divided."""
    real, imag = call.pair(0)
    if not (isinstance(real, KnownNumbers) and real.splat and isinstance(imag, KnownNumbers) and imag.splat):
        raise call.refuse(call.name)
    root = np.sqrt(complex(real.number, imag.number))
    parts = (np.asarray(part, real.core.dtype) for part in (root.real, root.imag))
    return ComplexParts(*(KnownNumbers(part, call.result) for part in parts))


def _compare(call: ComplexCall) -> Value:
    """Equal where both parts are equal."""
    sides = [call.run_row(call.name, parts, call.result) for parts in zip(call.pair(0), call.pair(1), strict=True)]
    return call.run("and" if "EQ" in str(call.op.attributes["comparison_direction"]) else "or", *sides)


def _square(call: ComplexCall) -> ComplexParts:
    return _product(call, call.pair(0), call.pair(0))


COMPLEX_TABLE: dict[str, ComplexRow] = {
    **{f"stablehlo.{name}": _apply_to_parts for name in LINEAR.split()},
    "stablehlo.abs": _length,
    "stablehlo.compare": _compare,
    "stablehlo.complex": lambda call: ComplexParts(call.pair(0).real, call.pair(1).real),
    "stablehlo.constant": read_constant,
    "stablehlo.convert": _convert,
    "stablehlo.divide": _divide,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.exponential": _exponential,
    "stablehlo.fft": fourier.transform,
    "stablehlo.imag": lambda call: call.pair(0).imag,
    "stablehlo.log": _logarithm,
    "stablehlo.multiply": _multiply,
    "stablehlo.real": lambda call: call.pair(0).real,
    "stablehlo.reduce": _reduce,
    "stablehlo.sqrt": _square_root,
    "chlo.square": _square,
}
