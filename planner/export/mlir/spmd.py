"""An SPMD program as one function over the local tensors of a device; see `planner.export.mlir.calls`.

Attributes shardplan.* hold the mesh of a value or op where a reader would assume another, and the numbers of a mesh's
devices where they are not the first ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.export.mlir.calls import write_call
from planner.export.mlir.device_groups import write_grouped
from planner.export.mlir.dialect import (
    Dialect,
    SymbolRef,
    format_attributes,
    mesh_declaration,
    symbol_name,
    tensor_type,
)
from planner.export.mlir.module_writer import ModuleWriter
from planner.export.mlir.op_lowering import LoweringSite, mark_part, write_op
from planner.ir.program import Program
from planner.rewrite.lower_program import lower_program
from planner.spmd import Cluster, LocalOp, SpmdCall, SpmdProgram


def print_program(program: Program, dialect: Dialect = Dialect.MESH) -> str:
    """Return the module of a partitioned program, lowered to local tensors."""
    return print_spmd(lower_program(program), dialect, program.graph.name)


def print_mesh(program: Program) -> str:
    """Return the module for mlir-opt 19."""
    return print_program(program, Dialect.MESH)


def print_shard(program: Program) -> str:
    """Return the module for mlir-opt 22."""
    return print_program(program, Dialect.SHARD)


def print_spmd(program: SpmdProgram, dialect: Dialect = Dialect.MESH, function: str = "main") -> str:
    """Return the module.

    Raises InvalidSharding for a sharding that the dialect cannot express.
    """
    mesh = next(iter(program.meshes.values()))
    return _SpmdWriter(program, ModuleWriter(mesh, dialect, set(program.values)), write_call).text(function)


def print_with_device_groups(program: SpmdProgram, function: str = "main") -> str:
    """Return the module in the RFC's form after partition: HLO's collectives, slices at an index of the device.

    Raises InvalidRequest for a call that this form does not have.
    """
    mesh = next(iter(program.meshes.values()))
    # The function names its mesh, since mesh.idx does not.
    named = replace(program, default_mesh=program.default_mesh or next(iter(program.clusters)))
    page = ModuleWriter(mesh, Dialect.MESH, set(program.values))
    return _SpmdWriter(named, page, write_grouped).text(function)


@dataclass
class _SpmdWriter:
    program: SpmdProgram
    page: ModuleWriter
    write: Callable[[ModuleWriter, SpmdProgram, SpmdCall], None]

    def text(self, function: str) -> str:
        program, page = self.program, self.page
        for value, held in program.arguments:
            name, kept = page.name(value)
            page.arguments.append(f"{name}: {tensor_type(held.type)}{format_attributes(kept | self.mesh(held.mesh))}")
        for done in program.instructions:
            if isinstance(done, LocalOp):
                self.local(done)
            elif done.op == "cast":
                self.cast(done)
            elif done.op == "constant":
                page.write(f"{page.results(done.results)[0]} = arith.constant {done.attrs['value']} : index")
            else:
                self.write(page, program, done)
        kinds = [program.values[name].type for name in program.outputs]
        names = ", ".join(page.names[name] for name in program.outputs)
        page.write(f"return {names} : {', '.join(map(tensor_type, kinds))}" if names else "return")
        head = "\n".join(self.declared(name, cluster) for name, cluster in program.clusters.items())
        default = {"mesh_cluster": SymbolRef(symbol_name(program.default_mesh))} if program.default_mesh else {}
        return page.module(head, function, kinds, default)

    def declared(self, name: str, cluster: Cluster) -> str:
        plain = cluster.devices == tuple(range(len(cluster.devices)))
        return mesh_declaration(
            cluster.mesh, self.page.dialect, symbol_name(name), devices=() if plain else cluster.devices
        )

    def mesh(self, name: str | None) -> dict[str, object]:
        """Return the attribute of a mesh where a reader would assume another."""
        clusters = self.program.clusters
        assumed = self.program.default_mesh or (next(iter(clusters)) if len(clusters) == 1 else None)
        return {} if name in (None, assumed) else {"shardplan.mesh": name}

    def local(self, done: LocalOp) -> None:
        """Write an op on its local shapes; where it is a call, the call says over which mesh axes its loops are
        split.
        """
        page, values = self.page, self.program.values
        op = replace(done.op, id=done.results[0])
        read, made = ([values[name].type.tensor for name in side] for side in (done.operands, done.results))
        names = [page.names[name] for name in done.operands]
        write_op(LoweringSite(page, op, names, read, made), mark_part(op, done), self.mesh(done.mesh))
        page.names |= {name: page.names[value] for name, value in zip(done.results, op.values, strict=True)}

    def cast(self, call: SpmdCall) -> None:
        result, kept = self.page.results(call.results)
        kept |= self.mesh(self.program.mesh_name(call))
        (operand,) = call.operands
        kinds = f"{tensor_type(self.program.values[operand].type)} to {tensor_type(call.types[0])}"
        self.page.write(f"{result} = tensor.cast {self.page.names[operand]}{format_attributes(kept)} : {kinds}")
