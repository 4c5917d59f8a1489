"""What collectives and queries do to a program's translation, and what else only a program's function holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from planner.errors import InvalidGraph, InvalidProgram, ShardplanError, UnsupportedOp
from planner.frontends.mlir.attributes import Symbol
from planner.frontends.mlir.calls import KEYS, called
from planner.frontends.mlir.layouts import Layouts
from planner.frontends.mlir.module import Module
from planner.frontends.mlir.operations import CALLS, SHARDS, Operation
from planner.frontends.mlir.programs import NUMBERS, ProgramTranslation, value_name
from planner.frontends.mlir.rounds import is_round, translate_round
from planner.frontends.mlir.spelled import Spelled
from planner.frontends.mlir.statements import translate
from planner.frontends.mlir.translation import Scalar
from planner.frontends.mlir.types import Type
from planner.model.graph import Op, TensorType
from planner.model.ops import bind_op
from planner.model.spmd import INDEX, TABLE, LocalType
from planner.model.spmd.fold import linear_index
from planner.model.spmd.row import DYNAMIC
from planner.model.spmd.table import OF_THE_FUNCTION
from planner.model.unknown import UNKNOWN

OURS = ("block", "only", "reducer")
"""Attributes of calls that the dialect has no words for: written as shardplan.block, ..."""
SENTINEL = -(1 << 63)
"""A dynamic number among static ones, in the generic form."""


def translate_step(t: ProgramTranslation, operation: Operation, module: Module) -> None:
    """Carry out one operation. Raises ShardplanError with the place."""
    try:
        op = called(operation.name)
        if op is not None:
            (translate_round if is_round(op, operation.attrs) else _call)(t, op, operation)
        elif operation.name in STEPS:
            STEPS[operation.name](t, operation)
        else:
            callee = module.functions.get(operation.attrs["callee"].name) if operation.name in CALLS else None
            if callee is not None and "shardplan.split" in callee.attrs:
                _part(t, operation, callee.attrs)
            else:
                translate(t, operation, module)
    except ShardplanError as error:
        raise t.failed(error, operation.at) from None


def _part(t: ProgramTranslation, operation: Operation, attrs: Mapping[str, Any]) -> None:
    """A call of what every device runs a part of: its option and the shapes of the whole are the printer's."""
    kinds = [_type(t, kind, operation) for kind in (*operation.operand_types, *operation.result_types)]
    split, whole = attrs["shardplan.split"], attrs.get("shardplan.whole")
    given, notation = attrs.get("shardplan.attrs", {}), attrs.get("shardplan.rule")
    good = isinstance(split, dict) and all(map(_is_list, split.values())) and isinstance(given, dict)
    if not good or not isinstance(whole, list) or len(whole) != len(kinds) or not all(map(_is_list, whole)):
        what, wanted = "attributes shardplan.split and shardplan.whole", "mesh axes a loop, and shapes"
        raise InvalidGraph(what, got=[split, whole, given], wanted=wanted)
    for operand, kind in zip(operation.operands, operation.operand_types, strict=False):
        t.check_type(operand, kind, operation.at)
    types = tuple(TensorType(tuple(shape), kind.dtype) for shape, kind in zip(whole, kinds, strict=True))
    count, op = len(operation.operands), str(attrs.get("shardplan.op"))
    rule = bind_op(op, types[:count], types[count:], given, None if notation is None else str(notation))
    inputs = tuple(t.named(name, operation.at) for name in operation.operands)
    name = str(operation.attrs.get("shardplan.id", operation.results[0] if operation.results else op))
    made = Op(name, op, inputs, types[count:], rule, MappingProxyType(dict(given)), notation=notation)
    t.under_option(operation, made, split)
    for result, kind in zip(operation.results, operation.result_types, strict=False):
        t.check_type(result, kind, operation.at)


def _is_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(size, int) for size in value)


def _call(t: ProgramTranslation, op: str, operation: Operation) -> None:
    attrs = _attributes(operation.attrs)
    operands = _with_operands(attrs, op, operation.operands)
    mesh = attrs.pop("mesh", None)
    if op == "shard_shape":
        mesh = _shard_shape(t, attrs, operation)
    numbers = _numbers(t, attrs, op, operation.at)
    if op not in OF_THE_FUNCTION:
        known = mesh is None or (isinstance(mesh, str) and mesh in t.clusters)
        attrs |= t.stated(t.mesh_name(mesh, operation.at)) if known else {"mesh": str(mesh)}
    for name, given in zip(operands, operation.operand_types, strict=False):
        t.check_type(name, given, operation.at)
    types = [_type(t, kind, operation) for kind in operation.result_types]
    read = [t.named(name, operation.at) for name in (*operands, *numbers)]
    order = {key: place for place, key in enumerate(TABLE[op].attrs)}
    ordered = {key: attrs[key] for key in sorted(attrs, key=lambda key: order.get(key, len(order)))}
    _made(t, op, operation, read, types, ordered)


def _made(
    t: ProgramTranslation,
    op: str,
    operation: Operation,
    read: Sequence[str],
    types: Sequence[LocalType],
    attrs: Mapping[str, object],
) -> None:
    """The call, and its results under the names they have; those without get one that is free."""
    names = operation.results or tuple(f"{op}.{len(t.steps)}.{place}" for place in range(len(types)))
    made = _ids(operation, names)
    t.call(op, read, made, types, attrs)
    for text, value, kind in zip(names, made, types, strict=True):
        t.define(text, value, kind, operation.at)


