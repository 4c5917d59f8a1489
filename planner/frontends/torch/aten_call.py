"""One ATen call, as the rows of the table see it: named arguments in, nodes of the document out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from planner.frontends.document_value import DocumentValue as DocumentValue
from planner.ir.graph import TensorType, value_id

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


class AtenNotCovered(Exception):
    """A call with arguments that the table has no words for; the text says which."""


class AtenValue(DocumentValue):
    """A tensor of the document."""

    __slots__ = ()

    def like(self) -> torch.Tensor:
        """A tensor of this type without storage."""
        return torch.empty(self.shape, dtype=DTYPES[self.dtype], device="meta")


@dataclass(frozen=True, slots=True)
class NormStatistics:
    """Mean or deviation that a norm saves for its gradient, which makes it anew."""

    eps: float


@dataclass(frozen=True, slots=True)
class AtenCall:
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
            raise AtenNotCovered(reason)

    def emit(self, op: str, *inputs: AtenValue, **attrs: Any) -> AtenValue:
        """The call's last node, with its one result."""
        return self._node(self.id, op, inputs, attrs=attrs, types=self.results)[0]

    def emit_all(self, op: str, *inputs: AtenValue, **attrs: Any) -> list[AtenValue]:
        """The call's last node, with all its results."""
        return self._node(self.id, op, inputs, attrs=attrs, types=self.results)

    def emit_by_rule(
        self, op: str, inputs: Iterable[AtenValue], attrs: Mapping[str, Any], *, rule: str
    ) -> list[AtenValue]:
        """The call's node where no row of ours says it, with the rule by which it is planned."""
        made = self._node(self.id, op, inputs, attrs=attrs, types=self.results)
        self.nodes[-1]["rule"] = rule
        return made

    def step(self, op: str, inputs: Iterable[AtenValue], shape: Sequence[int], dtype: str, **attrs: Any) -> AtenValue:
        """A node on the way to the last."""
        return self.step_all(op, inputs, [shape], dtype=dtype, **attrs)[0]

    def step_all(
        self, op: str, inputs: Iterable[AtenValue], shapes: Iterable[Sequence[int]], *, dtype: str, **attrs: Any
    ) -> list[AtenValue]:
        """A node on the way to the last, with a result of each shape."""
        types = [TensorType(tuple(shape), dtype) for shape in shapes]
        return self._node(f"{self.id}/{len(self.nodes) - self.start}", op, inputs, attrs=attrs, types=types)

    def cast(self, value: AtenValue, dtype: str) -> AtenValue:
        return value if value.dtype == dtype else self.step("cast", [value], value.shape, dtype)

    def reshaped(self, value: AtenValue, shape: Sequence[int]) -> AtenValue:
        return value if value.shape == tuple(shape) else self.step("reshape", [value], shape, value.dtype)

    def scalar(self, number: float, dtype: str) -> AtenValue:
        """A 0-d tensor."""
        return self.step("full", [], (), dtype, value=clamp_infinity(number, dtype))

    def _node(
        self,
        name: str,
        op: str,
        inputs: Iterable[AtenValue],
        *,
        attrs: Mapping[str, Any],
        types: Sequence[TensorType],
    ) -> list[AtenValue]:
        """Raises NotCovered for a number that JSON cannot say, such as NaN."""
        for attr, number in attrs.items():
            self.demand(
                f"{attr} {number}, wanted a finite number", not isinstance(number, float) or math.isfinite(number)
            )
        outputs = [{"shape": list(kind.shape), "dtype": kind.dtype} for kind in types]
        node = {"id": name, "op": op, "inputs": [value.id for value in inputs], "attrs": dict(attrs)}
        self.nodes.append(node | {"outputs": outputs, "scope": self.scope, "phase": self.phase})
        return [AtenValue(value_id(name, k), kind) for k, kind in enumerate(types)]


RowResult = AtenValue | NormStatistics | None
"""What a row makes of a result; None for one that nobody wants."""

AtenRow = Callable[[AtenCall], RowResult | Sequence[RowResult]]


def clamp_infinity(number: float, dtype: str) -> float:
    """`number` as JSON can say it: infinities (of masks) become the dtype's largest numbers.

    NaN stays what it is, and no node takes it.
    """
    if isinstance(number, bool):
        return int(number)
    if number not in (float("inf"), float("-inf")):
        return number
    largest: float = torch.finfo(DTYPES[dtype]).max
    return largest if number > 0 else -largest


def promote_dtypes(*operands: AtenValue | float) -> str:
    """The dtype in which torch would compare or combine these operands."""
    left, right = (operand.like() if isinstance(operand, AtenValue) else operand for operand in operands)
    return dtype_name(torch.result_type(left, right))


def dtype_name(dtype: torch.dtype) -> str:
    """Our name of a torch dtype. Raises NotCovered when there is none."""
    for name, known in DTYPES.items():
        if known == dtype:
            return name
    raise AtenNotCovered(f"dtype {dtype}")
