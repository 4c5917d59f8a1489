"""The RFC's collectives: on sharded types, with mesh axes listed per tensor dim.

mesh.all_gather %a {mesh_axis = [[], [0]]} : T -> U           mesh.local_split %a {sharding = [[], [0]]} : T -> U
mesh.all_reduce %a {mesh_axis = [0], reduction = "sum"} : T -> U                     mesh.local_split %a : T -> U
mesh.reduce_scatter %a {mesh_axis = [0], reduction = "sum", tensor_axis = 1} : T -> U
mesh.collective_permute %a : T -> U         from the mesh of T to that of U

Each becomes a sequence of the dialect's collectives on local tensors (`planner.spmd.rfc_collectives`). Blocks are those
of the whole tensor, even or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import InvalidSharding
from planner.frontends.mlir.operations import Operation
from planner.frontends.mlir.program_translation import ProgramTranslation
from planner.frontends.mlir.types import MlirTensorType, MlirType
from planner.ir.basis_moves import is_exact
from planner.ir.collectives import COLLECTIVES, Collective, Kind
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from planner.spmd import LocalType, SpmdCall, local_shape, rfc_collectives
from planner.spmd.collectives import call_attributes

PERMUTE = "collective_permute"


def is_rfc_collective(op: str, attrs: Mapping[str, Any]) -> bool:
    given = {"sharding"} if op == Kind.ALL_SLICE and "slice_axis" not in attrs else {"mesh_axis"}
    return not given.isdisjoint(attrs) or (op in (Kind.ALL_SLICE, PERMUTE) and not attrs)


def translate_rfc_collective(t: ProgramTranslation, op: str, operation: Operation) -> None:
    """Translate one operation. Raises InvalidSharding if the axes or the result's type do not fit the operand."""
    if op == PERMUTE:
        _move_between_meshes(t, operation)
        return
    name = t.only_operand(operation)
    result_name = operation.results[0] if operation.results else f"{op}.{len(t.steps)}"
    t.tensors(operation)  # check that the operand has the stated type
    given, kind = (_only_operand(t, side, operation) for side in (operation.operand_types, operation.result_types))
    source, mesh = t.sharding(given, operation.at)
    wanted, _ = t.sharding(kind, operation.at)
    target, moves = _to_collectives(op, source, operation.attrs or {"sharding": _list_added_axes(source, wanted)})
    if target.complete(len(kind.type.shape), mesh) != wanted.complete(len(kind.type.shape), mesh):
        raise InvalidSharding("sharding of the result", got=str(wanted), wanted=str(target))
    encoding = given.encoding or kind.encoding
    on_mesh = t.mesh_attribute(t.mesh_name(encoding and encoding.mesh, operation.at))
    value, held = t.find_value(name, operation.at), source
    reduction = _read_reduction(operation.attrs.get("reduction", "sum"))
    for place, move in enumerate(moves):
        result = result_name if place == len(moves) - 1 else f"{result_name}.{place}"
        value, held = _add_move(
            t,
            move,
            held,
            whole=given.type,
            mesh=mesh,
            on_mesh=on_mesh,
            names=(value, result),
            reduction=reduction,
            at=operation.at,
        )
    if not moves:
        t.give(operation, t.lookup(name, operation.at))
    t.check_type(result_name, kind, operation.at)


def _list_added_axes(source: Sharding, target: Sharding) -> list[list[int]]:
    """Return the mesh axes that a local_split adds to every dim, where its types alone state them."""
    pairs = zip(source.split_axes, target.split_axes, strict=False)
    return [list(new[len(old) :]) if new[: len(old)] == old else list(new) for old, new in pairs]


def _add_move(
    t: ProgramTranslation,
    move: Collective,
    source: Sharding,
    *,
    whole: TensorType,
    mesh: Mesh,
    on_mesh: Mapping[str, object],
    names: tuple[str, str],
    reduction: Reduction,
    at: int,
) -> tuple[str, Sharding]:
    """Add the call of one collective, by the blocks of the whole tensor; return its result and the sharding then.

    Where blocks are uneven, a size that the call alone does not tell is stated by a cast. Raises InvalidSharding where
    the blocks of the two shardings do not nest, so that no such collective leads from one to the other.
    """
    (operand, result), target = names, move.target(source)
    if not whole.is_sized or not all(axis.size for axis in mesh.axes):
        before, after = (local_shape(whole.shape, each, mesh) for each in (source, target))
        if None in (*before, *after):
            raise InvalidSharding("shards of unknown sizes", got=f"{whole} as {source}", wanted="sizes")
    elif not is_exact(move, source, target, shape=whole.shape, mesh=mesh):
        what, wanted = "blocks that do not nest", "blocks that are unions of the smaller ones"
        raise InvalidSharding(what, got=f"{whole} from {source} to {target}", wanted=wanted)
    attrs = {**on_mesh, **call_attributes(move, source, whole.shape, mesh=mesh, reduction=reduction)}
    local = LocalType(local_shape(whole.shape, target, mesh), whole.dtype)
    _, (inferred,) = t.infer(SpmdCall(move.kind, (operand,), (result,), (), attrs))
    made = result if inferred == local else f"{result}.blocks"
    t.call(move.kind, [operand], [made], None, attrs)
    t.define(made, made, inferred, at=at)
    if made != result:
        t.call("cast", [made], [result], [local], on_mesh)
        t.define(result, result, local, at=at)
    return result, target


def _move_between_meshes(t: ProgramTranslation, operation: Operation) -> None:
    """collective_permute of a sharded tensor to another mesh: every device sends its shard to the one in its place."""
    name = t.only_operand(operation)
    t.tensors(operation)
    kinds = [_only_operand(t, side, operation) for side in (operation.operand_types, operation.result_types)]
    (source, here), (target, there) = (t.sharding(kind, operation.at) for kind in kinds)
    names = [t.mesh_name(kind.encoding and kind.encoding.mesh, operation.at) for kind in kinds]
    if operation.attrs or names[0] == names[1]:
        what, wanted = "collective_permute of a sharded tensor", "a result on another mesh, or mesh_axes and pairs"
        raise InvalidSharding(what, got=[*operation.attrs, *names], wanted=wanted)
    if source != target or [axis.size for axis in here.axes] != [axis.size for axis in there.axes]:
        what, wanted = "collective_permute between meshes", "the same sharding on a mesh of the same shape"
        raise InvalidSharding(what, got=f"{source} to {target}", wanted=wanted)
    result = operation.results[0] if operation.results else f"{PERMUTE}.{len(t.steps)}"
    attrs = {**t.mesh_attribute(names[0]), "target": names[1]}
    (local,) = t.call(PERMUTE, [t.find_value(name, operation.at)], [result], None, attrs)
    t.define(result, result, local, at=operation.at)
    t.check_type(result, kinds[1], operation.at)


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
