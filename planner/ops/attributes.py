"""Attributes of ops: an op row declares the name, the type and the default of each attribute that the op may have.

    DIM = Attribute("dim", types.DIM)               required
    EPS = Attribute("eps", types.NUMBER, 1e-5)      1e-5 where the op does not have it

`DIM.read(attrs, rank)` returns a checked, typed value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from planner.errors import InvalidGraph
from planner.ops import attribute_types as types
from planner.ops.attribute_types import AttributeType

T_co = TypeVar("T_co", covariant=True)


class _Default(Enum):
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Attribute(Generic[T_co]):
    """One attribute of an op row. It is required where no default is given."""

    name: str
    type: AttributeType[T_co]
    default: T_co | _Default = _Default.REQUIRED

    @property
    def is_required(self) -> bool:
        return isinstance(self.default, _Default)

    def read(self, attrs: Mapping[str, object], rank: int = 0) -> T_co:
        """Return the attribute's typed value. Raises InvalidGraph where it is missing or of another type."""
        if self.name not in attrs and not isinstance(self.default, _Default):
            return self.default
        value = attrs.get(self.name)
        typed = self.type.parse(value, rank)
        if typed is None:
            got, wanted = "none" if value is None else value, self.type.wanted.format(rank=rank)
            raise InvalidGraph(f"attribute {self.name!r}", got=got, wanted=wanted)
        return typed


DIM = Attribute("dim", types.DIM)
DIMS = Attribute("dims", types.DIMS)
KEEPDIM = Attribute("keepdim", types.FLAG, False)
