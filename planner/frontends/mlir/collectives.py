"""Handlers of collectives and queries, and of the other operations that only functions of SPMD programs have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from planner.errors import InvalidGraph, InvalidProgram, ShardplanError, UnsupportedOp
from planner.frontends.mlir.annotation_checks import ShardingChecker
from planner.frontends.mlir.attributes import Symbol
from planner.frontends.mlir.call_syntax import KEYS, canonical_name
from planner.frontends.mlir.device_groups import (
    SLICES,
    is_grouped,
    is_index_arithmetic,
    translate_arithmetic,
    translate_grouped,
    translate_slice,
)
from planner.frontends.mlir.generic_module import SENTINEL
from planner.frontends.mlir.module import Module
from planner.frontends.mlir.op_handlers import translate_statement
from planner.frontends.mlir.op_names import find_common_op
from planner.frontends.mlir.operations import CALLS, SHARDS, Operation
from planner.frontends.mlir.program_translation import NUMBERS, ProgramTranslation, value_name
from planner.frontends.mlir.rfc_collectives import is_rfc_collective, translate_rfc_collective
from planner.frontends.mlir.sharding_syntax import ShardingSyntax
from planner.frontends.mlir.translation import ScalarValue
from planner.frontends.mlir.types import MlirType
from planner.ir.dynamic_dims import DYNAMIC_DIM
from planner.ir.graph import Op, TensorType
from planner.ir.loop_partition import LoopPartition, LoopPartitions
from planner.ops import bind_op
from planner.spmd import INDEX, SPMD_OPS, LocalType
from planner.spmd.device_groups import query_values
from planner.spmd.folding import linear_index
from planner.spmd.op_def import DYNAMIC
from planner.spmd.op_table import MESH_SHAPE_OPS

SHARDPLAN_PREFIX = ("block", "only", "reducer")
"""Attributes of calls that the dialect does not have; the text spells them shardplan.block, ..."""
_PLACES = {"scope": "", "phase": "forward"}


def translate_operation(t: ProgramTranslation, operation: Operation, module: Module) -> None:
    """Translate one operation. Raises ShardplanError with the place."""
    try:
        op = canonical_name(operation.name)
        if op is not None:
            (translate_rfc_collective if is_rfc_collective(op, operation.attrs) else _translate_call)(t, op, operation)
        elif is_grouped(operation.name):
            translate_grouped(t, operation)
        elif is_index_arithmetic(t, operation):
            translate_arithmetic(t, operation)
        elif find_common_op(operation.name) in HANDLERS:
            HANDLERS[find_common_op(operation.name)](t, operation)
        else:
            callee = module.functions.get(operation.attrs["callee"].name) if operation.name in CALLS else None
            if callee is not None and "shardplan.split" in callee.attrs:
                _translate_part(t, operation, callee.attrs)
            else:
                translate_statement(t, operation, module)
    except ShardplanError as error:
        raise t.located(error, operation.at) from None


def _translate_part(t: ProgramTranslation, operation: Operation, attrs: Mapping[str, Any]) -> None:
    """Translate a call of which every device runs a part; our printer wrote its option and the global shapes."""
    kinds = [_local_type(t, kind, operation) for kind in (*operation.operand_types, *operation.result_types)]
    split, whole = attrs["shardplan.split"], attrs.get("shardplan.whole")
    given, notation = attrs.get("shardplan.attrs", {}), attrs.get("shardplan.rule")
    cuts = _read_cuts(attrs.get("shardplan.cuts", {}))
    valid = isinstance(split, dict) and all(map(_is_list, split.values())) and isinstance(given, dict)
    if not valid or not isinstance(whole, list) or len(whole) != len(kinds) or not all(map(_is_list, whole)):
        what, wanted = "attributes shardplan.split and shardplan.whole", "mesh axes per loop, and shapes"
        raise InvalidGraph(what, got=[split, whole, given], wanted=wanted)
    for operand, kind in zip(operation.operands, operation.operand_types, strict=False):
        t.check_type(operand, kind, operation.at)
    types = tuple(TensorType(tuple(shape), kind.dtype) for shape, kind in zip(whole, kinds, strict=True))
    count, op = len(operation.operands), str(attrs.get("shardplan.op"))
    rule = bind_op(op, types[:count], types[count:], attrs=given, notation=None if notation is None else str(notation))
    inputs = tuple(t.find_value(name, operation.at) for name in operation.operands)
    name = str(operation.attrs.get("shardplan.id", operation.results[0] if operation.results else op))
    scope, phase = (str(operation.attrs.get(f"shardplan.{key}", other)) for key, other in _PLACES.items())
    whole_op = Op(name, op, inputs, types[count:], rule, MappingProxyType(dict(given)), scope, phase, notation)
    t.under_option(operation, whole_op, split, cuts=cuts)
    for result, kind in zip(operation.results, operation.result_types, strict=False):
        t.check_type(result, kind, operation.at)


def _read_cuts(given: object) -> LoopPartitions:
    """Return halos or offsets by loop. Raises InvalidGraph."""
    cuts = []
    for loop, cut in given.items() if isinstance(given, dict) else ():
        halo, offsets = (cut.get("halo", [0, 0]), cut.get("offsets", [])) if isinstance(cut, dict) else ([], [])
        if not _is_list(halo) or not _is_list(offsets) or len(halo) != 2:
            raise InvalidGraph("attribute shardplan.cuts", got=cut, wanted="halo = [before, after], or offsets")
        cuts.append((str(loop), LoopPartition((halo[0], halo[1]), tuple(offsets))))
    return tuple(sorted(cuts))


def _is_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(size, int) for size in value)


def _translate_call(t: ProgramTranslation, op: str, operation: Operation) -> None:
    attrs = _read_attributes(operation.attrs)
    operands = _split_operands(attrs, op, operation.operands)
    mesh = attrs.pop("mesh", None)
    if op == "shard_shape":
        mesh = _read_shard_shape(t, attrs, operation)
    numbers = _resolve_numbers(t, attrs, op, at=operation.at)
    if op not in MESH_SHAPE_OPS:
        # An undeclared mesh stays in the attributes, so that the verifier reports it with the call.
        declared = mesh is None or (isinstance(mesh, str) and mesh in t.clusters)
        attrs |= t.mesh_attribute(t.mesh_name(mesh, operation.at)) if declared else {"mesh": str(mesh)}
    for name, given in zip(operands, operation.operand_types, strict=False):
        t.check_type(name, given, operation.at)
    types = [_local_type(t, kind, operation) for kind in operation.result_types]
    read = [t.find_value(name, operation.at) for name in (*operands, *numbers)]
    order = {key: place for place, key in enumerate(SPMD_OPS[op].attrs)}
    ordered = {key: attrs[key] for key in sorted(attrs, key=lambda key: order.get(key, len(order)))}
    _add_call(t, op, operation, read=read, types=types, attrs=ordered)


def _add_call(
    t: ProgramTranslation,
    op: str,
    operation: Operation,
    *,
    read: Sequence[str],
    types: Sequence[LocalType],
    attrs: Mapping[str, object],
) -> None:
    """Add a call and define its results under their names; results without a name get a fresh one."""
    names = operation.results or tuple(f"{op}.{len(t.steps)}.{place}" for place in range(len(types)))
    results = _result_ids(operation, names)
    t.call(op, read, results, types, attrs)
    known = query_values(op, dict(attrs), t.meshes[t.mesh_name(attrs.get("mesh"), operation.at)]) or [None] * len(types)
    for text, value, kind, places in zip(names, results, types, known, strict=True):
        t.define(text, value, kind, at=operation.at, places=places)


def _result_ids(operation: Operation, names: Sequence[str]) -> list[str]:
    """Return the ids of a call's results: those that our printer wrote, else the names in the text."""
    given = operation.attrs.get("shardplan.ids", [operation.attrs.get("shardplan.id")])
    if isinstance(given, list) and len(given) == len(names) and all(isinstance(each, str) for each in given):
        return list(given)
    return [value_name(name) for name in names]


