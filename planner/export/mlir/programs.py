"""A partitioned program as one function over the shards of a device, with explicit collectives.

Upstream's types are the same on every device, so every dim must divide by the devices it is split over. An exchange
that changes halos alone is an update_halo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.errors import InvalidSharding
from planner.export.mlir.dialect import MESH_SYMBOL, Dialect, format_axis_lists, mesh_declaration, tensor_type
from planner.export.mlir.module_writer import ModuleWriter
from planner.export.mlir.op_lowering import LoweringSite, mark_part, write_op
from planner.export.uniform_shards import uniform_shard_types
from planner.ir.graph import TensorType
from planner.ir.program import OpCall, Program, Reshard
from planner.ir.sharding import Reduction
from planner.ops.elementwise import OP_DEFS
from planner.spmd.collectives import dim_attributes

ELEMENTWISE = frozenset(row.name for row in OP_DEFS)


def print_program(program: Program, dialect: Dialect = Dialect.MESH) -> str:
    """Return the module.

    Raises InvalidSharding, naming the value, where a dim is split unevenly or has offsets.
    """
    kinds = uniform_shard_types(program)
    page = ModuleWriter(program.mesh, dialect, set(kinds))
    for name, _ in program.arguments:
        written, _ = page.name(name)
        page.arguments.append(f"{written}: {tensor_type(kinds[name])}")
    for done in program.instructions:
        if isinstance(done, OpCall):
            _write_run(program, page, done, kinds=kinds)
        else:
            _write_move(program, page, done, kinds=kinds)
    names = ", ".join(page.names[name] for name in program.outputs)
    results = [kinds[name] for name in program.outputs]
    page.write(f"return {names} : {', '.join(map(tensor_type, results))}")
    return page.module(mesh_declaration(program.mesh, dialect), program.graph.name, results, {})


def print_mesh(program: Program) -> str:
    """Return the module for mlir-opt 19."""
    return print_program(program, Dialect.MESH)


def print_shard(program: Program) -> str:
    """Return the module for mlir-opt 22."""
    return print_program(program, Dialect.SHARD)


def _write_run(program: Program, page: ModuleWriter, run: OpCall, *, kinds: dict[str, TensorType]) -> None:
    """Write an op on shards; where it is a call, the call says over which mesh axes its loops are split."""
    names = [page.names[name] for name in run.operands]
    operand_types, results = ([kinds[name] for name in side] for side in (run.operands, run.results))
    if run.loop_partitions and not _runs_on_halos(run, [*operand_types, *results]):
        what, wanted = "no text for an op that keeps halos", "an elementwise op"
        raise InvalidSharding(what, where=f"value {run.results[0]!r}", got=run.op.op, wanted=wanted)
    # On shards with halos, an elementwise op runs on all that a device holds.
    part = {} if run.loop_partitions else mark_part(run.op, run.option)
    write_op(LoweringSite(page, run.op, names, operand_types, results), part)


def _runs_on_halos(run: OpCall, kinds: Sequence[TensorType]) -> bool:
    return run.op.op in ELEMENTWISE and len({kind.shape for kind in kinds}) == 1


def _write_move(program: Program, page: ModuleWriter, move: Reshard, *, kinds: dict[str, TensorType]) -> None:
    done = move.collective
    if _is_halo_update(program, move):
        _write_halo_update(program, page, move, kinds=kinds)
        return
    if done.is_exchange:
        what, where = "no collective of the dialect leads from one sharding to the other", f"value {move.result!r}"
        raise InvalidSharding(what, where=where, got=str(done), wanted="blocks to blocks, or halos alone")
    name, _ = page.name(move.result)
    axes = ", ".join(map(str, done.axes))
    reduction = program.values[move.operand].sharding.reduction
    attrs = [f"{key} = {dim}" for key, dim in dim_attributes(done).items()]
    if done.definition.reduces and reduction is not Reduction.SUM:
        attrs.insert(0, f"reduction = {page.dialect.reduction(reduction)}")
    page.write(
        f"{name} = {page.dialect}.{done.kind} {page.names[move.operand]} on {MESH_SYMBOL}"
        f" {' '.join([f'{page.dialect.axes} = [{axes}]', *attrs])}"
        f" : {tensor_type(kinds[move.operand])} -> {tensor_type(kinds[move.result])}"
    )


def _is_halo_update(program: Program, move: Reshard) -> bool:
    """Return whether an exchange changes halos alone, none wider than the blocks of the neighbours that fill them."""
    source, target = (program.values[name].sharding for name in (move.operand, move.result))
    if not move.collective.is_exchange or replace(source, halo_sizes=()) != replace(target, halo_sizes=()):
        return False
    shape, mesh = program.values[move.result].type.shape, program.mesh
    cores = [shape[dim] // mesh.group_size(target.split_axes[dim]) for dim in target.split_dims]
    return all(
        max(target.halo_or_offsets(dim) or (0,)) <= core for dim, core in zip(target.split_dims, cores, strict=True)
    )


def _write_halo_update(program: Program, page: ModuleWriter, move: Reshard, *, kinds: dict[str, TensorType]) -> None:
    source, target = (program.values[name].sharding for name in (move.operand, move.result))
    none = (0, 0) * len(target.split_dims)
    name, _ = page.name(move.result)
    page.write(
        f"{name} = {page.dialect}.update_halo {page.names[move.operand]} on {MESH_SYMBOL}"
        f" split_axes = {format_axis_lists(target.split_axes)}"
        f" source_halo_sizes = {list(source.halo_sizes or none)}"
        f" destination_halo_sizes = {list(target.halo_sizes or none)}"
        f" : {tensor_type(kinds[move.operand])} -> {tensor_type(kinds[move.result])}"
    )
