"""One node of a model, as the rows of the table see it: its operands by place, its attributes by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.frontends.framework_call import FrameworkCall
from planner.frontends.graph_builder import DocumentValue
from planner.frontends.uncovered_ops import NotCovered
from planner.ir.graph import TensorType
from planner.ir.sharding import Shape

KnownArray = np.ndarray[Any, np.dtype[Any]]
Number = int | float


@dataclass(frozen=True, slots=True)
class OnnxOperand:
    """An operand: its elements if known (else None), and on demand its type and its value of the document."""

    known: KnownArray | None
    described: Callable[[], TensorType]
    value: Callable[[], DocumentValue]

    @property
    def type(self) -> TensorType:
        return self.described()

    @property
    def number(self) -> Number | None:
        """The single element, if the operand has only one and it is known; else None."""
        return None if self.known is None or self.known.size != 1 else self.known.item()


@dataclass(frozen=True, slots=True, eq=False)
class OnnxNodeCall(FrameworkCall):
    """A node of a model; an operand that is left out is None, and `results` has no entry for a result left out."""

    version: int
    """The version of the standard."""
    operands: tuple[OnnxOperand | None, ...]
    attributes: Mapping[str, Any]
    read: tuple[bool, ...]
    """For each result, whether an output of the model depends on it."""
    leaves_result_out: bool = False

    def demand_one_result(self) -> None:
        self.demand("more than the first result", not any(self.read[1:]))

    def given(self, place: int) -> OnnxOperand | None:
        return self.operands[place] if place < len(self.operands) else None

    def operand(self, place: int) -> OnnxOperand:
        operand = self.given(place)
        if operand is None:
            raise NotCovered(f"operand {place} left out")
        return operand

    def value(self, place: int = 0) -> DocumentValue:
        """Return the operand as a value of the document. Raises NotCovered if it is left out."""
        return self.operand(place).value()

    def shape(self, place: int = 0) -> Shape:
        return self.operand(place).type.shape

    def number(self, place: int) -> Number | None:
        operand = self.given(place)
        return None if operand is None else operand.number

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def dim(self, name: str = "axis", default: int = 0, rank: int | None = None) -> int:
        """Return an attribute as a dim of the first operand (or of a tensor of `rank`), counted from the left."""
        rank = len(self.shape()) if rank is None else rank
        dim = int(self.attribute(name, default))
        self.demand(f"{name} {dim} of a tensor of rank {rank}", -rank <= dim < max(1, rank))
        return dim % max(1, rank)

    def integers(self, place: int, name: str = "") -> list[int] | None:
        """Return the integers in an operand or, in older versions, an attribute; None if neither is given."""
        operand = self.given(place)
        if operand is None:
            listed = self.attribute(name)
            return None if listed is None else [int(n) for n in (listed if isinstance(listed, Sequence) else [listed])]
        self.demand(f"operand {place} that depends on data", operand.known is not None)
        assert operand.known is not None
        return [int(n) for n in operand.known.reshape(-1)]


OnnxRow = Callable[[OnnxNodeCall], DocumentValue | Sequence[DocumentValue]]
