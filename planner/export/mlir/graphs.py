"""A graph with its annotations, as upstream reads it before sharding propagation.

The shardings of a definition follow it, those of a use stand before its user; a hint has `shardplan.required = false`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.export.mlir.dialect import (
    Dialect,
    format_attributes,
    mesh_declaration,
    sharding_attribute,
    sharding_value,
    tensor_type,
)
from planner.export.mlir.module_writer import ModuleWriter
from planner.export.mlir.op_lowering import LoweringSite, write_op
from planner.ir.graph import OUTPUTS, Annotation, Graph, Input
from planner.ir.mesh import Mesh


def print_graph(graph: Graph, mesh: Mesh, dialect: Dialect = Dialect.MESH, *, argument_starts: bool = False) -> str:
    """Return the module. Raises InvalidSharding, naming the value, for a sharding that the dialect cannot express.

    With `argument_starts` the tensors that linalg writes to are arguments, marked as such, instead of constants, which
    propagation in mlir-opt 19 refuses.
    """
    return _GraphWriter(graph, ModuleWriter(mesh, dialect, _value_names(graph), argument_starts)).text()


def _value_names(graph: Graph) -> set[str]:
    return {entry.id for entry in graph.inputs} | {value for op in graph.ops for value in op.values}


@dataclass
class _GraphWriter:
    graph: Graph
    page: ModuleWriter
    asked: dict[tuple[str, str | None], list[Annotation]] = field(default_factory=lambda: defaultdict(list))

    def text(self) -> str:
        graph, page = self.graph, self.page
        for annotation in graph.annotations:
            self.asked[annotation.value, annotation.user].append(annotation)
        for entry in graph.inputs:
            self._input(entry)
        for op in graph.ops:
            operands = [self._read(value, op.id, operand) for operand, value in enumerate(op.inputs)]
            read = [graph.types[value] for value in op.inputs]
            write_op(LoweringSite(page, op, operands, read, op.results), {})
            for value in op.values:
                self._define(value)
        names = [self._read(value, OUTPUTS, number) for number, value in enumerate(graph.outputs)]
        kinds = [graph.types[value] for value in graph.outputs]
        page.write(f"return {', '.join(names)} : {', '.join(map(tensor_type, kinds))}")
        more = {"shardplan.producer": dict(graph.producer)} if graph.producer else {}
        return page.module(mesh_declaration(page.mesh, page.dialect), graph.name, kinds, more)

    def _input(self, entry: Input) -> None:
        name, kept = self.page.name(entry.id)
        kept |= {"shardplan.kind": entry.kind} if entry.kind != "input" else {}
        kept |= {"shardplan.name": entry.name} if entry.name != entry.id else {}
        self.page.arguments.append(f"{name}: {tensor_type(entry.type)}{format_attributes(kept)}")
        self._define(entry.id)

    def _define(self, value: str) -> None:
        self.page.names[value] = self._annotated(self.asked[value, None], self.page.names[value])

    def _read(self, value: str, user: str, operand: int) -> str:
        asked = [one for one in self.asked[value, user] if one.operand in (None, operand)]
        return self._annotated(asked, self.page.names[value])

    def _annotated(self, asked: Sequence[Annotation], name: str) -> str:
        """Write the shardings of a value, and return its name afterwards."""
        for one in asked:
            result = self.page.fresh(f"{one.value}.sharded")
            if self.page.dialect is Dialect.MESH:
                layout = sharding_attribute(one.sharding, one.where)
            else:
                layout = self.page.fresh("sharding")
                self.page.write(f"{layout} = {sharding_value(one.sharding, one.where)}")
            users = " annotate_for_users" if one.user is not None else ""
            hint = "" if one.required else format_attributes({"shardplan.required": False})
            kind = tensor_type(self.graph.types[one.value])
            self.page.write(f"{result} = {self.page.dialect}.shard {name} to {layout}{users}{hint} : {kind}")
            name = result
        return name
