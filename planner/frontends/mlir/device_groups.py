"""The form of programs after partition: collectives over device groups, and slices at an index of the device.

"mhlo.all_gather"(%a) {all_gather_dim = 1, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (T) -> U
"mhlo.all_reduce"(%a) ({...}) {replica_groups = ...}
"mhlo.reduce_scatter"(%a) ({...}) {scatter_dimension = 0, replica_groups = ...}
"mhlo.all_to_all"(%a) {split_dimension = 0, concat_dimension = 1, split_count = 2, replica_groups = ...}
"mhlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}
"mhlo.dynamic_slice"(%a, %i) {slice_sizes = dense<4> : tensor<1xi64>}    tensor.extract_slice %a[%i] [4] [1] : T to U

Each becomes a call over mesh axes: device groups must be those of some axes of the mesh, and a slice must begin at the
block of the device's place in such a group. What an index is on every device follows from the queries and the
arithmetic that lead to it. Without a declared mesh, the devices of the groups are one axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidGraph, UnsupportedOp
from planner.frontends.mlir.attributes import DenseAttribute
from planner.frontends.mlir.op_names import ELEMENTWISE, REDUCTIONS, find_common_op
from planner.frontends.mlir.operations import Operation
from planner.frontends.mlir.program_translation import ProgramTranslation
from planner.frontends.mlir.translation import ScalarValue
from planner.frontends.mlir.types import MlirTensorType
from planner.ir.mesh import Mesh
from planner.spmd import Cluster, LocalType
from planner.spmd.device_groups import Indices, find_group_axes, find_index_axes

BITWISE = {"mhlo.and": "bitwise_and", "mhlo.or": "bitwise_or", "mhlo.xor": "bitwise_xor"}
DIMS: Mapping[str, Mapping[str, str]] = {
    "all_gather": {"all_gather_dim": "gather_axis"},
    "all_reduce": {},
    "reduce_scatter": {"scatter_dimension": "scatter_axis"},
    "all_to_all": {"split_dimension": "split_axis", "concat_dimension": "concat_axis"},
}
"""Collectives over device groups, with HLO's names of their dims and ours."""
PERMUTE, SLICES = "mhlo.collective_permute", ("mhlo.dynamic_slice", "tensor.extract_slice")
ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "arith.addi": np.add,
        "arith.subi": np.subtract,
        "arith.muli": np.multiply,
        "arith.divui": np.floor_divide,
        "arith.remui": np.remainder,
    }
)


def is_grouped(name: str) -> bool:
    """Return whether an operation is a collective over device groups."""
    common = find_common_op(name)
    return common == PERMUTE or common.removeprefix("mhlo.") in DIMS


def is_index_arithmetic(t: ProgramTranslation, operation: Operation) -> bool:
    """Return whether an operation computes an index from others."""
    return operation.name in ARITHMETIC and all(isinstance(t.bound.get(n), ScalarValue) for n in operation.operands)


def infer_clusters(operations: Iterable[Operation]) -> dict[str, Cluster]:
    """Return a mesh of one axis with the devices of the first groups, for a text that declares none."""
    for operation in operations:
        groups = operation.attrs.get("replica_groups")
        if is_grouped(operation.name) and isinstance(groups, DenseAttribute):
            devices = len(groups.value) if isinstance(groups.value, tuple) else 1
            return {"mesh": Cluster.parse(str(devices))}
    return {}


def translate_arithmetic(t: ProgramTranslation, operation: Operation) -> None:
    """Compute an index on every device."""
    if len(operation.operands) != 2:
        raise t.scan.error("number of operands", at=operation.at, got=len(operation.operands), wanted="2")
    one, other = (_values(t, name, operation) for name in operation.operands)
    if operation.name in ("arith.divui", "arith.remui") and not np.all(other):
        raise t.scan.error("division by zero", at=operation.at, got=operation.name, wanted="other than 0")
    result = ARITHMETIC[operation.name](one, other)
    t.give(operation, ScalarValue(int(result)) if np.ndim(result) == 0 else ScalarValue(None, places=result))


