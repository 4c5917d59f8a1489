"""One call of a framework's op, as the rows of a frontend's table see it: operands in, nodes of the document out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from planner.frontends.graph_builder import DocumentValue, GraphBuilder
from planner.frontends.uncovered_ops import NotCovered
from planner.ir.graph import TensorType


@dataclass(frozen=True, slots=True, eq=False)
class FrameworkCall:
    """A call with the types of its results.

    A row emits the last node under the call's own id, with the call's results, and takes the steps that lead to it
    under fresh ids. Where the id is empty, the last node gets a fresh one too.
    """

    id: str
    results: tuple[TensorType, ...]
    builder: GraphBuilder

    @property
    def result(self) -> TensorType:
        return self.results[0]

    def demand(self, reason: str, holds: bool) -> None:
        """Raise NotCovered for `reason` unless it `holds`."""
        if not holds:
            raise NotCovered(reason)

    def emit(self, op: str, *operands: DocumentValue, **attrs: Any) -> DocumentValue:
        """Emit the call's last node, with its first result."""
        return self.builder.emit_all(op, operands, [self.result], attrs=attrs, node=self.id)[0]

    def emit_all(self, op: str, *operands: DocumentValue, **attrs: Any) -> list[DocumentValue]:
        """Emit the call's last node, with all its results."""
        return self.builder.emit_all(op, operands, self.results, attrs=attrs, node=self.id)

    def step(
        self,
        op: str,
        operands: Sequence[DocumentValue],
        shape: Sequence[int] | None = None,
        *,
        dtype: str = "",
        **attrs: Any,
    ) -> DocumentValue:
        """Emit a node on the way to the last; it has the first operand's shape and dtype unless given."""
        return self.builder.emit(op, operands, shape, dtype=dtype, **attrs)

    def step_all(
        self, op: str, operands: Iterable[DocumentValue], types: Sequence[TensorType], **attrs: Any
    ) -> list[DocumentValue]:
        """Emit a node on the way to the last, with a result of each type."""
        return self.builder.emit_all(op, list(operands), types, attrs=attrs)

    def cut(self, value: DocumentValue, dim: int, *, start: int = 0, stop: int) -> DocumentValue:
        """Return the positions from `start` to before `stop` along a dim; all of them are the value itself."""
        if (start, stop) == (0, value.shape[dim]):
            return value
        shape = (*value.shape[:dim], stop - start, *value.shape[dim + 1 :])
        return self.step("slice", [value], shape, dim=dim, start=start, stop=stop)

    def cast(self, value: DocumentValue, dtype: str) -> DocumentValue:
        return self.builder.cast(value, dtype)

    def reshape(self, value: DocumentValue, shape: Sequence[int]) -> DocumentValue:
        return self.builder.reshape(value, shape)

    def reshape_to_result(self, value: DocumentValue) -> DocumentValue:
        """Return `value` in the result's shape, through the call's last node if it has another."""
        return value if value.shape == self.result.shape else self.emit("reshape", value)

    def full(self, number: float, shape: Sequence[int], dtype: str) -> DocumentValue:
        return self.builder.full(number, shape, dtype)
