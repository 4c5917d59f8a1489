"""Shardy's shardings in the text -> annotations of the document, with axes by name.

An open dim (`?`), which Shardy may split further, makes the annotation a hint instead of a requirement. Priorities and
explicitly replicated axes are dropped: the planner weighs all hints alike, and an axis named nowhere replicates.
"""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from planner.errors import InvalidSharding, UnsupportedOp
from planner.frontends.stablehlo.symbol_builder import SymbolBuilder
from planner.frontends.stablehlo.symbolic_values import Symbol, TensorSymbol

RETURN = "return"


class StablehloAnnotations:
    """The annotations so far, as entries of the document."""

    def __init__(self, builder: SymbolBuilder) -> None:
        self.entries: list[dict[str, Any]] = []
        self._builder = builder
        self._defined: set[str] = set()

    def annotate_input(self, value: str, attribute: ir.Attribute) -> None:
        self._defined.add(value)
        self._add(value, attribute, None)

    def annotate_output(self, value: str, attribute: ir.Attribute) -> None:
        self._add(value, attribute, RETURN)

    def annotate_symbol(self, symbol: Symbol, attribute: ir.Attribute) -> Symbol:
        """Annotate the definition of a value and return it; a value that is annotated already is copied first."""
        value = self._builder.whole(symbol)
        if value.id in self._defined:
            value = self._builder.emit("identity", [value], value.shape, dtype=value.dtype)
        self._defined.add(value.id)
        self._add(value.id, attribute, None)
        return TensorSymbol.of(value)

    def _add(self, value: str, attribute: ir.Attribute, user: str | None) -> None:
        sharding = sdy.TensorShardingAttr(attribute)
        dims = [sdy.DimensionShardingAttr(each) for each in sharding.dimension_shardings]
        if not dims or all(not list(dim.axes) and not dim.is_closed for dim in dims):
            return  # open everywhere without axes: this constrains nothing
        split = [[_axis(axis) for axis in dim.axes] for dim in dims]
        document: dict[str, Any] = {"split_axes": split}
        if unreduced := [_axis(axis) for axis in sharding.unreduced_axes]:
            document["partial"] = {"reduction": "sum", "axes": unreduced}
        required = all(dim.is_closed for dim in dims)
        self.entries.append({"value": value, "sharding": document, "required": required, "user": user})


def _axis(attribute: ir.Attribute) -> str:
    axis = sdy.AxisRefAttr(attribute)
    if axis.sub_axis_info is not None:
        raise InvalidSharding(
            "part of a mesh axis", got=str(attribute), wanted="whole axes: give the mesh more of them"
        )
    return str(axis.name)


def reject_gspmd(attributes: Any, where: str) -> None:
    """Raise UnsupportedOp for GSPMD's shardings, which list devices and name no axes."""
    if "mhlo.sharding" in attributes:
        wanted = "Shardy's, which JAX writes by default (jax_use_shardy_partitioner)"
        raise UnsupportedOp("sharding without axis names", where=where, got="mhlo.sharding", wanted=wanted)
