"""One StableHLO op, as the rows of the table see it: symbols and typed attributes in, symbols out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir import ir

from planner.errors import InvalidGraph, UnsupportedOp
from planner.frontends.document_value import DocumentValue
from planner.frontends.stablehlo.graph_writer import StablehloWriter
from planner.frontends.stablehlo.symbolic_values import KnownNumbers, Numbers, Symbol, TensorSymbol
from planner.ir.dtypes import DTYPE_BYTES
from planner.ir.graph import TensorType

_DTYPE_NAMES = {"i1": "bool", "f8E4M3FN": "f8e4m3", "f8E5M2": "f8e5m2"}


class StablehloNotCovered(Exception):
    """An op with operands or attributes that its row has no words for; the text says which."""


@dataclass(frozen=True, slots=True, eq=False)
class StablehloOpCall:
    """An op of the text with its operands."""

    op: ir.Operation
    operands: tuple[Symbol, ...]
    results: tuple[TensorType, ...]
    writer: StablehloWriter

    @property
    def name(self) -> str:
        """Without its dialect."""
        return str(self.op.name).partition(".")[2]

    @property
    def result(self) -> TensorType:
        return self.results[0]

    def ints(self, attribute: str) -> tuple[int, ...]:
        return tuple(self.op.attributes[attribute])

    def optional_ints(self, attribute: str, default: tuple[int, ...]) -> tuple[int, ...]:
        return self.ints(attribute) if attribute in self.op.attributes else default

    def edges(self, attribute: str, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Padding before and behind every dim."""
        if attribute not in self.op.attributes:
            return (0,) * rank, (0,) * rank
        pairs = self.op.attributes[attribute]
        flat = [pairs.get_splat_value().value] * 2 * rank if pairs.is_splat else list(pairs)
        return tuple(flat[::2]), tuple(flat[1::2])

    def integer(self, attribute: str) -> int:
        return int(self.op.attributes[attribute].value)

    def text(self, attribute: str) -> str:
        """An enum or string attribute."""
        return str(self.op.attributes[attribute]).strip('"').rstrip(">").rpartition(" ")[2]

    def demand(self, reason: str, holds: bool) -> None:
        """Raises NotCovered for `reason` unless it `holds`."""
        if not holds:
            raise StablehloNotCovered(reason)

    def whole(self, operand: int) -> DocumentValue:
        return self.writer.whole(self.operands[operand])

    def wholes(self) -> list[DocumentValue]:
        return [self.writer.whole(symbol) for symbol in self.operands]

    def emit(self, op: str, *operands: DocumentValue, **attrs: Any) -> TensorSymbol:
        """A node with the call's one result."""
        return self.emit_all(op, *operands, **attrs)[0]

    def emit_all(self, op: str, *operands: DocumentValue, **attrs: Any) -> list[TensorSymbol]:
        """A node with the call's results."""
        return [TensorSymbol.of(value) for value in self.writer.node(op, operands, self.results, attrs)]

    def step(self, op: str, operands: Sequence[DocumentValue], shape: Sequence[int], **attrs: Any) -> DocumentValue:
        """A node on the way, of the result's dtype."""
        return self.writer.emit_op(op, operands, tuple(shape), dtype=self.result.dtype, **attrs)

    def literal(self, core: Numbers) -> KnownNumbers:
        return KnownNumbers(core, self.result)

    def reducer(self, region: int = 0) -> str:
        """The one op of a body that combines two elements. Raises NotCovered for any other body."""
        block = self.op.regions[region].blocks[0]
        inside = [each.operation for each in block.operations]
        single = len(inside) == 2 and len(block.arguments) == 2 == len(inside[0].operands)
        if not single or set(inside[0].operands) != set(block.arguments):
            raise StablehloNotCovered("a body that is not one op of its two arguments")
        return str(inside[0].name).partition(".")[2]


StablehloRow = Callable[[StablehloOpCall], Symbol | Sequence[Symbol]]


def tensor_type(kind: ir.Type) -> TensorType:
    """Raises InvalidGraph for a dim that is not a fixed number, UnsupportedOp for what is no tensor of ours."""
    if not isinstance(kind, ir.RankedTensorType):
        raise UnsupportedOp("type of a value", got=str(kind), wanted="a ranked tensor")
    if not kind.has_static_shape:
        raise InvalidGraph("dynamic dim", got=str(kind), wanted="fixed sizes: lower with concrete shapes")
    return TensorType(tuple(kind.shape), dtype_name(str(kind.element_type)))


def dtype_name(spelled: str) -> str:
    """Our name of an element type. Raises UnsupportedOp when there is none."""
    name = f"u{spelled[2:]}" if spelled.startswith("ui") else _DTYPE_NAMES.get(spelled, spelled)
    if name not in DTYPE_BYTES:
        raise UnsupportedOp("element type", got=spelled, wanted=f"one of {', '.join(DTYPE_BYTES)}")
    return name
