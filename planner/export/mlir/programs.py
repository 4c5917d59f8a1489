"""A partitioned program as one function over the shards of a device, with explicit collectives.

Upstream's types are the same on every device, so every dim must divide by the devices it is split over.
"""

from __future__ import annotations

from planner.errors import InvalidSharding
from planner.export.mlir.dialect import MESH_SYMBOL, Dialect, mesh_declaration, tensor_type
from planner.export.mlir.module_writer import ModuleWriter
from planner.export.mlir.op_lowering import LoweringSite, mark_part, write_op
from planner.export.uniform_shards import uniform_shard_types
from planner.ir.graph import TensorType
from planner.ir.program import OpCall, Program, Reshard
from planner.ir.sharding import Reduction
from planner.spmd.collectives import dim_attributes


def print_program(program: Program, dialect: Dialect = Dialect.MESH) -> str:
    """Return the module.

    Raises InvalidSharding, naming the value, where a dim is split unevenly or has halos or offsets.
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
    write_op(LoweringSite(page, run.op, names, operand_types, results), mark_part(run.op, run.option))


def _write_move(program: Program, page: ModuleWriter, move: Reshard, *, kinds: dict[str, TensorType]) -> None:
    done = move.collective
    if done.is_exchange:
        what, where = "no collective of the dialect leads from one sharding to the other", f"value {move.result!r}"
        raise InvalidSharding(what, where=where, got=str(done), wanted="blocks to blocks, nothing made partial")
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
