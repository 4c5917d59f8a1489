"""Verification of calls: every condition of the dialect's verifiers, and a few that they leave out.

Upstream accepts a negative root, a shift beyond the axis and a generic reduction without a function. These are
refused here. Upstream refuses a dim that is not divisible; here its blocks follow the block rule and the result is `?`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import InvalidProgram
from planner.ir.dtypes import is_integer
from planner.ir.mesh import Mesh
from planner.spmd.attributes import reducible
from planner.spmd.instruction import SpmdCall
from planner.spmd.op_def import DEFAULTS, DYNAMIC, CallSignature, ElementRule, ShapeRule, SpmdOpDef
from planner.spmd.op_table import MESH_SHAPE_OPS, SPMD_OPS
from planner.spmd.types import LocalType, are_compatible, format_dim


def op_def_of(call: SpmdCall) -> SpmdOpDef:
    if call.op not in SPMD_OPS:
        raise InvalidProgram("unknown op", where=call.where, got=call.op, wanted=f"one of {', '.join(SPMD_OPS)}")
    return SPMD_OPS[call.op]


def mesh_of(call: SpmdCall, meshes: Mapping[str, Any], default: str | None) -> str:
    """Return the name of the mesh that a call is on. Raises InvalidProgram for an undefined mesh, or none."""
    if call.op in MESH_SHAPE_OPS:
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


def check_call(
    call: SpmdCall, operands: Sequence[LocalType], meshes: Mapping[str, Mesh], *, default: str | None
) -> CallSignature:
    """Return the signature of a call whose attributes and operands are checked. Raises InvalidProgram."""
    row, mesh = op_def_of(call), meshes[mesh_of(call, meshes, default)]
    given = {key: value for key, value in call.attrs.items() if key != "mesh"}
    attrs = {key: DEFAULTS[key] for key in row.attrs if key in DEFAULTS} | given
    signature = CallSignature(call.where, mesh, meshes, tuple(operands), attrs)
    if unknown := sorted(set(attrs) - set(row.attrs)):
        signature.refuse("unknown attribute", unknown[0], _names(row))
    if missing := [key for key in row.attrs if key not in attrs]:
        signature.refuse("missing attribute", "none", missing[0])
    _check_operands(row, signature)
    for key, check in row.attrs.items():
        check(signature, key, attrs[key])
    return signature


def _names(row: SpmdOpDef) -> str:
    """List the attributes of a row for an error message.

    Pure collectives have no attribute `only`.
    """
    return f"one of {', '.join(row.attrs) or 'none'}" + ("; every device reaches it" if row.is_pure else "")


def count_dynamic_numbers(row: SpmdOpDef, attrs: Mapping[str, Any]) -> int:
    """Count the numbers of the attributes that are operands."""
    count = 0
    for key in row.dynamic_attrs:
        value = attrs[key]
        if isinstance(value, (tuple, list)):
            count += sum(each is DYNAMIC for each in value)
        elif value is DYNAMIC and key not in DEFAULTS:
            count += 1
    return count


def _check_operands(row: SpmdOpDef, s: CallSignature) -> None:
    scalars = count_dynamic_numbers(row, s.attrs)
    tensors = len(s.operands) - scalars
    least, most = row.tensors
    if not least <= tensors <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        s.refuse("number of operands", len(s.operands), f"{wanted} and {scalars} for dynamic numbers")
    for operand in s.operands[:tensors]:
        if not operand.shape and not row.allows_scalars:
            s.refuse("operand has no dims", str(operand), "a tensor of rank 1 or more")
    for operand in s.operands[tensors:]:
        if operand.shape or not is_integer(operand.dtype):
            s.refuse("dynamic number", str(operand), "an integer or index without dims")


def infer_results(call: SpmdCall, s: CallSignature) -> tuple[LocalType, ...]:
    """Return the result types that follow from the operands; the element type of a reduction is the declared one."""
    row = op_def_of(call)
    types = row.infer(s)
    # A reduction may accumulate in a wider type than its operand's: the declared one.
    if row.element is ElementRule.ACCUMULATOR:
        types = tuple(
            LocalType(kind.shape, given.dtype) for kind, given in zip(types, call.types or types, strict=False)
        )
        for kind in types:
            reducible(s, s.attrs["reduction"], kind.dtype)
    return types


def check_results(call: SpmdCall, s: CallSignature, wanted: Sequence[LocalType]) -> None:
    """Compare the declared result types with the inferred ones. Raises InvalidProgram where they do not match."""
    row = op_def_of(call)
    if len(call.results) != len(wanted) or len(call.types) != len(wanted):
        s.refuse("number of results", len(call.results), len(wanted))
    for got, expected in zip(call.types, wanted, strict=True):
        if got.rank != expected.rank:
            s.refuse("rank of the result", str(got), str(expected))
        for dim, (size, right) in enumerate(zip(got.shape, expected.shape, strict=True)):
            if not _matches(row.shapes, size, right):
                s.refuse(f"dim {dim} of the result", format_dim(size), "? (dynamic)" if right is None else right)
        if got.dtype != expected.dtype:
            s.refuse("element type of the result", got.dtype, expected.dtype)


def _matches(shapes: ShapeRule, declared: int | None, expected: int | None) -> bool:
    match shapes:
        case ShapeRule.EXACT:
            return declared == expected
        case ShapeRule.COMPATIBLE:
            return are_compatible(declared, expected)
        case ShapeRule.COVERS:
            return declared is None or declared == expected
