"""The translation of a function with collectives and queries to an SPMD program.

Types are local. A type with a sharding in its encoding is the global tensor's and stands for the shard that a device
holds. Constant numbers become attributes of the calls that read them. Every call is verified when it is translated, so
that errors have a place in the text. An op runs on local shapes, or, if our printer wrote its option and global shapes,
as a device's part of the whole op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidGraph, InvalidMesh, InvalidSharding, ShardplanError
from planner.frontends.mlir.annotation_checks import NamedValue, ShardingChecker
from planner.frontends.mlir.attributes import Symbol
from planner.frontends.mlir.module import Argument
from planner.frontends.mlir.operations import Operation
from planner.frontends.mlir.translation import MlirTranslation, ScalarValue
from planner.frontends.mlir.types import MlirTensorType, MlirType
from planner.ir.graph import Op, value_id
from planner.ir.loop_partition import LoopPartitions
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
from planner.spmd.op_def import CallSignature
from planner.spmd.program import infer_local_results
from planner.spmd.verify import check_call, check_results, infer_results

NUMBERS = ("index", "i64", "i32")


@dataclass
class ProgramTranslation(MlirTranslation):
    """The program of one function while it grows; `local` maps its values to their local types.

    `folded` are indices that arithmetic reads; what follows from them holds no value of the program.
    """

    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    arguments: list[tuple[str, LocalValue]] = field(default_factory=list)
    steps: list[SpmdInstruction] = field(default_factory=list)
    local: dict[str, LocalType] = field(default_factory=dict)
    folded: set[str] = field(default_factory=set)

    @property
    def meshes(self) -> dict[str, Mesh]:
        return {name: cluster.mesh for name, cluster in self.clusters.items()}

    def mesh_name(self, given: object, at: int) -> str:
        """Return the given mesh, else the function's, else the only one declared, or used. Raises InvalidMesh."""
        only = next(iter(self.clusters)) if len(self.clusters) == 1 else self._used_mesh
        name = given or self.shardings.default or only
        if not isinstance(name, str) or name not in self.clusters:
            declared = ", ".join(f"@{mesh}" for mesh in self.clusters) or "a declared mesh"
            got = "none" if name is None else f"@{name}"
            raise self.scan.error("undefined mesh", at=at, got=got, wanted=declared, error=InvalidMesh)
        return name

    @cached_property
    def _used_mesh(self) -> str | None:
        """The mesh of all calls of the function, None where they are on several."""
        given = [step.attrs.get("mesh", step.attrs.get("grid")) for step in self.function.body or ()]
        used = {mesh.name for mesh in given if isinstance(mesh, Symbol)}
        return used.pop() if len(used) == 1 else None

    def mesh_attribute(self, mesh: str) -> dict[str, object]:
        """Return the attribute that names a mesh; none for the function's own mesh."""
        return {} if mesh == self.shardings.default else {"mesh": mesh}

    def argument(self, argument: Argument) -> None:
        """Add an argument: a local tensor, a number, or a tensor that is only written to."""
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
        """Add an argument of the program."""
        encoding = argument.type.encoding if isinstance(argument.type, MlirTensorType) else None
        mesh = self.mesh_name(argument.attrs.get("shardplan.mesh", encoding and encoding.mesh), argument.at)
        self.arguments.append((value, LocalValue(self.local[value], mesh)))

    def tensor(self, kind: MlirType, at: int) -> MlirTensorType:
        """Return a tensor type as a device sees it."""
        checked = super().tensor(kind, at)
        if checked.encoding is None:
            return checked
        sharding, mesh = self.sharding(checked, at)
        shape = local_shape(checked.type.shape, sharding, mesh)
        return MlirTensorType(LocalType(shape, checked.type.dtype).tensor)

    def sharding(self, kind: MlirTensorType, at: int) -> tuple[Sharding, Mesh]:
        """Return the sharding in a type's encoding and its mesh; replicated if it has none."""
        rank = len(kind.type.shape)
        if kind.encoding is None:
            return Sharding.replicated(rank), self.meshes[self.mesh_name(None, at)]
        name = self.mesh_name(kind.encoding.mesh, kind.encoding.at)
        layouts = ShardingChecker(self.scan, self.meshes, name)
        return layouts.checked(kind.encoding, kind.type.shape, self.number), self.meshes[name]

    def _define(self, name: str, value: str, kind: MlirTensorType, *, at: int) -> None:
        super()._define(name, value, kind, at=at)
        self.local[value] = LocalType.of(kind.type)

    def define(
        self, text: str, value: str, kind: LocalType, *, at: int, places: NDArray[np.int64] | None = None
    ) -> None:
        """Bind a result of a call to its name in the text; `places` as in ScalarValue."""
        if kind == INDEX:
            self.bind(text, ScalarValue(None, value, places), at)
            self.local[value] = INDEX
        else:
            self._define(text, value, MlirTensorType(kind.tensor), at=at)

    def find_value(self, name: str, at: int) -> str:
        """Return the program's value under a name of the text. Raises InvalidGraph if it has none."""
        bound = self.lookup(name, at)
        if isinstance(bound, NamedValue):
            return bound.value
        if isinstance(bound, ScalarValue) and bound.name:
            return bound.name
        raise self.scan.error("not a value of the program", at=at, got=f"%{name}", wanted="one", error=InvalidGraph)

    def find_output(self, name: str, at: int) -> str:
        """Return the value of a returned name. A constant number becomes a value of the program."""
        bound = self.lookup(name, at)
        if not isinstance(bound, ScalarValue) or not isinstance(bound.value, int):
            return self.find_value(name, at)
        if name not in self.local:
            attrs = {**self.mesh_attribute(self.mesh_name(None, at)), "value": bound.value}
            self.call("constant", [], [name], [INDEX], attrs)
            self.local[name] = INDEX
        return name

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
        """Add a local op."""
        local = super().add(operation, op, inputs, attrs, results, notation, suffix)
        mesh = self.mesh_name(operation.attrs.get("shardplan.mesh"), operation.at)
        name = None if mesh == self.shardings.default else mesh
        self.steps.append(LocalOp(local, ((),) * len(local.rule.loops), local.inputs, local.values, mesh=name))
        return local

    def under_option(
        self, operation: Operation, op: Op, split: Mapping[str, Sequence[int]], *, cuts: LoopPartitions
    ) -> None:
        """Add an op with global shapes, whose loops are split over devices by `split` (mesh axes by loop)."""
        mesh = self.mesh_name(operation.attrs.get("shardplan.mesh"), operation.at)
        option = tuple(tuple(split.get(loop.name, ())) for loop in op.rule.loops)
        for axes in option:
            self.meshes[mesh].check_axes(axes)
        if not op.rule.uses_axes_once(option):
            raise InvalidSharding("mesh axis duplicated", got=split, wanted="each axis at most once")
        part = LocalOp(op, option, op.inputs, op.values, cuts, None if mesh == self.shardings.default else mesh)
        self.steps.append(part)
        types = infer_local_results(part, self.meshes[mesh])
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
        """Add a verified call; `types` None means the inferred types. Raises InvalidProgram."""
        draft = SpmdCall(op, tuple(operands), tuple(results), tuple(types or ()), attrs)
        checked, inferred = self.infer(draft)
        call = replace(draft, types=draft.types if types is not None else inferred)
        check_results(call, checked, inferred)
        self.steps.append(call)
        return call.types

    def infer(self, draft: SpmdCall) -> tuple[CallSignature, tuple[LocalType, ...]]:
        """Return the signature of a call on values of the program, and its inferred types. Raises InvalidProgram."""
        operand_types = [self.local[name] for name in draft.operands]
        checked = check_call(draft, operand_types, self.meshes, default=self.shardings.default)
        return checked, infer_results(draft, checked)

    def program(self) -> SpmdProgram:
        """Return the program, without tensors that were only written to and indices that were folded, where nothing
        else reads them. Raises InvalidProgram.
        """
        needed = {name for step in self.steps for name in step.operands} | set(self.outputs)
        unneeded = self.init_tensors | self.folded
        kept = tuple(step for step in self.steps if not unneeded.issuperset(step.results) or needed & set(step.results))
        default = self.shardings.default
        try:
            return SpmdProgram(self.clusters, tuple(self.arguments), kept, tuple(self.outputs), default)
        except ShardplanError as error:
            raise self.located(error, self.function.at) from None


def value_name(text: str) -> str:
    """Return the value id for a name of the text: result k of an op is `n#k` in the text and `n:k` here."""
    name, _, place = text.partition("#")
    return value_id(name, int(place or 0))
