"""One ATen call, as the rows of the table see it: named arguments in, nodes of the document out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from planner.frontends.value import Value as DocumentValue
from planner.model.graph import TensorType, value_id

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}

Node = dict[str, Any]


class NotCovered(Exception):
    """A call with arguments that the table has no words for; the text says which."""


class Value(DocumentValue):
    """A tensor of the document."""

    __slots__ = ()

    def like(self) -> torch.Tensor:
        """A tensor of this type without storage."""
        return torch.empty(self.shape, dtype=DTYPES[self.dtype], device="meta")


@dataclass(frozen=True, slots=True)
class Statistics:
    """Mean or deviation that a norm saves for its gradient, which makes it anew."""

    eps: float


@dataclass(frozen=True, slots=True)
class Call:
    """An ATen call. `arguments` by the names of the overload's schema, with Values for tensors.

    A row emits the last node under the call's own id, and those that lead to it as `id/0`, `id/1` and so on.
    """

    id: str
    scope: str
    phase: str
    arguments: Mapping[str, Any]
    results: tuple[TensorType, ...]
    nodes: list[Node]
    start: int
    """Where in `nodes` this call's own begin."""

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]

    @property
    def result(self) -> TensorType:
        return self.results[0]

    def dim(self, argument: str) -> int:
        """A dim of `self`, counted from the left."""
        return int(self[argument]) % max(1, len(self["self"].shape))

    def demand(self, reason: str, holds: bool) -> None:
        """Raises NotCovered for `reason` unless it `holds`."""
        if not holds:
            raise NotCovered(reason)

    def emit(self, op: str, *inputs: Value, **attrs: Any) -> Value:
        """The call's last node, with its one result."""
        return self._node(self.id, op, inputs, attrs, self.results)[0]

    def emit_all(self, op: str, *inputs: Value, **attrs: Any) -> list[Value]:
        """The call's last node, with all its results."""
        return self._node(self.id, op, inputs, attrs, self.results)

    def emit_by_rule(self, op: str, inputs: Iterable[Value], attrs: Mapping[str, Any], rule: str) -> list[Value]:
        """The call's node where no row of ours says it, with the rule by which it is planned."""
        made = self._node(self.id, op, inputs, attrs, self.results)
        self.nodes[-1]["rule"] = rule
        return made

    def step(self, op: str, inputs: Iterable[Value], shape: Sequence[int], dtype: str, **attrs: Any) -> Value:
        """A node on the way to the last."""
        return self.step_all(op, inputs, [shape], dtype, **attrs)[0]

    def step_all(
        self, op: str, inputs: Iterable[Value], shapes: Iterable[Sequence[int]], dtype: str, **attrs: Any
    ) -> list[Value]:
        """A node on the way to the last, with a result of each shape."""
        types = [TensorType(tuple(shape), dtype) for shape in shapes]
        return self._node(f"{self.id}/{len(self.nodes) - self.start}", op, inputs, attrs, types)

    def cast(self, value: Value, dtype: str) -> Value:
        return value if value.dtype == dtype else self.step("cast", [value], value.shape, dtype)

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        return value if value.shape == tuple(shape) else self.step("reshape", [value], shape, value.dtype)

    def scalar(self, number: float, dtype: str) -> Value:
        """A 0-d tensor."""
        return self.step("full", [], (), dtype, value=finite(number, dtype))

    def _node(
        self,
        name: str,
        op: str,
        inputs: Iterable[Value],
        attrs: Mapping[str, Any],
        types: Sequence[TensorType],
    ) -> list[Value]:
        """Raises NotCovered for a number that JSON cannot say, such as NaN."""
        for attr, number in attrs.items():
            self.demand(
                f"{attr} {number}, wanted a finite number", not isinstance(number, float) or math.isfinite(number)
            )
        outputs = [{"shape": list(kind.shape), "dtype": kind.dtype} for kind in types]
        node = {"id": name, "op": op, "inputs": [value.id for value in inputs], "attrs": dict(attrs)}
        self.nodes.append(node | {"outputs": outputs, "scope": self.scope, "phase": self.phase})
        return [Value(value_id(name, k), kind) for k, kind in enumerate(types)]


Made = Value | Statistics | None
"""What a row makes of a result; None for one that nobody wants."""

Row = Callable[[Call], Made | Sequence[Made]]


def finite(number: float, dtype: str) -> float:
    """`number` as JSON can say it: infinities (of masks) become the dtype's largest numbers.

    NaN stays what it is, and no node takes it.
    """
    if isinstance(number, bool):
        return int(number)
    if number not in (float("inf"), float("-inf")):
        return number
    largest: float = torch.finfo(DTYPES[dtype]).max
    return largest if number > 0 else -largest


def promoted(*operands: Value | float) -> str:
    """The dtype in which torch would compare or combine these operands."""
    left, right = (operand.like() if isinstance(operand, Value) else operand for operand in operands)
    return dtype_name(torch.result_type(left, right))


def dtype_name(dtype: torch.dtype) -> str:
    """Our name of a torch dtype. Raises NotCovered when there is none."""
    for name, known in DTYPES.items():
        if known == dtype:
            return name
    raise NotCovered(f"dtype {dtype}")
