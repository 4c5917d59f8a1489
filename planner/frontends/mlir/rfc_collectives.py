"""The RFC's collectives: on sharded types, with mesh axes listed per tensor dim.

mesh.all_gather %a {mesh_axis = [[], [0]]} : T -> U           mesh.local_split %a {sharding = [[], [0]]} : T -> U
mesh.all_reduce %a {mesh_axis = [0], reduction = "sum"} : T -> U
mesh.reduce_scatter %a {mesh_axis = [0], reduction = "sum", tensor_axis = 1} : T -> U

Each becomes a sequence of the dialect's collectives on local tensors (`planner.spmd.rfc_collectives`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import InvalidSharding
from planner.frontends.mlir.operations import Operation
from planner.frontends.mlir.program_translation import ProgramTranslation
from planner.frontends.mlir.types import MlirTensorType, MlirType
from planner.ir.collectives import COLLECTIVES, Collective, Kind
from planner.ir.sharding import Reduction, Sharding
from planner.spmd import local_shape, rfc_collectives
from planner.spmd.collectives import call_attributes


def is_rfc_collective(op: str, attrs: Mapping[str, Any]) -> bool:
    return "mesh_axis" in attrs or (op == "all_slice" and "sharding" in attrs)


def translate_rfc_collective(t: ProgramTranslation, op: str, operation: Operation) -> None:
    """Translate one operation. Raises InvalidSharding if the axes or the result's type do not fit the operand."""
    name = t.only_operand(operation)
    result_name = operation.results[0] if operation.results else f"{op}.{len(t.steps)}"
    t.tensors(operation)  # check that the operand has the stated type
    given, kind = (_only_operand(t, side, operation) for side in (operation.operand_types, operation.result_types))
    source, mesh = t.sharding(given, operation.at)
    wanted, _ = t.sharding(kind, operation.at)
    target, moves = _to_collectives(op, source, operation.attrs)
    if target.complete(len(kind.type.shape), mesh) != wanted.complete(len(kind.type.shape), mesh):
        raise InvalidSharding("sharding of the result", got=str(wanted), wanted=str(target))
    shape = local_shape(given.type.shape, source, mesh)
    if None in (*shape, *local_shape(kind.type.shape, wanted, mesh)):
        raise InvalidSharding("uneven shards", got=f"{given.type} as {source}", wanted="dims that divide evenly")
    value = t.find_value(name, operation.at)
    reduction = _read_reduction(operation.attrs.get("reduction", "sum"))
    for place, move in enumerate(moves):
        last = place == len(moves) - 1
        result = result_name if last else f"{result_name}.{place}"
        (result_type,) = t.call(move.kind, [value], [result], None, call_attributes(move, reduction))
        value = result
        t.define(value, value, result_type, at=operation.at)
    if not moves:
        t.give(operation, t.lookup(name, operation.at))
    t.check_type(result_name, kind, operation.at)


def _read_reduction(given: object) -> Reduction:
    if given not in tuple(Reduction):
        raise InvalidSharding("reduction kind", got=given, wanted=f"one of {', '.join(Reduction)}")
    return Reduction(str(given))


def _only_operand(t: ProgramTranslation, kinds: Sequence[MlirType], operation: Operation) -> MlirTensorType:
    for kind in kinds[:1]:
        if isinstance(kind, MlirTensorType):
            return kind
    raise t.scan.error("types", at=operation.at, got=operation.name, wanted="a tensor type, -> and a tensor type")


def _to_collectives(op: str, source: Sharding, attrs: Mapping[str, Any]) -> tuple[Sharding, list[Collective]]:
    """Return the sharding afterwards and the collectives. An all_slice's axes stand in `sharding`."""
    kind = Kind(op) if op in rfc_collectives.KINDS else None
    axes = attrs["sharding"] if kind is Kind.ALL_SLICE else attrs["mesh_axis"]
    per_dim = kind is not None and rfc_collectives.lists_axes_per_dim(kind)
    if not isinstance(axes, list) or not all(isinstance(each, list if per_dim else int) for each in axes):
        wanted = "a list of mesh axes" + (" per dim" if per_dim else "")
        raise InvalidSharding("mesh axes", got=axes, wanted=wanted)
    if kind is not None and per_dim:
        return rfc_collectives.apply_per_dim(kind, source, axes)
    tensor_axis = attrs.get("tensor_axis") if kind and COLLECTIVES[kind].appends else None
    if kind is None or (COLLECTIVES[kind].appends and not isinstance(tensor_axis, int)):
        raise InvalidSharding(
            "collective on sharded types",
            got=op,
            wanted="all_gather, local_split, all_reduce, or reduce_scatter with a tensor_axis",
        )
    return rfc_collectives.apply_reduction(kind, source, axes, tensor_axis=tensor_axis)
