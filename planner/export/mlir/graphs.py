"""A graph with its annotations, as upstream reads it before sharding propagation.

A definition's shardings follow it, a use's stand before its user; a hint bears `shardplan.required = false`. An
identity that only brings an output into a sharding is written as the annotation of what is returned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.export.mlir.dialect import (
    Dialect,
    attributes,
    declaration,
    is_value_name,
    sharding_attribute,
    sharding_value,
    tensor,
)
from planner.export.mlir.forms import Site, write
from planner.export.mlir.page import Page
from planner.model.graph import Annotation, Graph, Input, Op
from planner.model.mesh import Mesh


def print_graph(graph: Graph, mesh: Mesh, dialect: Dialect = Dialect.MESH, argument_starts: bool = False) -> str:
    """The module. Raises InvalidSharding, naming the value, for a sharding the dialect has no words for.

    With `argument_starts` the tensors linalg writes to are arguments, marked as such, and not constants, which
    propagation in mlir-opt 19 refuses.
    """
    return _Writer(graph, Page(mesh, dialect, _names(graph), argument_starts)).text()


def _names(graph: Graph) -> set[str]:
    return {entry.id for entry in graph.inputs} | {value for op in graph.ops for value in op.values}


@dataclass
class _Writer:
    graph: Graph
    page: Page
    asked: dict[tuple[str, str | None], list[Annotation]] = field(default_factory=lambda: defaultdict(list))

    def text(self) -> str:
        graph, page = self.graph, self.page
        for annotation in graph.annotations:
            self.asked[annotation.value, annotation.user].append(annotation)
        for entry in graph.inputs:
            self._input(entry)
        returned = self._returned()
        for op in graph.ops:
            if op.id not in returned:
                operands = [self._read(value, op) for value in op.inputs]
                read = [graph.types[value] for value in op.inputs]
                write(Site(page, op, operands, read, op.results), {})
                for value in op.values:
                    self._define(value)
        names = [self._brought(returned[v]) if v in returned else page.names[v] for v in graph.outputs]
        kinds = [graph.types[value] for value in graph.outputs]
        page.write(f"return {', '.join(names)} : {', '.join(map(tensor, kinds))}")
        more = {"shardplan.producer": dict(graph.producer)} if graph.producer else {}
        return page.module(declaration(page.mesh, page.dialect), graph.name, kinds, more)

    def _input(self, entry: Input) -> None:
        name, kept = self.page.name(entry.id)
        kept |= {"shardplan.kind": entry.kind} if entry.kind != "input" else {}
        kept |= {"shardplan.name": entry.name} if entry.name != entry.id else {}
        self.page.arguments.append(f"{name}: {tensor(entry.type)}{attributes(kept)}")
        self._define(entry.id)

    def _define(self, value: str) -> None:
        self.page.names[value] = self._annotated(self.asked[value, None], self.page.names[value])

    def _read(self, value: str, op: Op) -> str:
        return self._annotated(self.asked[value, op.id], self.page.names[value])

    def _annotated(self, asked: Sequence[Annotation], name: str, last: str | None = None) -> str:
        """The name under which a value has these shardings; `last` is the name it shall have."""
        for place, one in enumerate(asked):
            shown = f"annotation of {one.value!r}" + (f" for {one.user!r}" if one.user else "")
            result = last if last and place == len(asked) - 1 else self.page.fresh(f"{one.value}.sharded")
            if self.page.dialect is Dialect.MESH:
                layout = sharding_attribute(one.sharding, shown)
            else:
                layout = self.page.fresh("sharding")
                self.page.write(f"{layout} = {sharding_value(one.sharding, shown)}")
            users = " annotate_for_users" if one.user is not None else ""
            hint = "" if one.required else attributes({"shardplan.required": False})
            kind = tensor(self.graph.types[one.value])
            self.page.write(f"{result} = {self.page.dialect}.shard {name} to {layout}{users}{hint} : {kind}")
            name = result
        return name

    def _returned(self) -> dict[str, Op]:
        """Identities that only bring an output into a sharding."""
        read = {value for op in self.graph.ops for value in op.inputs}
        return {
            op.id: op
            for op in self.graph.ops
            if op.op == "identity"
            and op.id in self.graph.outputs
            and op.id not in read
            and self.asked[op.inputs[0], op.id]
            and not self.asked[op.id, None]
            and not (op.scope or op.notation or op.attrs)
            and op.phase == "forward"
            and is_value_name(op.id)
        }

    def _brought(self, op: Op) -> str:
        """What an output is called after its annotations, which are written once."""
        if op.id not in self.page.names:
            (value,) = op.inputs
            self.page.names[op.id] = self._annotated(self.asked[value, op.id], self.page.names[value], f"%{op.id}")
        return self.page.names[op.id]
