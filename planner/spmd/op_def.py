"""Rows of the dialect's op table: attributes, operands, result types, purity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NoReturn

from planner.errors import InvalidProgram
from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes, Reduction
from planner.spmd.types import Dim, LocalType, group_size

DYNAMIC = None
"""Stands in an attribute for a number that is an operand: one scalar per device."""


@dataclass(frozen=True, slots=True)
class CallSignature:
    """One call as its row sees it: place, mesh, all meshes, operand types and attributes."""

    where: str
    mesh: Mesh
    meshes: Mapping[str, Mesh]
    operands: tuple[LocalType, ...]
    attrs: Mapping[str, Any]

    @property
    def input(self) -> LocalType:
        return self.operands[0]

    @property
    def axes(self) -> Axes:
        """The mesh axes of the device groups. Without any, every device is a group of its own."""
        return tuple(self.attrs["mesh_axes"])

    @property
    def group(self) -> Dim:
        """Devices in a group, None where a mesh axis is dynamic."""
        return group_size(self.mesh, self.axes)

    def refuse(self, rule: str, got: object, wanted: object) -> NoReturn:
        raise InvalidProgram(rule, where=self.where, got="none" if got is None else got, wanted=wanted)


AttributeCheck = Callable[[CallSignature, str, Any], None]


class ShapeRule(StrEnum):
    """How a declared result shape may differ from the inferred one."""

    COVERS = "covers"  # a dim may be declared `?` though it is known
    EXACT = "exact"
    COMPATIBLE = "compatible"  # a dim may be `?` on either side


class ElementRule(StrEnum):
    """What the element type of the result may be."""

    SAME = "same"  # the operand's
    ACCUMULATOR = "accumulator"  # any: the operand is converted to it before the reduction


DEFAULTS: Mapping[str, object] = MappingProxyType(
    {
        "mesh_axes": (),
        "reduction": Reduction.SUM,
        "reducer": None,
        "block": None,
        "only": None,
        "source": None,
        "rotate": False,
        "pairs": None,
        "target": None,
        "axes": (),
    }
)
"""The attributes that a call may leave out, with their values."""


@dataclass(frozen=True, slots=True)
class SpmdOpDef:
    """An op of the dialect.

    infer             returns the result types; raises InvalidProgram where the operands do not allow any
    attrs             name -> check, which raises InvalidProgram
    dynamic_attrs     attributes whose numbers may be DYNAMIC
    tensors           fewest and most tensor operands; scalars for the dynamic numbers follow them
    shapes, element   what a declared result type may be beside the inferred one
    is_pure           the call may be dropped, merged or moved where its results allow
    allows_scalars    the operand may be a tensor without dims
    may_be_identity   without mesh axes the result is the operand
    """

    name: str
    infer: Callable[[CallSignature], tuple[LocalType, ...]]
    attrs: Mapping[str, AttributeCheck] = field(default_factory=lambda: MappingProxyType({}))
    dynamic_attrs: tuple[str, ...] = ()
    tensors: tuple[int, int] = (1, 1)
    shapes: ShapeRule = ShapeRule.COVERS
    element: ElementRule = ElementRule.SAME
    is_pure: bool = True
    allows_scalars: bool = False
    may_be_identity: bool = True
