"""A partitioned program: one function over the shards of a device, its collectives written out.

Upstream's types are the same on every device, so every dim must divide by the devices it is split over.
"""

from __future__ import annotations

from planner.errors import InvalidSharding
from planner.export.mlir.dialect import MESH_SYMBOL, Dialect, declaration, tensor
from planner.export.mlir.forms import Site, part, write
from planner.export.mlir.page import Page
from planner.export.shards import shard_types
from planner.model.collectives import Kind
from planner.model.graph import TensorType
from planner.model.program import Move, Program, Run
from planner.model.sharding import Reduction


def print_program(program: Program, dialect: Dialect = Dialect.MESH) -> str:
    """The module. Raises InvalidSharding, naming the value, where a dim is split unevenly or has halos or offsets."""
    kinds = shard_types(program)
    page = Page(program.mesh, dialect, set(kinds))
    for name, _ in program.arguments:
        written, _ = page.name(name)
        page.arguments.append(f"{written}: {tensor(kinds[name])}")
    for done in program.instructions:
        if isinstance(done, Run):
            _run(program, page, done, kinds)
        else:
            _move(program, page, done, kinds)
    names = ", ".join(page.names[name] for name in program.outputs)
    results = [kinds[name] for name in program.outputs]
    page.write(f"return {names} : {', '.join(map(tensor, results))}")
    return page.module(declaration(program.mesh, dialect), program.graph.name, results, {})


def print_mesh(program: Program) -> str:
    """For mlir-opt 19."""
    return print_program(program, Dialect.MESH)


def print_shard(program: Program) -> str:
    """For mlir-opt 22."""
    return print_program(program, Dialect.SHARD)


def _run(program: Program, page: Page, run: Run, kinds: dict[str, TensorType]) -> None:
    """An op on shards; where it is a call, the call says over which mesh axes its loops are split."""
    names = [page.names[name] for name in run.operands]
    read, made = ([kinds[name] for name in side] for side in (run.operands, run.results))
    write(Site(page, run.op, names, read, made), part(run.op, run.option))


def _move(program: Program, page: Page, move: Move, kinds: dict[str, TensorType]) -> None:
    done = move.collective
    if done.kind is Kind.EXCHANGE:
        what, where = "no collective of the dialect leads from one sharding to the other", f"value {move.result!r}"
        raise InvalidSharding(what, where=where, got=str(done), wanted="blocks to blocks, nothing made partial")
    name, _ = page.name(move.result)
    axes = ", ".join(map(str, done.axes))
    reduction = program.values[move.operand].sharding.reduction
    kind = f" reduction = {page.dialect.reduction(reduction)}" if reduction is not Reduction.SUM else ""
    dims = {
        Kind.ALL_GATHER: f" gather_axis = {done.dim}",
        Kind.ALL_SLICE: f" slice_axis = {done.dim}",
        Kind.ALL_TO_ALL: f" split_axis = {done.dim} concat_axis = {done.source_dim}",
        Kind.ALL_REDUCE: kind,
        Kind.REDUCE_SCATTER: f"{kind} scatter_axis = {done.dim}",
    }[done.kind]
    page.write(
        f"{name} = {page.dialect}.{done.kind} {page.names[move.operand]} on {MESH_SYMBOL}"
        f" {page.dialect.axes} = [{axes}]{dims} : {tensor(kinds[move.operand])} -> {tensor(kinds[move.result])}"
    )
