"""Whether a call fits its row: every condition of the dialect's verifiers, and what they leave unsaid.

Upstream accepts a negative root, a shift beyond the axis and a generic reduction without a function; these are
refused here. It refuses a dim that is not divisible; here its blocks follow the block rule and the result is `?`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import InvalidProgram
from planner.model.dtypes import is_integer
from planner.model.mesh import Mesh
from planner.model.spmd.attributes import reducible
from planner.model.spmd.instruction import Call
from planner.model.spmd.row import DEFAULTS, DYNAMIC, Element, Row, Shapes, Signature
from planner.model.spmd.table import OF_THE_FUNCTION, TABLE
from planner.model.spmd.types import LocalType, compatible, shown


def row_of(call: Call) -> Row:
    if call.op not in TABLE:
        raise InvalidProgram("unknown op", where=call.where, got=call.op, wanted=f"one of {', '.join(TABLE)}")
    return TABLE[call.op]


def mesh_of(call: Call, meshes: Mapping[str, Any], default: str | None) -> str:
    """Name of the mesh a call is on. Raises InvalidProgram for an undefined one, or none."""
    if call.op in OF_THE_FUNCTION:
        if default is None:
            raise InvalidProgram("the function has no mesh of its own", where=call.where, wanted="a default mesh")
        if "mesh" in call.attrs:
            raise InvalidProgram("unknown attribute", where=call.where, got="mesh", wanted="the function's mesh")
    name = call.attrs.get("mesh", default)
    if name is None:
        raise InvalidProgram("no mesh", where=call.where, wanted="attribute mesh, or a default mesh")
    if name not in meshes:
        raise InvalidProgram("undefined mesh", where=call.where, got=name, wanted=f"one of {', '.join(meshes)}")
    return str(name)


def signature(call: Call, operands: Sequence[LocalType], meshes: Mapping[str, Mesh], default: str | None) -> Signature:
    """The call as its row reads it, attributes and operands checked. Raises InvalidProgram."""
    row, mesh = row_of(call), meshes[mesh_of(call, meshes, default)]
    given = {key: value for key, value in call.attrs.items() if key != "mesh"}
    attrs = {key: DEFAULTS[key] for key in row.attrs if key in DEFAULTS} | given
    found = Signature(call.where, mesh, meshes, tuple(operands), attrs)
    if unknown := sorted(set(attrs) - set(row.attrs)):
        found.refuse("unknown attribute", unknown[0], _names(row))
    if missing := [key for key in row.attrs if key not in attrs]:
        found.refuse("missing attribute", "none", missing[0])
    _check_operands(row, found)
    for key, check in row.attrs.items():
        check(found, key, attrs[key])
    return found


def _names(row: Row) -> str:
    """What a call may say; one path alone cannot hold a pure collective."""
    return f"one of {', '.join(row.attrs) or 'none'}" + ("; every device reaches it" if row.pure else "")


def dynamic_numbers(row: Row, attrs: Mapping[str, Any]) -> int:
    """How many numbers of the attributes are operands."""
    found = 0
    for key in row.dynamic:
        value = attrs[key]
        if isinstance(value, (tuple, list)):
            found += sum(each is DYNAMIC for each in value)
        elif value is DYNAMIC and key not in DEFAULTS:
            found += 1
    return found


def _check_operands(row: Row, s: Signature) -> None:
    scalars = dynamic_numbers(row, s.attrs)
    tensors = len(s.operands) - scalars
    least, most = row.tensors
    if not least <= tensors <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        s.refuse("number of operands", len(s.operands), f"{wanted} and {scalars} for dynamic numbers")
    for operand in s.operands[:tensors]:
        if not operand.shape and not row.scalars:
            s.refuse("operand has no dims", str(operand), "a tensor of rank 1 or more")
    for operand in s.operands[tensors:]:
        if operand.shape or not is_integer(operand.dtype):
            s.refuse("dynamic number", str(operand), "an integer or index without dims")


def inferred(call: Call, s: Signature) -> tuple[LocalType, ...]:
    """Result types as the operands give them; the element type of a reduction is the declared one."""
    row = row_of(call)
    types = row.infer(s)
    if row.element is Element.ACCUMULATOR:
        types = tuple(
            LocalType(kind.shape, given.dtype) for kind, given in zip(types, call.types or types, strict=False)
        )
        for kind in types:
            reducible(s, s.attrs["reduction"], kind.dtype)
    return types


def check_results(call: Call, s: Signature, wanted: Sequence[LocalType]) -> None:
    """Declared result types against the inferred ones. Raises InvalidProgram."""
    row = row_of(call)
    if len(call.results) != len(wanted) or len(call.types) != len(wanted):
        s.refuse("number of results", len(call.results), len(wanted))
    for got, expected in zip(call.types, wanted, strict=True):
        if got.rank != expected.rank:
            s.refuse("rank of the result", str(got), str(expected))
        for dim, (size, right) in enumerate(zip(got.shape, expected.shape, strict=True)):
            if not _matches(row.shapes, size, right):
                s.refuse(f"dim {dim} of the result", shown(size), "? (dynamic)" if right is None else right)
        if got.dtype != expected.dtype:
            s.refuse("element type of the result", got.dtype, expected.dtype)


def _matches(shapes: Shapes, declared: int | None, expected: int | None) -> bool:
    match shapes:
        case Shapes.EXACT:
            return declared == expected
        case Shapes.COMPATIBLE:
            return compatible(declared, expected)
        case Shapes.COVERS:
            return declared is None or declared == expected
