"""Builds an SPMD program call by call; result types are inferred where none are given."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice

from planner.ir.graph import Op
from planner.ir.indexing import Option
from planner.spmd.cluster import Cluster
from planner.spmd.instruction import LocalOp, SpmdCall, SpmdInstruction
from planner.spmd.program import LocalValue, SpmdProgram, infer_local_results
from planner.spmd.types import LocalType
from planner.spmd.verify import check_call, infer_results, mesh_of


class SpmdBuilder:
    """Collects instructions; `program` verifies and freezes them. Values are named %0, %1, … unless they are named."""

    def __init__(
        self, clusters: Mapping[str, Cluster], default_mesh: str | None = None, *, reserved: Collection[str] = ()
    ) -> None:
        """Names in `reserved` are left to values that are named."""
        self.clusters, self.default_mesh, self.reserved = dict(clusters), default_mesh, set(reserved)
        self.arguments: dict[str, LocalValue] = {}
        self.instructions: list[SpmdInstruction] = []
        self.types: dict[str, LocalType] = {}

    def argument(self, name: str, kind: LocalType, mesh: str | None = None) -> str:
        self.arguments[name] = LocalValue(kind, mesh or self.default_mesh or next(iter(self.clusters)))
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
        """Append a call and return the names of its results.

        `dtype` is the accumulation type of a reduction. Raises InvalidProgram.
        """
        draft = SpmdCall(op, operands, self.fresh_names(1), (), attrs)
        if types is None:
            meshes = {name: cluster.mesh for name, cluster in self.clusters.items()}
            mesh_of(draft, meshes, self.default_mesh)
            operand_types = [self.types[name] for name in operands]
            inferred = infer_results(draft, check_call(draft, operand_types, meshes, default=self.default_mesh))
            types = [LocalType(kind.shape, dtype or kind.dtype) for kind in inferred]
        results = self.fresh_names(len(types))
        self.instructions.append(SpmdCall(op, operands, results, tuple(types), attrs))
        self.types.update(zip(results, types, strict=True))
        return results

    def local(self, op: Op, *operands: str, option: Option | None = None, mesh: str | None = None) -> tuple[str, ...]:
        """Append a local op and return the names of its results. Without an option the op's shapes are the local
        ones.
        """
        results = self.fresh_names(len(op.results))
        return self.append(LocalOp(op, option or ((),) * len(op.rule.loops), operands, results, mesh=mesh))

    def append(self, done: LocalOp) -> tuple[str, ...]:
        """Append a local op whose results have names, and return these."""
        self.instructions.append(done)
        where = done.mesh or self.default_mesh or next(iter(self.clusters))
        self.types.update(zip(done.results, infer_local_results(done, self.clusters[where].mesh), strict=True))
        return done.results

    def rename_last(self, name: str) -> None:
        """Give the only result of the last instruction a name."""
        last = self.instructions[-1]
        (old,) = last.results
        self.instructions[-1] = replace(last, results=(name,))
        self.types[name] = self.types.pop(old)

    def fresh_names(self, number: int) -> tuple[str, ...]:
        """Return names that no value has."""
        free = (name for name in map(str, count(len(self.types))) if name not in self.types.keys() | self.reserved)
        return tuple(islice(free, number))

    def program(self, outputs: Sequence[str]) -> SpmdProgram:
        return SpmdProgram(
            self.clusters, tuple(self.arguments.items()), tuple(self.instructions), tuple(outputs), self.default_mesh
        )
