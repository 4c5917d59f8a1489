"""A value of a graph document that is being written."""

from __future__ import annotations

from dataclasses import dataclass

from planner.ir.graph import TensorType
from planner.ir.sharding import Shape


@dataclass(frozen=True, slots=True)
class DocumentValue:
    """Its id, and what it is."""

    id: str
    type: TensorType

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype
