"""Writing an SPMD program call by call; result types are inferred where none are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.model.graph import Op
from planner.model.indexing import Option
from planner.model.spmd.cluster import Cluster
from planner.model.spmd.instruction import Call, Instruction, Local
from planner.model.spmd.program import SpmdProgram, Value, local_results
from planner.model.spmd.types import LocalType
from planner.model.spmd.verify import inferred, mesh_of, signature


class Builder:
    """Collects instructions; `program` verifies and freezes them. Values are named %0, %1, … unless named."""

    def __init__(self, clusters: Mapping[str, Cluster], default_mesh: str | None = None) -> None:
        self.clusters, self.default_mesh = dict(clusters), default_mesh
        self.arguments: dict[str, Value] = {}
        self.instructions: list[Instruction] = []
        self.types: dict[str, LocalType] = {}

    def argument(self, name: str, kind: LocalType, mesh: str | None = None) -> str:
        self.arguments[name] = Value(kind, mesh or self.default_mesh or next(iter(self.clusters)))
        self.types[name] = kind
        return name

    def call(
        self,
        op: str,
        *operands: str,
        types: Sequence[LocalType] | None = None,
        dtype: str | None = None,
        **attrs: object,
    ) -> tuple[str, ...]:
        """Append a call; `dtype` is the accumulation type of a reduction. Raises InvalidProgram."""
        draft = Call(op, operands, (str(len(self.types)),), (), attrs)
        if types is None:
            meshes = {name: cluster.mesh for name, cluster in self.clusters.items()}
            mesh_of(draft, meshes, self.default_mesh)
            known = [self.types[name] for name in operands]
            wanted = inferred(draft, signature(draft, known, meshes, self.default_mesh))
            types = [LocalType(kind.shape, dtype or kind.dtype) for kind in wanted]
        results = tuple(str(len(self.types) + place) for place in range(len(types)))
        self.instructions.append(Call(op, operands, results, tuple(types), attrs))
        self.types.update(zip(results, types, strict=True))
        return results

    def local(self, op: Op, *operands: str, option: Option | None = None, mesh: str | None = None) -> tuple[str, ...]:
        """Append a local op; without an option its shapes are the local ones."""
        results = tuple(str(len(self.types) + place) for place in range(len(op.results)))
        done = Local(op, option or ((),) * len(op.rule.loops), operands, results, mesh)
        self.instructions.append(done)
        where = mesh or self.default_mesh or next(iter(self.clusters))
        self.types.update(zip(results, local_results(done, self.clusters[where].mesh), strict=True))
        return results

    def program(self, outputs: Sequence[str]) -> SpmdProgram:
        return SpmdProgram(
            self.clusters, tuple(self.arguments.items()), tuple(self.instructions), tuple(outputs), self.default_mesh
        )