def _values(t: ProgramTranslation, name: str, operation: Operation) -> Indices | int:
    """Return an index: a constant, or a number per device."""
    bound = t.lookup(name, operation.at)
    if isinstance(bound, ScalarValue) and isinstance(bound.value, int):
        return bound.value
    if isinstance(bound, ScalarValue) and bound.places is not None:
        t.folded.add(bound.name)
        return bound.places
    what, wanted = "index known at run time only", "constants, mesh.idx and queries of the mesh"
    raise t.scan.error(what, at=operation.at, got=f"%{name}", wanted=wanted, error=UnsupportedOp)


def translate_grouped(t: ProgramTranslation, operation: Operation) -> None:
    """Translate a collective over device groups. Raises UnsupportedOp for groups that no mesh axes have."""
    op = find_common_op(operation.name)
    mesh = t.mesh_name(None, operation.at)
    (kind,) = t.tensors(operation)
    if op == PERMUTE:
        pairs = _read_table(t, operation, "source_target_pairs").tolist()
        axes = list(range(len(t.meshes[mesh].axes)))
        _call(t, operation, "collective_permute", kind, {"mesh_axes": axes, "pairs": pairs})
        return
    op = op.removeprefix("mhlo.")
    attrs: dict[str, object] = {"mesh_axes": _read_axes(t, operation, t.meshes[mesh])}
    for theirs, ours in DIMS[op].items():
        attrs[ours] = operation.attrs.get(theirs)
    if operation.body and (reduction := _read_reduction(t, operation)) != "sum":
        attrs["reduction"] = reduction
    _call(t, operation, op, kind, attrs)


def _read_table(t: ProgramTranslation, operation: Operation, key: str) -> NDArray[np.int64]:
    """Return a matrix of device numbers."""
    given = operation.attrs.get(key)
    shape = (
        given.type.type.shape if isinstance(given, DenseAttribute) and isinstance(given.type, MlirTensorType) else ()
    )
    if not isinstance(given, DenseAttribute) or given.value is None or len(shape) != 2:
        raise t.scan.error(f"attribute {key}", at=operation.at, got=given, wanted="dense<[[...], ...]>")
    flat = given.value if isinstance(given.value, tuple) else [given.value] * int(np.prod(shape))
    if len(flat) != np.prod(shape):
        raise t.scan.error(f"attribute {key}", at=operation.at, got=len(flat), wanted=f"{np.prod(shape)} numbers")
    return np.array(flat, np.int64).reshape(shape)


def _read_axes(t: ProgramTranslation, operation: Operation, mesh: Mesh) -> list[int]:
    groups = _read_table(t, operation, "replica_groups")
    if (axes := find_group_axes(mesh, groups)) is None:
        wanted = f"groups over axes of a declared mesh (now {mesh.notation})"
        raise t.scan.error("replica_groups", at=operation.at, got=groups.tolist(), wanted=wanted, error=UnsupportedOp)
    return list(axes)


def _read_reduction(t: ProgramTranslation, operation: Operation) -> str:
    """Return the reduction that the body of a collective computes."""
    steps = [find_common_op(step.name) for step in operation.body]
    kind = BITWISE.get(steps[0]) or REDUCTIONS.get(ELEMENTWISE.get(steps[0], ""))
    if kind is None or steps[1:] != ["mhlo.return"]:
        wanted = "one operation (add, multiply, maximum, minimum, and, or, xor) and a return"
        raise t.scan.error("reduction", at=operation.at, got=steps, wanted=wanted, error=UnsupportedOp)
    return kind


