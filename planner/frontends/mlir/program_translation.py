"""A function of collectives and queries on its way to a program: every device's local tensors, call by call.

Its types are local; a type with a sharding in its encoding is that of the whole tensor, and stands for what a device
holds of it. Constant numbers of a call become part of it. A call is verified where it stands, so that its error has a
place in the text. An op is run on its local shapes, or where the printer wrote down its option and
its own shapes, as a part of the whole computation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planner.errors import InvalidGraph, InvalidMesh, ShardplanError
from planner.frontends.mlir.annotation_checks import NamedValue, ShardingChecker
from planner.frontends.mlir.module import Argument
from planner.frontends.mlir.operations import Operation
from planner.frontends.mlir.translation import MlirTranslation, ScalarValue
from planner.frontends.mlir.types import MlirTensorType, MlirType
from planner.ir.graph import Op, value_id
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.spmd import (
    INDEX,
    Cluster,
    LocalOp,
    LocalType,
    LocalValue,
    SpmdCall,
    SpmdInstruction,
    SpmdProgram,
    local_shape,
)
from planner.spmd.program import infer_local_results
from planner.spmd.verify import check_call, check_results, infer_results

NUMBERS = ("index", "i64", "i32")


@dataclass
class ProgramTranslation(MlirTranslation):
    """The program of one function while it grows; `local` are the types of its values."""

    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    arguments: list[tuple[str, LocalValue]] = field(default_factory=list)
    steps: list[SpmdInstruction] = field(default_factory=list)
    local: dict[str, LocalType] = field(default_factory=dict)

    @property
    def meshes(self) -> dict[str, Mesh]:
        return {name: cluster.mesh for name, cluster in self.clusters.items()}

    def mesh_name(self, given: object, at: int) -> str:
        """The mesh that is named, else the function's, else the only one. Raises InvalidMesh."""
        only = next(iter(self.clusters)) if len(self.clusters) == 1 else None
        name = given or self.shardings.default or only
        if not isinstance(name, str) or name not in self.clusters:
            known = ", ".join(f"@{mesh}" for mesh in self.clusters) or "a declared mesh"
            got = None if name is None else f"@{name}"
            raise self.scan.error("undefined mesh", at=at, got=got, wanted=known, error=InvalidMesh)
        return name

    def mesh_attribute(self, mesh: str) -> dict[str, object]:
        """The mesh as an attribute, where it is not the function's."""
        return {} if mesh == self.shardings.default else {"mesh": mesh}

    def argument(self, argument: Argument) -> None:
        """A local tensor, a number, or what is only written to."""
        if argument.type not in NUMBERS:
            super().argument(argument)
            return
        value = str(argument.attrs.get("shardplan.id", argument.name))
        self.define(argument.name, value, INDEX, at=argument.at)
        self.add_argument(value, argument)

    def input(self, argument: Argument, kind: MlirTensorType) -> None:
        super().input(argument, kind)
        self.add_argument(self.inputs[-1].id, argument)

    def add_argument(self, value: str, argument: Argument) -> None:
        """One more argument of the program."""
        mesh = self.mesh_name(argument.attrs.get("shardplan.mesh"), argument.at)
        self.arguments.append((value, LocalValue(self.local[value], mesh)))

    def tensor(self, kind: MlirType, at: int) -> MlirTensorType:
        """A tensor type as a device sees it."""
        found = super().tensor(kind, at)
        if found.encoding is None:
            return found
        sharding, mesh = self.sharding(found, at)
        shape = local_shape(found.type.shape, sharding, mesh)
        return MlirTensorType(LocalType(shape, found.type.dtype).tensor)

    def sharding(self, kind: MlirTensorType, at: int) -> tuple[Sharding, Mesh]:
        """The sharding of an encoded type; replicated without one."""
        rank = len(kind.type.shape)
        if kind.encoding is None:
            return Sharding.replicated(rank), self.meshes[self.mesh_name(None, at)]
        name = self.mesh_name(kind.encoding.mesh, kind.encoding.at)
        layouts = ShardingChecker(self.scan, self.meshes, name)
        return layouts.checked(kind.encoding, kind.type.shape, self.number), self.meshes[name]

    def _define(self, name: str, value: str, kind: MlirTensorType, *, at: int) -> None:
        super()._define(name, value, kind, at=at)
        self.local[value] = LocalType.of(kind.type)

    def define(self, text: str, value: str, kind: LocalType, *, at: int) -> None:
        """Bind what a call makes."""
        if kind == INDEX:
            self.bind(text, ScalarValue(None, value), at)
            self.local[value] = INDEX
        else:
            self._define(text, value, MlirTensorType(kind.tensor), at=at)

    def find_value(self, name: str, at: int) -> str:
        """The value of the program under a name. Raises InvalidGraph for what it has none of."""
        found = self.lookup(name, at)
        if isinstance(found, NamedValue):
            return found.value
        if isinstance(found, ScalarValue) and found.name:
            return found.name
        raise self.scan.error("not a value of the program", at=at, got=f"%{name}", wanted="one", error=InvalidGraph)

    def add(
        self,
        operation: Operation,
        op: str,
        inputs: Sequence[NamedValue],
        attrs: Mapping[str, Any],
        results: Sequence[MlirTensorType],
        notation: str | None = None,
        suffix: str = "",
    ) -> Op:
        """One more local op."""
        made = super().add(operation, op, inputs, attrs, results, notation, suffix)
        mesh = self.mesh_name(operation.attrs.get("shardplan.mesh"), operation.at)
        name = None if mesh == self.shardings.default else mesh
        self.steps.append(LocalOp(made, ((),) * len(made.rule.loops), made.inputs, made.values, name))
        return made

    def under_option(self, operation: Operation, op: Op, split: Mapping[str, Sequence[int]]) -> None:
        """An op of the whole computation, of whose loops every device runs its part."""
        mesh = self.mesh_name(operation.attrs.get("shardplan.mesh"), operation.at)
        option = tuple(tuple(split.get(loop.name, ())) for loop in op.rule.loops)
        Sharding(option).complete(len(option), self.meshes[mesh])
        done = LocalOp(op, option, op.inputs, op.values, None if mesh == self.shardings.default else mesh)
        self.steps.append(done)
        types = infer_local_results(done, self.meshes[mesh])
        for text, value, kind in zip(operation.results, op.values, types, strict=False):
            self.define(text, value, kind, at=operation.at)

    def call(
        self,
        op: str,
        operands: Sequence[str],
        results: Sequence[str],
        types: Sequence[LocalType] | None,
        attrs: Mapping[str, object],
    ) -> tuple[LocalType, ...]:
        """One more call, verified. Types that are not given are inferred. Raises InvalidProgram."""
        draft = SpmdCall(op, tuple(operands), tuple(results), tuple(types or ()), attrs)
        found = check_call(draft, [self.local[name] for name in operands], self.meshes, default=self.shardings.default)
        wanted = infer_results(draft, found)
        made = replace(draft, types=draft.types if types is not None else wanted)
        check_results(made, found, wanted)
        self.steps.append(made)
        return made.types

    def program(self) -> SpmdProgram:
        """Everything. Raises InvalidProgram."""
        needed = {name for step in self.steps for name in step.operands} | set(self.outputs)
        kept = tuple(
            step for step in self.steps if not self.init_tensors.issuperset(step.results) or needed & set(step.results)
        )
        default = self.shardings.default
        try:
            return SpmdProgram(self.clusters, tuple(self.arguments), kept, tuple(self.outputs), default)
        except ShardplanError as error:
            raise self.located(error, self.function.at) from None


def value_name(text: str) -> str:
    """The value under the name of a text: result k of an op is `n#k` there and `n:k` here."""
    name, _, place = text.partition("#")
    return value_id(name, int(place or 0))
