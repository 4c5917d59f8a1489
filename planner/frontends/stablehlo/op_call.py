"""One StableHLO op, as the rows of the table see it: its operands as symbols, its attributes by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from planner.errors import InvalidGraph, UnsupportedOp
from planner.frontends.dtypes import FROM_MLIR
from planner.frontends.framework_call import FrameworkCall
from planner.frontends.graph_builder import DocumentValue
from planner.frontends.stablehlo.symbol_builder import SymbolBuilder
from planner.frontends.stablehlo.symbolic_values import KnownNumbers, Numbers, Symbol
from planner.frontends.uncovered_ops import NotCovered
from planner.ir.graph import TensorType


@dataclass(frozen=True, slots=True, eq=False)
class StablehloOpCall(FrameworkCall):
    """An op of the text with its operands; nodes that its row emits get fresh ids."""

    builder: SymbolBuilder
    op: ir.Operation
    operands: tuple[Symbol, ...]

    @property
    def name(self) -> str:
        """The op's name without its dialect."""
        return str(self.op.name).partition(".")[2]

    def ints(self, attribute: str) -> tuple[int, ...]:
        return tuple(self.op.attributes[attribute])

    def optional_ints(self, attribute: str, default: tuple[int, ...]) -> tuple[int, ...]:
        return self.ints(attribute) if attribute in self.op.attributes else default

    def edges(self, attribute: str, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the padding below and above every dim."""
        if attribute not in self.op.attributes:
            return (0,) * rank, (0,) * rank
        pairs = self.op.attributes[attribute]
        flat = [pairs.get_splat_value().value] * 2 * rank if pairs.is_splat else list(pairs)
        return tuple(flat[::2]), tuple(flat[1::2])

    def integer(self, attribute: str) -> int:
        return int(self.op.attributes[attribute].value)

    def text(self, attribute: str) -> str:
        """Return an enum or string attribute."""
        return str(self.op.attributes[attribute]).strip('"').rstrip(">").rpartition(" ")[2]

    def whole(self, operand: int) -> DocumentValue:
        return self.builder.whole(self.operands[operand])

    def wholes(self) -> list[DocumentValue]:
        return [self.builder.whole(symbol) for symbol in self.operands]

    def literal(self, core: Numbers) -> KnownNumbers:
        return KnownNumbers(core, self.result)

    def reducer(self, region: int = 0) -> str:
        """Return the name of the single op of a body that combines two elements. Raises NotCovered for other bodies."""
        block = self.op.regions[region].blocks[0]
        inside = [each.operation for each in block.operations]
        single = len(inside) == 2 and len(block.arguments) == 2 == len(inside[0].operands)
        if not single or set(inside[0].operands) != set(block.arguments):
            raise NotCovered("a body that is not one op of its two arguments")
        return str(inside[0].name).partition(".")[2]


RowResult = Symbol | DocumentValue
"""What a row returns for a result of the op."""

StablehloRow = Callable[[StablehloOpCall], RowResult | Sequence[RowResult]]


def has_no_elements(kind: ir.Type) -> bool:
    return isinstance(kind, ir.RankedTensorType) and kind.has_static_shape and 0 in kind.shape


def is_complex(kind: ir.Type) -> bool:
    return isinstance(kind, ir.RankedTensorType) and isinstance(kind.element_type, ir.ComplexType)


def tensor_type(kind: ir.Type) -> TensorType:
    """Return a tensor's type. Raises InvalidGraph for a dynamic dim, UnsupportedOp for other types and dtypes."""
    if is_complex(kind):
        wanted = "real and imaginary part as two real arrays"
        raise UnsupportedOp("complex numbers", got=str(kind.element_type), wanted=wanted)
    return part_type(kind)


def part_type(kind: ir.Type) -> TensorType:
    """Return a tensor's type, or that of either part of a complex one. Raises as `tensor_type` does."""
    if not isinstance(kind, ir.RankedTensorType):
        raise UnsupportedOp("type of a value", got=str(kind), wanted="a ranked tensor")
    if not kind.has_static_shape:
        raise InvalidGraph("dynamic dim", got=str(kind), wanted="fixed sizes: lower with concrete shapes")
    spelled = str(kind.element_type.element_type if is_complex(kind) else kind.element_type)
    if has_no_elements(kind):
        raise UnsupportedOp("array without elements", got=str(kind), wanted="arrays of at least one element")
    if spelled not in FROM_MLIR:
        raise UnsupportedOp("element type", got=spelled, wanted=f"one of {', '.join(FROM_MLIR)}")
    return TensorType(tuple(kind.shape), FROM_MLIR[spelled])