def _local_type(t: ProgramTranslation, kind: MlirType, operation: Operation) -> LocalType:
    return INDEX if kind in NUMBERS else LocalType.of(t.tensor(kind, operation.at).type)


def _read_attributes(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes under the table's keys; attributes of other dialects are dropped."""
    attrs = {}
    for key, value in written.items():
        ours = key.removeprefix("shardplan.")
        key = ours if ours in SHARDPLAN_PREFIX else KEYS.get(key, key)
        if "." not in key and key != "operandSegmentSizes":
            attrs[key] = _to_plain(value)
    return attrs


def _to_plain(value: Any) -> Any:
    if isinstance(value, Symbol):
        return value.name
    return tuple(map(_to_plain, value)) if isinstance(value, list | tuple) else value


def _split_operands(attrs: dict[str, Any], op: str, operands: Sequence[str]) -> list[str]:
    """Return the tensor operands; put the names of the other operands into the attributes, in place.

    In the generic form, operands behind the tensors are dynamic numbers for the sentinels in the attributes. A single
    list of halo sizes stands for source and destination.
    """
    keys = [key for key in (*SPMD_OPS[op].dynamic_attrs, "halo_sizes") if isinstance(attrs.get(key), tuple)]
    count = len(operands) - sum(each == SENTINEL for key in keys for each in attrs[key])
    names = iter(operands[count:])
    for key in keys:
        attrs[key] = tuple(next(names, each) if each == SENTINEL else each for each in attrs[key])
    if "halo_sizes" in attrs:
        sizes = attrs.pop("halo_sizes")
        attrs |= {"source_halo_sizes": sizes, "destination_halo_sizes": attrs.get("destination_halo_sizes", sizes)}
    return list(operands[:count])


def _resolve_numbers(t: ProgramTranslation, attrs: dict[str, Any], op: str, *, at: int) -> list[str]:
    """Replace names of constants in the attributes by their numbers, in place.

    Return the names of numbers known at run time only, in the table's order.
    """
    dynamic: list[str] = []

    def number(each: Any) -> Any:
        if not isinstance(each, str):
            return each
        bound = t.lookup(each, at)
        if isinstance(bound, ScalarValue) and isinstance(bound.value, int):
            return bound.value
        dynamic.append(each)
        return DYNAMIC

    for key in SPMD_OPS[op].dynamic_attrs:
        if key in attrs:
            attrs[key] = tuple(map(number, attrs[key])) if isinstance(attrs[key], tuple) else number(attrs[key])
    return dynamic


def _read_shard_shape(t: ProgramTranslation, attrs: dict[str, Any], operation: Operation) -> str:
    """Replace the sharding of a shard_shape by its value and the device by its linear index; return the mesh."""
    spelled = t.bound.get(str(attrs.get("sharding")))
    if not isinstance(spelled, ShardingSyntax):
        got, wanted = f"%{attrs.get('sharding')}", "a value of the sharding type"
        raise t.scan.error("sharding", at=operation.at, got=got, wanted=wanted, error=InvalidGraph)
    mesh = t.mesh_name(spelled.mesh, spelled.at)
    shape = tuple(size if isinstance(size, int) else DYNAMIC_DIM for size in attrs.get("shape", ()))
    attrs["sharding"] = ShardingChecker(t.scan, t.meshes, mesh).checked(spelled, shape, t.number)
    if isinstance(device := attrs.get("device"), tuple):
        places = [t.number(each, operation.at) if isinstance(each, str) else each for each in device]
        attrs["device"] = linear_index(t.meshes[mesh], places)
    return mesh


def _translate_cast(t: ProgramTranslation, operation: Operation) -> None:
    """tensor.cast: states a shape that inference cannot derive."""
    name = t.only_operand(operation)
    for kind in operation.operand_types:
        t.check_type(name, kind, operation.at)
    types = [_local_type(t, kind, operation) for kind in operation.result_types]
    mesh = t.mesh_name(operation.attrs.get("shardplan.mesh"), operation.at)
    _add_call(t, "cast", operation, read=[t.find_value(name, operation.at)], types=types, attrs=t.mesh_attribute(mesh))


def _translate_index_cast(t: ProgramTranslation, operation: Operation) -> None:
    """arith.index_cast: the same number under another name."""
    t.give(operation, t.lookup(t.only_operand(operation), operation.at))


def _translate_return(t: ProgramTranslation, operation: Operation) -> None:
    got, wanted = len(operation.operands), len(t.function.result_types)
    if got != wanted:
        raise t.scan.error("number of results", at=operation.at, got=got, wanted=str(wanted), error=InvalidProgram)
    for name, kind in zip(operation.operands, t.function.result_types, strict=True):
        t.check_type(name, kind, operation.at)
        t.outputs.append(t.find_output(name, operation.at))


def _reject_annotation(t: ProgramTranslation, operation: Operation) -> None:
    what, wanted = "annotation between collectives", "local tensors only, or no collectives"
    raise t.scan.error(what, at=operation.at, got=operation.name, wanted=wanted, error=UnsupportedOp)


def _for_each(names: Iterable[str], step: Callable[[ProgramTranslation, Operation], None]) -> dict[str, Any]:
    return dict.fromkeys(names, step)


HANDLERS: Mapping[str, Callable[[ProgramTranslation, Operation], None]] = MappingProxyType(
    {
        "tensor.cast": _translate_cast,
        **_for_each(("arith.index_cast",), _translate_index_cast),
        **_for_each(SLICES, translate_slice),
        **_for_each(("return", "func.return"), _translate_return),
        **_for_each((*SHARDS, "mesh.annotate"), _reject_annotation),
    }
)
