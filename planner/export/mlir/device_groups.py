"""Calls in the form of the RFC after partition: HLO's collectives over device groups, slices at an index of the device.

An all_slice becomes index arithmetic and a dynamic_slice: the place of the device in its group (`mesh.idx` of every
axis, the last listed fastest) times the size of a block. HLO has no other collectives of the dialect, and no shards
whose sizes differ between devices; these are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from planner.errors import InvalidRequest
from planner.export.mlir.calls import QUERY_NAMES, write_call
from planner.export.mlir.dialect import element_type, format_attributes, tensor_type
from planner.export.mlir.module_writer import ModuleWriter
from planner.ir.collectives import Kind
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction
from planner.spmd import LocalType, SpmdCall, SpmdProgram
from planner.spmd.op_def import DEFAULTS

BODIES = {
    Reduction.SUM: "add",
    Reduction.PRODUCT: "multiply",
    Reduction.MAX: "maximum",
    Reduction.MIN: "minimum",
    Reduction.BITWISE_AND: "and",
    Reduction.BITWISE_OR: "or",
    Reduction.BITWISE_XOR: "xor",
}
DIMS: Mapping[str, Mapping[str, str]] = {
    Kind.ALL_GATHER: {"gather_axis": "all_gather_dim"},
    Kind.ALL_REDUCE: {},
    Kind.REDUCE_SCATTER: {"scatter_axis": "scatter_dimension"},
    Kind.ALL_TO_ALL: {"split_axis": "split_dimension", "concat_axis": "concat_dimension"},
}
"""HLO's names of the dims of a collective."""
PERMUTE = "collective_permute"


def write_grouped(page: ModuleWriter, program: SpmdProgram, call: SpmdCall) -> None:
    """Write a call; queries as the dialect does. Raises InvalidRequest for a call that this form does not have."""
    if call.op in QUERY_NAMES:
        write_call(page, program, call)
        return
    attrs: dict[str, Any] = {**{key: DEFAULTS.get(key) for key in ("reduction", "target", "pairs")}, **call.attrs}
    mesh, (operand,) = program.meshes[program.mesh_name(call)], call.operands[:1] or ("",)
    known = {*DIMS, Kind.ALL_SLICE, PERMUTE}
    if call.op not in known:
        _refuse(call, call.op, ", ".join(sorted(known)))
    kinds = [program.values[operand].type, *call.types]
    if any(None in kind.shape for kind in kinds) or attrs.get("block"):
        _refuse(call, " to ".join(map(str, kinds)), "shards of one size on all devices")
    if len(program.clusters) > 1 or attrs["target"]:
        _refuse(call, f"{len(program.clusters)} meshes", "one mesh")
    value, before = page.names[operand], kinds[0]
    if call.op == Kind.ALL_SLICE:
        _write_slice(page, call, value, mesh=mesh, before=before)
        return
    if call.op in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER) and before.dtype != call.types[0].dtype:
        value, before = _convert(page, value, before, dtype=call.types[0].dtype)
    entries = {name: f"{attrs[key]} : i64" for key, name in DIMS.get(call.op, {}).items()}
    axes = attrs.get("mesh_axes", ())
    if call.op == PERMUTE:
        groups = mesh.groups(axes)
        pairs = [[int(row[one]), int(row[other])] for row in groups for one, other in attrs["pairs"] or ()]
        entries["source_target_pairs"] = _table(sorted(pairs))
    else:
        entries["replica_groups"] = _table(mesh.groups(axes).tolist())
    if call.op == Kind.ALL_TO_ALL:
        entries["split_count"] = f"{mesh.group_size(axes)} : i64"
    body = _body(call, attrs["reduction"]) if call.op in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER) else ""
    result, kept = page.results(call.results)
    listed = ", ".join([*(f"{key} = {text}" for key, text in entries.items()), *filter(None, [_inner(kept)])])
    signature = f"({tensor_type(before)}) -> {tensor_type(call.types[0])}"
    page.write(f'{result} = "mhlo.{call.op}"({value}){body} {{{listed}}} : {signature}')


def _refuse(call: SpmdCall, got: str, wanted: str) -> NoReturn:
    raise InvalidRequest("no form with device groups", where=call.where, got=got, wanted=wanted)


def _inner(entries: dict[str, object]) -> str:
    return format_attributes(entries)[2:-1]


def _table(rows: Sequence[Sequence[int]]) -> str:
    width = len(rows[0]) if rows else 2
    return f"dense<{[list(row) for row in rows]}> : tensor<{len(rows)}x{width}xi64>"


def _body(call: SpmdCall, reduction: str) -> str:
    """Format the function that combines two elements."""
    word, kind = BODIES.get(Reduction(reduction)) if reduction in tuple(Reduction) else None, call.types[0].dtype
    if word is None:
        _refuse(call, reduction, ", ".join(BODIES))
    scalar = f"tensor<{element_type(kind)}>"
    return (
        f" ({{ ^bb0(%lhs: {scalar}, %rhs: {scalar}):"
        f' %both = mhlo.{word} %lhs, %rhs : {scalar} "mhlo.return"(%both) : ({scalar}) -> () }})'
    )


def _convert(page: ModuleWriter, value: str, before: LocalType, *, dtype: str) -> tuple[str, LocalType]:
    """Convert the terms to the type in which they are combined."""
    name, after = page.fresh("wide"), LocalType(before.shape, dtype)
    page.write(f"{name} = tosa.cast {value} : ({tensor_type(before)}) -> {tensor_type(after)}")
    return name, after


def _write_slice(page: ModuleWriter, call: SpmdCall, value: str, *, mesh: Mesh, before: LocalType) -> None:
    dim, size = int(str(call.attrs["slice_axis"])), call.types[0].shape
    axes: Any = call.attrs.get("mesh_axes", ())
    place = ""
    for axis in axes:
        index = page.fresh("idx")
        page.write(f"{index} = mesh.idx {{axis = {axis} : i64}} : index")
        place = _add(page, _multiply(page, place, mesh.shape[axis]), index) if place else index
    zero = ""
    if before.rank > 1 or not place:
        zero = page.fresh("zero")
        page.write(f"{zero} = arith.constant 0 : index")
    start = _multiply(page, place, size[dim] or 0) if place else zero
    starts = [start if each == dim else zero for each in range(before.rank)]
    result, kept = page.results(call.results)
    sizes = f"slice_sizes = dense<{list(size)}> : tensor<{len(size)}xi64>"
    entries = ", ".join([sizes, *filter(None, [_inner(kept)])])
    kinds = ", ".join([tensor_type(before), *["index"] * before.rank])
    listed = ", ".join([value, *starts])
    page.write(f'{result} = "mhlo.dynamic_slice"({listed}) {{{entries}}} : ({kinds}) -> {tensor_type(call.types[0])}')


def _multiply(page: ModuleWriter, index: str, by: int) -> str:
    factor, product = page.fresh("by"), page.fresh("start")
    page.write(f"{factor} = arith.constant {by} : index")
    page.write(f"{product} = arith.muli {index}, {factor} : index")
    return product


def _add(page: ModuleWriter, one: str, other: str) -> str:
    total = page.fresh("place")
    page.write(f"{total} = arith.addi {one}, {other} : index")
    return total
