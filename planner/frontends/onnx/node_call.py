"""One node of a model, as the rows of the table see it: operands and attributes in, nodes of the document out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from planner.frontends.document_value import DocumentValue
from planner.ir.graph import TensorType, value_id
from planner.ir.sharding import Shape

KnownArray = np.ndarray[Any, np.dtype[Any]]
Node = dict[str, Any]
Number = int | float

DTYPES: dict[int, str] = {
    TensorProto.DOUBLE: "f64",
    TensorProto.FLOAT: "f32",
    TensorProto.BFLOAT16: "bf16",
    TensorProto.FLOAT16: "f16",
    TensorProto.FLOAT8E4M3FN: "f8e4m3",
    TensorProto.FLOAT8E5M2: "f8e5m2",
    TensorProto.INT64: "i64",
    TensorProto.INT32: "i32",
    TensorProto.INT16: "i16",
    TensorProto.INT8: "i8",
    TensorProto.UINT8: "u8",
    TensorProto.BOOL: "bool",
}

LARGEST_FLOAT = {
    "f64": float(np.finfo(np.float64).max),
    "f32": float(np.finfo(np.float32).max),
    "bf16": (2 - 2**-7) * 2.0**127,
    "f16": 65504.0,
    "f8e4m3": 448.0,
    "f8e5m2": 57344.0,
}


class OnnxNotCovered(Exception):
    """A node with operands or attributes that the table has no words for; the text says which."""


@dataclass(frozen=True, slots=True)
class OnnxOperand:
    """What a node reads: its type, its elements where they are known, and the value of the document, on demand."""

    known: KnownArray | None
    described: Callable[[], TensorType]
    value: Callable[[], DocumentValue]

    @property
    def type(self) -> TensorType:
        return self.described()

    @property
    def number(self) -> Number | None:
        """The one element, where there is one and it is known."""
        return None if self.known is None or self.known.size != 1 else self.known.item()


@dataclass(frozen=True, slots=True)
class OnnxNodeCall:
    """A node. An operand or result that is left out is None.

    A row emits the last node under the call's own id, and those that lead to it as `id/0`, `id/1` and so on.
    """

    id: str
    scope: str
    version: int
    """Of the standard."""
    operands: tuple[OnnxOperand | None, ...]
    attributes: Mapping[str, Any]
    results: tuple[TensorType | None, ...]
    read: tuple[bool, ...]
    """Which of the results an output depends on."""
    nodes: list[Node]
    start: int
    """Where in `nodes` this call's own begin."""

    @property
    def result(self) -> TensorType:
        assert self.results[0] is not None, "the first result of an operator is never left out"
        return self.results[0]

    def demand(self, reason: str, holds: bool) -> None:
        """Raises NotCovered for `reason` unless it `holds`."""
        if not holds:
            raise OnnxNotCovered(reason)

    def demand_one_result(self) -> None:
        self.demand("more than the first result", not any(self.read[1:]))

    def given(self, place: int) -> OnnxOperand | None:
        return self.operands[place] if place < len(self.operands) else None

    def operand(self, place: int) -> OnnxOperand:
        operand = self.given(place)
        if operand is None:
            raise OnnxNotCovered(f"operand {place} left out")
        return operand

    def value(self, place: int = 0) -> DocumentValue:
        """The operand as a value of the document. Raises NotCovered where it is left out."""
        return self.operand(place).value()

    def shape(self, place: int = 0) -> Shape:
        return self.operand(place).type.shape

    def number(self, place: int) -> Number | None:
        operand = self.given(place)
        return None if operand is None else operand.number

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def dim(self, name: str = "axis", default: int = 0, rank: int | None = None) -> int:
        """An attribute as a dim of the first operand, counted from the left."""
        rank = len(self.shape()) if rank is None else rank
        dim = int(self.attribute(name, default))
        self.demand(f"{name} {dim} of a tensor of rank {rank}", -rank <= dim < max(1, rank))
        return dim % max(1, rank)

    def integers(self, place: int, name: str = "") -> list[int] | None:
        """Whole numbers that an operand holds, in older versions an attribute; None where neither is given."""
        operand = self.given(place)
        if operand is None:
            listed = self.attribute(name)
            return None if listed is None else [int(n) for n in (listed if isinstance(listed, Sequence) else [listed])]
        self.demand(f"operand {place} that depends on data", operand.known is not None)
        assert operand.known is not None
        return [int(n) for n in operand.known.reshape(-1)]

    def emit(self, op: str, *inputs: DocumentValue, **attrs: Any) -> DocumentValue:
        """The call's last node, with its one result."""
        return self._node(self.id, op, inputs, attrs=attrs, types=[self.result])[0]

    def emit_all(self, op: str, *inputs: DocumentValue, **attrs: Any) -> list[DocumentValue]:
        """The call's last node, with all its results."""
        return self._node(self.id, op, inputs, attrs=attrs, types=[kind for kind in self.results if kind is not None])

    def emit_by_rule(self, op: str, inputs: Iterable[DocumentValue], rule: str) -> list[DocumentValue]:
        """The call's node where no row of ours says it, with the rule by which it is planned."""
        made = self._node(self.id, op, inputs, attrs={}, types=[kind for kind in self.results if kind is not None])
        self.nodes[-1]["rule"] = rule
        return made

    def step(
        self,
        op: str,
        inputs: Sequence[DocumentValue],
        shape: Sequence[int] | None = None,
        dtype: str = "",
        **attrs: Any,
    ) -> DocumentValue:
        """A node on the way to the last; of the first operand's shape and dtype where nothing else is said."""
        kind = TensorType(inputs[0].shape if shape is None else tuple(shape), dtype or inputs[0].dtype)
        return self.step_all(op, inputs, [kind], **attrs)[0]

    def step_all(
        self, op: str, inputs: Iterable[DocumentValue], types: Sequence[TensorType], **attrs: Any
    ) -> list[DocumentValue]:
        """A node on the way to the last, with several results."""
        return self._node(f"{self.id}/{len(self.nodes) - self.start}", op, inputs, attrs=attrs, types=types)

    def cast(self, value: DocumentValue, dtype: str) -> DocumentValue:
        return value if value.dtype == dtype else self.step("cast", [value], dtype=dtype)

    def reshaped(self, value: DocumentValue, shape: Sequence[int]) -> DocumentValue:
        return value if value.shape == tuple(shape) else self.step("reshape", [value], shape)

    def in_result_shape(self, value: DocumentValue) -> DocumentValue:
        """`value` in the result's shape: the last step of a row that has taken others."""
        return value if value.shape == self.result.shape else self.emit("reshape", value)

    def full(self, number: Number, shape: Sequence[int], dtype: str) -> DocumentValue:
        return self.step("full", [], shape, dtype, value=clamp_infinity(number, dtype))

    def _node(
        self,
        name: str,
        op: str,
        inputs: Iterable[DocumentValue],
        *,
        attrs: Mapping[str, Any],
        types: Sequence[TensorType],
    ) -> list[DocumentValue]:
        """Raises NotCovered for a number that JSON cannot say, such as NaN."""
        for key, number in attrs.items():
            fits = not isinstance(number, float) or math.isfinite(number)
            self.demand(f"{key} {number}, wanted a finite number", fits)
        outputs = [{"shape": list(kind.shape), "dtype": kind.dtype} for kind in types]
        node = {"id": name, "op": op, "inputs": [value.id for value in inputs], "attrs": dict(attrs)}
        self.nodes.append(node | {"outputs": outputs, "scope": self.scope, "phase": "forward"})
        return [DocumentValue(value_id(name, k), kind) for k, kind in enumerate(types)]


OnnxRow = Callable[[OnnxNodeCall], DocumentValue | Sequence[DocumentValue]]


def clamp_infinity(number: Number, dtype: str) -> Number:
    """`number` as JSON can say it: infinities (of masks) become the dtype's largest numbers.

    NaN stays what it is, and no node takes it.
    """
    if isinstance(number, bool):
        return int(number)
    return number if abs(number) != math.inf else math.copysign(LARGEST_FLOAT[dtype], number)
