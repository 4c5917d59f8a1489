"""A graph document while it grows, and the symbols of the walk turned into its values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.frontends.graph_builder import DocumentValue, GraphBuilder
from planner.frontends.stablehlo.symbolic_values import (
    KnownNumbers,
    Numbers,
    RowStack,
    Symbol,
    TensorSymbol,
    drop_leading_ones,
    drop_ones,
    find_spacing,
    pad_rank,
)
from planner.ir.graph import TensorType

MAX_CONCAT_OPERANDS = 64
"""The most operands of one concat; the rule of more would be too long."""
NAN_BITS = 0x7FC00000
"""A NaN of f32."""


class SymbolBuilder(GraphBuilder):
    """A builder that emits a symbol when it is first read; `constants` holds the numbers of inputs of that kind."""

    def __init__(self) -> None:
        super().__init__(phase="")
        self.constants: dict[str, Numbers] = {}
        self._written: dict[int, tuple[Symbol, DocumentValue]] = {}

    def reshape(self, value: DocumentValue, shape: Sequence[int]) -> DocumentValue:
        """Return the value in a shape. A reshape before it that only added or dropped dims of size 1 is skipped."""
        node = self.find_node(value)
        if node and node["op"] == "reshape":
            source = self.find_value(node["inputs"][0])
            if drop_ones(source.shape) == drop_ones(tuple(shape)):
                value = source
        return super().reshape(value, shape)

    def core(self, symbol: Symbol) -> DocumentValue:
        """Return a value that broadcasts to the symbol's shape."""
        if isinstance(symbol, TensorSymbol):
            return symbol.core
        if isinstance(symbol, KnownNumbers) and symbol.splat:
            return self._splat(symbol, ())
        return self.whole(symbol) if isinstance(symbol, RowStack) else self._numbers(symbol)

    def whole(self, symbol: Symbol) -> DocumentValue:
        """Return a value of the symbol's shape."""
        shape = symbol.type.shape
        if isinstance(symbol, RowStack):
            return self._once(symbol)
        if isinstance(symbol, KnownNumbers) and symbol.splat:
            return self._splat(symbol, shape)
        core = self.core(symbol)
        if pad_rank(core.shape, len(shape)) == shape:
            return self.reshape(core, shape)
        return self.emit("expand", [core], shape, dtype=symbol.type.dtype)

    def _splat(self, literal: KnownNumbers, shape: Sequence[int]) -> DocumentValue:
        """Emit a tensor of equal numbers. JSON has no NaN, so one is made of its bits."""
        dtype = literal.type.dtype
        if literal.is_scalar:
            return self.full(literal.scalar, shape, dtype)
        bits = self.full(NAN_BITS, shape, "u32")
        return self.cast(self.emit("bitcast", [bits], dtype="f32"), dtype)

    def _numbers(self, literal: KnownNumbers) -> DocumentValue:
        """Emit evenly spaced numbers as `arange`, others as an input of kind constant."""
        spaced, shape = find_spacing(literal.core), drop_leading_ones(literal.core.shape)
        if spaced is None:
            return self._once(literal)
        attrs = {"start": spaced[0], "step": spaced[1]} | ({"dim": 0} if len(shape) > 1 else {})
        return self.emit("arange", [], shape, dtype=literal.type.dtype, **attrs)

    def find_numbers(self, value: DocumentValue) -> Numbers | None:
        """Return the known numbers of a value; None for others."""
        node = self.find_node(value)
        if node and node["op"] == "arange":
            attrs = node["attrs"]
            return np.asarray(attrs["start"] + attrs["step"] * np.arange(max(value.shape)))
        return self.constants.get(value.id)

    def _once(self, symbol: KnownNumbers | RowStack) -> DocumentValue:
        """Emit a constant or a stack when it is first read; return the same value later."""
        if id(symbol) not in self._written:
            value = self._constant(symbol) if isinstance(symbol, KnownNumbers) else self._concatenated(symbol)
            self._written[id(symbol)] = symbol, value  # the reference keeps Python from reusing the id
        return self._written[id(symbol)][1]

    def _constant(self, literal: KnownNumbers) -> DocumentValue:
        value = self.constant(TensorType(literal.core.shape, literal.type.dtype))
        self.constants[value.id] = literal.core
        return value

    def constant(self, kind: TensorType) -> DocumentValue:
        """Add an input for numbers that the document does not hold."""
        return self.add_input(self.fresh_id("constant"), "constant", kind)

    def _concatenated(self, stack: RowStack) -> DocumentValue:
        """Concatenate the rows of a stack; rows never written come from the tensor below."""
        pieces, at = [], 0
        for index in sorted(stack.rows):
            pieces += [self.part(stack.below, 0, at, index)] if index > at else []
            pieces.append(self.whole(stack.rows[index]))
            at = index + 1
        length = stack.type.shape[0]
        pieces += [self.part(stack.below, 0, at, length)] if at < length else []
        return self.concatenate(pieces, 0)

    def part(self, symbol: KnownNumbers | TensorSymbol, dim: int, start: int, stop: int) -> DocumentValue:
        """Return the elements start..stop of a dim."""
        shape = symbol.type.shape
        cut = TensorType((*shape[:dim], stop - start, *shape[dim + 1 :]), symbol.type.dtype)
        if isinstance(symbol, KnownNumbers) and symbol.splat:
            return self.whole(KnownNumbers(symbol.core, cut))
        whole = self.whole(symbol)
        if cut.shape == shape:
            return whole
        return self.emit("slice", [whole], cut.shape, dtype=cut.dtype, dim=dim, start=start, stop=stop)

    def concatenate(self, pieces: list[DocumentValue], dim: int) -> DocumentValue:
        """Concatenate values along a dim, in a tree of concats of at most MAX_CONCAT_OPERANDS."""
        while len(pieces) > 1:
            groups = [pieces[at : at + MAX_CONCAT_OPERANDS] for at in range(0, len(pieces), MAX_CONCAT_OPERANDS)]
            pieces = [group[0] if len(group) == 1 else self._concat(group, dim) for group in groups]
        return pieces[0]

    def _concat(self, pieces: list[DocumentValue], dim: int) -> DocumentValue:
        shape, length = pieces[0].shape, sum(piece.shape[dim] for piece in pieces)
        return self.emit("concat", pieces, (*shape[:dim], length, *shape[dim + 1 :]), dtype=pieces[0].dtype, dim=dim)