def _ids(operation: Operation, names: Sequence[str]) -> list[str]:
    """The values that a call makes: as the printer wrote down, else as the text names them."""
    given = operation.attrs.get("shardplan.ids", [operation.attrs.get("shardplan.id")])
    if isinstance(given, list) and len(given) == len(names) and all(isinstance(each, str) for each in given):
        return list(given)
    return [value_name(name) for name in names]


def _type(t: ProgramTranslation, kind: Type, operation: Operation) -> LocalType:
    return INDEX if kind in NUMBERS else LocalType.of(t.tensor(kind, operation.at).type)


def _attributes(written: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes in the table's words; those of other dialects are left out."""
    found = {}
    for key, value in written.items():
        ours = key.removeprefix("shardplan.")
        key = ours if ours in OURS else KEYS.get(key, key)
        if "." not in key and key != "operandSegmentSizes":
            found[key] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Symbol):
        return value.name
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _with_operands(attrs: dict[str, Any], op: str, operands: Sequence[str]) -> list[str]:
    """The tensors; the generic form's other operands are named where its attributes have the sentinel. One list of
    halo sizes is that before and after."""
    keys = [key for key in (*TABLE[op].dynamic, "halo_sizes") if isinstance(attrs.get(key), tuple)]
    count = len(operands) - sum(each == SENTINEL for key in keys for each in attrs[key])
    names = iter(operands[count:])
    for key in keys:
        attrs[key] = tuple(next(names, each) if each == SENTINEL else each for each in attrs[key])
    if "halo_sizes" in attrs:
        sizes = attrs.pop("halo_sizes")
        attrs |= {"source_halo_sizes": sizes, "destination_halo_sizes": attrs.get("destination_halo_sizes", sizes)}
    return list(operands[:count])


def _numbers(t: ProgramTranslation, attrs: dict[str, Any], op: str, at: int) -> list[str]:
    """Constants become numbers of the attributes; the names of what is told at run time, in the table's order."""
    dynamic: list[str] = []

    def number(each: Any) -> Any:
        if not isinstance(each, str):
            return each
        found = t.known(each, at)
        if isinstance(found, Scalar) and isinstance(found.value, int):
            return found.value
        dynamic.append(each)
        return DYNAMIC

    for key in TABLE[op].dynamic:
        if key in attrs:
            attrs[key] = tuple(map(number, attrs[key])) if isinstance(attrs[key], tuple) else number(attrs[key])
    return dynamic


def _shard_shape(t: ProgramTranslation, attrs: dict[str, Any], operation: Operation) -> str:
    """Its sharding as a value, and the device by its linear index; the mesh is the sharding's."""
    spelled = t.bound.get(str(attrs.get("sharding")))
    if not isinstance(spelled, Spelled):
        got, wanted = f"%{attrs.get('sharding')}", "a value of the sharding type"
        raise t.scan.wrong("sharding", at=operation.at, got=got, wanted=wanted, error=InvalidGraph)
    mesh = t.mesh_name(spelled.mesh, spelled.at)
    shape = tuple(size if isinstance(size, int) else UNKNOWN for size in attrs.get("shape", ()))
    attrs["sharding"] = Layouts(t.scan, t.meshes, mesh).checked(spelled, shape, t.number)
    if isinstance(device := attrs.get("device"), tuple):
        places = [t.number(each, operation.at) if isinstance(each, str) else each for each in device]
        attrs["device"] = linear_index(t.meshes[mesh], places)
    return mesh


def _cast(t: ProgramTranslation, operation: Operation) -> None:
    """tensor.cast: a shape that the inference cannot know."""
    name = t.only(operation)
    for kind in operation.operand_types:
        t.check_type(name, kind, operation.at)
    types = [_type(t, kind, operation) for kind in operation.result_types]
    mesh = t.mesh_name(operation.attrs.get("shardplan.mesh"), operation.at)
    _made(t, "cast", operation, [t.named(name, operation.at)], types, t.stated(mesh))


def _alias(t: ProgramTranslation, operation: Operation) -> None:
    """arith.index_cast: the same number."""
    t.give(operation, t.known(t.only(operation), operation.at))


def _return(t: ProgramTranslation, operation: Operation) -> None:
    got, wanted = len(operation.operands), len(t.function.result_types)
    if got != wanted:
        raise t.scan.wrong("number of results", at=operation.at, got=got, wanted=str(wanted), error=InvalidProgram)
    for name, kind in zip(operation.operands, t.function.result_types, strict=True):
        t.check_type(name, kind, operation.at)
        t.outputs.append(t.named(name, operation.at))


def _annotation(t: ProgramTranslation, operation: Operation) -> None:
    what, wanted = "annotation between collectives", "local tensors only, or no collectives"
    raise t.scan.wrong(what, at=operation.at, got=operation.name, wanted=wanted, error=UnsupportedOp)


def _all(names: Iterable[str], step: Callable[[ProgramTranslation, Operation], None]) -> dict[str, Any]:
    return dict.fromkeys(names, step)


STEPS: Mapping[str, Callable[[ProgramTranslation, Operation], None]] = MappingProxyType(
    {
        "tensor.cast": _cast,
        **_all(("arith.index_cast",), _alias),
        **_all(("return", "func.return"), _return),
        **_all((*SHARDS, "mesh.annotate"), _annotation),
    }
)