def translate_slice(t: ProgramTranslation, operation: Operation) -> None:
    """Translate a slice that begins at the block of the device: an all_slice of every dim that is cut."""
    (kind,) = t.tensors(operation)
    starts, sizes = _read_slice(t, operation)
    name = operation.operands[0]
    whole, mesh = t.find_tensor(name, operation.at).shape, t.meshes[t.mesh_name(None, operation.at)]
    cut = [dim for dim, size in enumerate(whole) if size != sizes[dim] or np.any(starts[dim])]
    for dim in cut:
        axes = _find_block_axes(mesh, starts[dim], sizes[dim], whole=whole[dim])
        if axes is None:
            got = f"dim {dim} of {whole[dim]} at {np.asarray(starts[dim]).tolist()}, {sizes[dim]} long"
            wanted = "the block of the device's place over some mesh axes"
            raise t.scan.error("slice", at=operation.at, got=got, wanted=wanted, error=UnsupportedOp)
        target = MlirTensorType(t.types[t.find_tensor(name, operation.at).value])
        shape = (*target.type.shape[:dim], sizes[dim], *target.type.shape[dim + 1 :])
        step = kind if dim == cut[-1] else MlirTensorType(LocalType(shape, kind.type.dtype).tensor)
        attrs = {"mesh_axes": list(axes), "slice_axis": dim}
        name = _call(t, operation, "all_slice", step, attrs, operand=name, last=dim == cut[-1])
    if not cut:
        t.give(operation, t.find_tensor(name, operation.at))


def _read_slice(t: ProgramTranslation, operation: Operation) -> tuple[list[Indices | int], list[int]]:
    """Return where a slice begins in every dim, and its sizes."""
    rank = len(t.find_tensor(operation.operands[0], operation.at).shape)
    if operation.name == "tensor.extract_slice":
        lists = [operation.attrs[key] for key in ("offsets", "sizes", "strides")]
        starts = [each if isinstance(each, int) else _values(t, each, operation) for each in lists[0]]
        sizes, strides = ([t.number(e, operation.at) if isinstance(e, str) else e for e in each] for each in lists[1:])
    else:
        given = operation.attrs.get("slice_sizes")
        value = given.value if isinstance(given, DenseAttribute) else given
        sizes = list(value) if isinstance(value, tuple | list) else [value] * rank
        starts, strides = [_values(t, each, operation) for each in operation.operands[1:]], [1] * rank
    good = len(starts) == len(sizes) == len(strides) == rank and all(isinstance(size, int) for size in sizes)
    if not good or set(strides) - {1}:
        got = f"{len(starts)} starts, sizes {sizes}, strides {strides}"
        raise t.scan.error("slice", at=operation.at, got=got, wanted=f"{rank} of each, strides 1", error=InvalidGraph)
    return starts, sizes


def _find_block_axes(mesh: Mesh, start: Indices | int, size: int, *, whole: int) -> Sequence[int] | None:
    starts = np.broadcast_to(start, mesh.devices)
    if size < 1 or np.any(starts % size):
        return None
    axes = find_index_axes(mesh, starts // size)
    return axes if axes and whole == size * mesh.group_size(axes) else None


def _call(
    t: ProgramTranslation,
    operation: Operation,
    op: str,
    kind: MlirTensorType,
    attrs: dict[str, object],
    operand: str | None = None,
    *,
    last: bool = True,
) -> str:
    """Add a call; return the name of its result."""
    names = operation.operands[:1] if operand else operation.operands
    if len(names) != 1:
        raise t.scan.error("number of operands", at=operation.at, got=len(names), wanted="1", error=UnsupportedOp)
    value = t.find_value(operand or names[0], operation.at)
    result = operation.results[0] if operation.results else f"{op}.{len(t.steps)}"
    result = result if last else f"{result}.{len(t.steps)}"
    local = LocalType.of(kind.type)
    t.call(op, [value], [result], [local], {**t.mesh_attribute(t.mesh_name(None, operation.at)), **attrs})
    t.define(result, result, local, at=operation.at)
    return result
