"""A graph document while it grows: inputs, nodes with their scope and phase, and symbols turned into values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner.errors import InvalidGraph, UnsupportedOp
from planner.frontends import unknown_ops
from planner.frontends.document_value import DocumentValue
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
from planner.ir.dtypes import is_float, is_integer
from planner.ir.graph import TensorType, value_id
from planner.ir.sharding import Shape
from planner.ops import OPS

Node = dict[str, Any]

MAX_NODES = 1 << 20
MAX_CONCAT_OPERANDS = 64
"""Of one concat: rules of more operands grow too long."""
LARGEST = {"f64": float(np.finfo(np.float64).max), "f16": 65504.0, "f8e4m3": 448.0, "f8e5m2": 57344.0}
_LARGEST_WIDE = {"f32": float(np.finfo(np.float32).max), "bf16": 3.3895313892515355e38}


@dataclass(slots=True)
class StablehloWriter:
    """`scope` and `phase` are those of the nodes written next; `constants` the numbers of inputs of that kind."""

    inputs: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Numbers] = field(default_factory=dict)
    scope: str = ""
    phase: str = "forward"
    _count: Counter[str] = field(default_factory=Counter)
    _makers: dict[str, Node] = field(default_factory=dict)
    _values: dict[str, DocumentValue] = field(default_factory=dict)
    _written: dict[int, tuple[Symbol, DocumentValue]] = field(default_factory=dict)

    def input(self, name: str, kind: str, type_: TensorType, shown: str = "") -> DocumentValue:
        entry = {"id": name, "kind": kind, "name": shown or name}
        self.inputs.append(entry | {"shape": list(type_.shape), "dtype": type_.dtype})
        self._values[name] = DocumentValue(name, type_)
        return self._values[name]

    def node(
        self,
        op: str,
        operands: Sequence[DocumentValue],
        types: Sequence[TensorType],
        attrs: Mapping[str, Any],
        rule: str = "",
    ) -> list[DocumentValue]:
        """The results of an op. Where it has no row, it is planned by `rule`; without one, whole on every device."""
        if len(self.nodes) >= MAX_NODES:
            raise InvalidGraph("too many nodes", where=self.scope, wanted=f"at most {MAX_NODES}")
        name = self._name(op)
        node: Node = {
            "id": name,
            "op": op,
            "inputs": [value.id for value in operands],
            "attrs": {key: _to_json_number(value, key) for key, value in attrs.items()},
            "outputs": [{"shape": list(kind.shape), "dtype": kind.dtype} for kind in types],
            "scope": self.scope,
            "phase": self._phase(operands),
        }
        if op not in OPS:
            shapes = [value.shape for value in operands], [kind.shape for kind in types]
            node["rule"] = rule or unknown_ops.replicated_rule(*shapes)
        self.nodes.append(node)
        results = [DocumentValue(value_id(name, k), kind) for k, kind in enumerate(types)]
        self._makers.update({result.id: node for result in results})
        self._values.update({result.id: result for result in results})
        return results

    def _phase(self, operands: Sequence[DocumentValue]) -> str:
        """What reads a gradient outside of the backward pass belongs to the update."""
        late = any(node["phase"] != "forward" for node in map(self.find_node, operands) if node)
        return "update" if self.phase == "" and late else self.phase or "forward"

    def _name(self, op: str) -> str:
        number = self._count[op]
        self._count[op] += 1
        return f"{op}_{number}" if number else op

    def find_node(self, value: DocumentValue) -> Node | None:
        """The node that made a value; None for an input."""
        return self._makers.get(value.id)

    def emit_op(
        self, op: str, operands: Sequence[DocumentValue], shape: Shape, *, dtype: str, **attrs: Any
    ) -> DocumentValue:
        """The one result of an op that has a row."""
        return self.node(op, operands, [TensorType(tuple(shape), dtype)], attrs)[0]

    def reshaped(self, value: DocumentValue, shape: Shape) -> DocumentValue:
        """Past dims of size 1 that were only added on the way."""
        before = self._makers.get(value.id)
        if before and before["op"] == "reshape":
            source = self.find_value(before["inputs"][0])
            if drop_ones(source.shape) == drop_ones(shape):
                value = source
        return value if value.shape == tuple(shape) else self.emit_op("reshape", [value], shape, dtype=value.dtype)

    def find_value(self, name: str) -> DocumentValue:
        """A value by its id."""
        return self._values[name]

    def core(self, symbol: Symbol) -> DocumentValue:
        """A value that broadcasts to the symbol's shape."""
        if isinstance(symbol, TensorSymbol):
            return symbol.core
        if isinstance(symbol, KnownNumbers) and symbol.splat:
            return self.emit_op(
                "full", [], (), dtype=symbol.type.dtype, value=clamp_infinity(symbol.number, symbol.type.dtype)
            )
        return self.whole(symbol) if isinstance(symbol, RowStack) else self._numbers(symbol)

    def whole(self, symbol: Symbol) -> DocumentValue:
        """A value of the symbol's shape."""
        shape = symbol.type.shape
        if isinstance(symbol, RowStack):
            return self._once(symbol)
        if isinstance(symbol, KnownNumbers) and symbol.splat:
            return self.emit_op(
                "full", [], shape, dtype=symbol.type.dtype, value=clamp_infinity(symbol.number, symbol.type.dtype)
            )
        core = self.core(symbol)
        if pad_rank(core.shape, len(shape)) == shape:
            return self.reshaped(core, shape)
        return self.emit_op("expand", [core], shape, dtype=symbol.type.dtype)

    def _numbers(self, literal: KnownNumbers) -> DocumentValue:
        """As numbers that rise evenly, or as an input of kind constant."""
        spaced, shape = find_spacing(literal.core), drop_leading_ones(literal.core.shape)
        if spaced is None:
            return self._once(literal)
        attrs = {"start": spaced[0], "step": spaced[1]} | ({"dim": 0} if len(shape) > 1 else {})
        return self.emit_op("arange", [], shape, dtype=literal.type.dtype, **attrs)

    def _once(self, symbol: KnownNumbers | RowStack) -> DocumentValue:
        """Constants and stacks are written when they are first read."""
        if id(symbol) not in self._written:
            value = self._constant(symbol) if isinstance(symbol, KnownNumbers) else self._concatenated(symbol)
            self._written[id(symbol)] = symbol, value  # kept, so that no other symbol takes its id
        return self._written[id(symbol)][1]

    def _constant(self, literal: KnownNumbers) -> DocumentValue:
        value = self.constant(TensorType(literal.core.shape, literal.type.dtype))
        self.constants[value.id] = literal.core
        return value

    def constant(self, kind: TensorType) -> DocumentValue:
        """An input for numbers that the document does not hold."""
        return self.input(self._name("constant"), "constant", kind)

    def _concatenated(self, stack: RowStack) -> DocumentValue:
        """The rows beside each other, and what was never written from below."""
        pieces, at = [], 0
        for index in sorted(stack.rows):
            pieces += [self.part(stack.below, 0, at, index)] if index > at else []
            pieces.append(self.whole(stack.rows[index]))
            at = index + 1
        length = stack.type.shape[0]
        pieces += [self.part(stack.below, 0, at, length)] if at < length else []
        return self.concatenate(pieces, 0)

    def part(self, symbol: KnownNumbers | TensorSymbol, dim: int, start: int, stop: int) -> DocumentValue:
        """Elements start..stop of a dim."""
        shape = symbol.type.shape
        cut = TensorType((*shape[:dim], stop - start, *shape[dim + 1 :]), symbol.type.dtype)
        if isinstance(symbol, KnownNumbers) and symbol.splat:
            return self.whole(KnownNumbers(symbol.core, cut))
        whole = self.whole(symbol)
        if cut.shape == shape:
            return whole
        return self.emit_op("slice", [whole], cut.shape, dtype=cut.dtype, dim=dim, start=start, stop=stop)

    def concatenate(self, pieces: list[DocumentValue], dim: int) -> DocumentValue:
        """The pieces one after the other along a dim."""
        while len(pieces) > 1:
            groups = [pieces[at : at + MAX_CONCAT_OPERANDS] for at in range(0, len(pieces), MAX_CONCAT_OPERANDS)]
            pieces = [group[0] if len(group) == 1 else self._concat(group, dim) for group in groups]
        return pieces[0]

    def _concat(self, pieces: list[DocumentValue], dim: int) -> DocumentValue:
        shape, length = pieces[0].shape, sum(piece.shape[dim] for piece in pieces)
        return self.emit_op("concat", pieces, (*shape[:dim], length, *shape[dim + 1 :]), dtype=pieces[0].dtype, dim=dim)


def clamp_infinity(number: float, dtype: str) -> float:
    """A number as JSON can say it: infinities (of masks) become the dtype's largest numbers. Raises UnsupportedOp."""
    if isinstance(number, bool):
        return int(number)
    if isinstance(number, int) or math.isfinite(number):
        return number if is_float(dtype) else int(number)
    if math.isnan(number) or not is_float(dtype):
        raise UnsupportedOp("a number that no document can say", got=str(number), wanted="a finite number or infinity")
    return math.copysign(_largest(dtype), number)


def _largest(dtype: str) -> float:
    return LARGEST.get(dtype) or _LARGEST_WIDE[dtype]


def _to_json_number(value: Any, key: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise UnsupportedOp("a number that no document can say", where=key, got=str(value), wanted="a finite number")
    return int(value) if key in ("scalar", "value") and isinstance(value, bool) else value


def numpy_dtype(dtype: str) -> Any:
    """The dtype in which numbers of the text are worked out: of narrow floats, f32."""
    if is_float(dtype):
        return np.dtype("float64" if dtype == "f64" else "float32")
    if not is_integer(dtype):
        return np.dtype("bool")
    return np.dtype(("uint" if dtype[0] == "u" else "int") + dtype[1:])
