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
from planner.frontends.mlir.layouts import Held, Layouts
from planner.frontends.mlir.module import Argument
from planner.frontends.mlir.operations import Operation
from planner.frontends.mlir.translation import Scalar, Translation
from planner.frontends.mlir.types import Tensor, Type
from planner.model.graph import Op, value_id
from planner.model.mesh import Mesh
from planner.model.sharding import Sharding
from planner.model.spmd import INDEX, Call, Cluster, Instruction, Local, LocalType, SpmdProgram, Value, local_shape
from planner.model.spmd.program import local_results
from planner.model.spmd.verify import check_results, inferred, signature

NUMBERS = ("index", "i64", "i32")


@dataclass
class ProgramTranslation(Translation):
    """The program of one function while it grows; `local` are the types of its values."""

    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    arguments: list[tuple[str, Value]] = field(default_factory=list)
    steps: list[Instruction] = field(default_factory=list)
    local: dict[str, LocalType] = field(default_factory=dict)

    @property
    def meshes(self) -> dict[str, Mesh]:
        return {name: cluster.mesh for name, cluster in self.clusters.items()}

    def mesh_name(self, given: object, at: int) -> str:
        """The mesh that is named, else the function's, else the only one. Raises InvalidMesh."""
        only = next(iter(self.clusters)) if len(self.clusters) == 1 else None
        name = given or self.layouts.default or only
        if not isinstance(name, str) or name not in self.clusters:
            known = ", ".join(f"@{mesh}" for mesh in self.clusters) or "a declared mesh"
            got = None if name is None else f"@{name}"
            raise self.scan.wrong("undefined mesh", at=at, got=got, wanted=known, error=InvalidMesh)
        return name

    def stated(self, mesh: str) -> dict[str, object]:
        """The mesh as an attribute, where it is not the function's."""
        return {} if mesh == self.layouts.default else {"mesh": mesh}

    def argument(self, argument: Argument) -> None:
        """A local tensor, a number, or what is only written to."""
        if argument.type not in NUMBERS:
            super().argument(argument)
            return
        value = str(argument.attrs.get("shardplan.id", argument.name))
        self.define(argument.name, value, INDEX, argument.at)
        self.given(value, argument)

    def input(self, argument: Argument, kind: Tensor) -> None:
        super().input(argument, kind)
        self.given(self.inputs[-1].id, argument)

    def given(self, value: str, argument: Argument) -> None:
        """One more argument of the program."""
        mesh = self.mesh_name(argument.attrs.get("shardplan.mesh"), argument.at)
        self.arguments.append((value, Value(self.local[value], mesh)))

    def tensor(self, kind: Type, at: int) -> Tensor:
        """A tensor type as a device sees it."""
        found = super().tensor(kind, at)
        if found.encoding is None:
            return found
        sharding, mesh = self.sharding(found, at)
        shape = local_shape(found.type.shape, sharding, mesh)
        return Tensor(LocalType(shape, found.type.dtype).tensor)

    def sharding(self, kind: Tensor, at: int) -> tuple[Sharding, Mesh]:
        """The sharding of an encoded type; replicated without one."""
        rank = len(kind.type.shape)
        if kind.encoding is None:
            return Sharding.replicated(rank), self.meshes[self.mesh_name(None, at)]
        name = self.mesh_name(kind.encoding.mesh, kind.encoding.at)
        layouts = Layouts(self.scan, self.meshes, name)
        return layouts.checked(kind.encoding, kind.type.shape, self.number), self.meshes[name]

    def _define(self, name: str, value: str, kind: Tensor, at: int) -> None:
        super()._define(name, value, kind, at)
        self.local[value] = LocalType.of(kind.type)

    def define(self, text: str, value: str, kind: LocalType, at: int) -> None:
        """Bind what a call makes."""
        if kind == INDEX:
            self.bind(text, Scalar(None, value), at)
            self.local[value] = INDEX
        else:
            self._define(text, value, Tensor(kind.tensor), at)

    def named(self, name: str, at: int) -> str:
        """The value of the program under a name. Raises InvalidGraph for what it has none of."""
        found = self.known(name, at)
        if isinstance(found, Held):
            return found.value
        if isinstance(found, Scalar) and found.name:
            return found.name
        raise self.scan.wrong("not a value of the program", at=at, got=f"%{name}", wanted="one", error=InvalidGraph)

    def add(
        self,
        operation: Operation,
        op: str,
        inputs: Sequence[Held],
        attrs: Mapping[str, Any],
        results: Sequence[Tensor],
        notation: str | None = None,
        suffix: str = "",
    ) -> Op:
        """One more local op."""
        made = super().add(operation, op, inputs, attrs, results, notation, suffix)
        mesh = self.mesh_name(operation.attrs.get("shardplan.mesh"), operation.at)
        name = None if mesh == self.layouts.default else mesh
        self.steps.append(Local(made, ((),) * len(made.rule.loops), made.inputs, made.values, name))
        return made

    def under_option(self, operation: Operation, op: Op, split: Mapping[str, Sequence[int]]) -> None:
        """An op of the whole computation, of whose loops every device runs its part."""
        mesh = self.mesh_name(operation.attrs.get("shardplan.mesh"), operation.at)
        option = tuple(tuple(split.get(loop.name, ())) for loop in op.rule.loops)
        Sharding(option).completed(len(option), self.meshes[mesh])
        done = Local(op, option, op.inputs, op.values, None if mesh == self.layouts.default else mesh)
        self.steps.append(done)
        types = local_results(done, self.meshes[mesh])
        for text, value, kind in zip(operation.results, op.values, types, strict=False):
            self.define(text, value, kind, operation.at)

    def call(
        self,
        op: str,
        operands: Sequence[str],
        results: Sequence[str],
        types: Sequence[LocalType] | None,
        attrs: Mapping[str, object],
    ) -> tuple[LocalType, ...]:
        """One more call, verified. Types that are not given are inferred. Raises InvalidProgram."""
        draft = Call(op, tuple(operands), tuple(results), tuple(types or ()), attrs)
        found = signature(draft, [self.local[name] for name in operands], self.meshes, self.layouts.default)
        wanted = inferred(draft, found)
        made = replace(draft, types=draft.types if types is not None else wanted)
        check_results(made, found, wanted)
        self.steps.append(made)
        return made.types

    def program(self) -> SpmdProgram:
        """Everything. Raises InvalidProgram."""
        needed = {name for step in self.steps for name in step.operands} | set(self.outputs)
        kept = tuple(
            step for step in self.steps if not self.starts.issuperset(step.results) or needed & set(step.results)
        )
        default = self.layouts.default
        try:
            return SpmdProgram(self.clusters, tuple(self.arguments), kept, tuple(self.outputs), default)
        except ShardplanError as error:
            raise self.failed(error, self.function.at) from None


def value_name(text: str) -> str:
    """The value under the name of a text: result k of an op is `n#k` there and `n:k` here."""
    name, _, place = text.partition("#")
    return value_id(name, int(place or 0))
