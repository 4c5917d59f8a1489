"""A function of the text on its way to a graph: what its names stand for, and the ops so far.

An op is called by the name of its first result, or by `shardplan.id`. Constants that only start an accumulation leave
no trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from planner.errors import InvalidGraph, ShardplanError
from planner.frontends.mlir.annotation_checks import Annotations, NamedValue, ShardingChecker
from planner.frontends.mlir.module import Argument, Function
from planner.frontends.mlir.operations import Operation
from planner.frontends.mlir.scanner import Scanner
from planner.frontends.mlir.sharding_syntax import ShardingSyntax
from planner.frontends.mlir.types import MlirTensorType, MlirType
from planner.ir.graph import Annotation, Graph, Input, Op, TensorType, value_id
from planner.ir.mesh import Mesh
from planner.ops import bind_op


@dataclass(frozen=True, slots=True)
class ScalarValue:
    """A number that is no tensor; None: one that is told only when the program runs, under its `name` there."""

    value: int | float | None
    name: str = ""


@dataclass(frozen=True, slots=True)
class InitTensor:
    """A tensor to be written: empty, or (neutral) one that every accumulation may start from."""

    neutral: bool


BoundValue = NamedValue | ShardingSyntax | ScalarValue | InitTensor


@dataclass
class MlirTranslation:
    """The graph of one function while it grows."""

    scan: Scanner
    function: Function
    shardings: ShardingChecker
    annotations: Annotations
    inputs: list[Input] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    types: dict[str, TensorType] = field(default_factory=dict)
    bound: dict[str, BoundValue] = field(default_factory=dict)
    init_tensors: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Arguments become inputs."""
        for argument in self.function.arguments:
            self.argument(argument)

    def argument(self, argument: Argument) -> None:
        """An input, or what is only written to."""
        kind = self.tensor(argument.type, argument.at)
        if argument.attrs.get("shardplan.init"):
            self.bind(argument.name, InitTensor(neutral=True), argument.at)
        else:
            self.input(argument, kind)

    def input(self, argument: Argument, kind: MlirTensorType) -> None:
        """One more input of the graph."""
        attrs = argument.attrs
        value = str(attrs.get("shardplan.id", argument.name))
        name = str(attrs.get("shardplan.name", value))
        self.inputs.append(Input(value, str(attrs.get("shardplan.kind", "input")), name, kind.type))
        self._define(argument.name, value, kind, at=argument.at)

    def bind(self, name: str, bound: BoundValue, at: int) -> None:
        if name in self.bound:
            raise self.scan.error("value defined twice", at=at, got=f"%{name}", wanted="one definition")
        self.bound[name] = bound

    def give(self, operation: Operation, bound: BoundValue) -> None:
        """Bind what an operation makes; what the text gives no name nobody reads."""
        for name in operation.results[:1]:
            self.bind(name, bound, operation.at)

    def only_operand(self, operation: Operation) -> str:
        """The one operand. Raises InvalidDocument where there are none or more."""
        if len(operation.operands) != 1:
            raise self.scan.error("number of operands", at=operation.at, got=len(operation.operands), wanted="1")
        return operation.operands[0]

    def find_tensor(self, name: str, at: int) -> NamedValue:
        """The tensor under a name. Raises InvalidGraph where there is none."""
        found = self.lookup(name, at)
        if not isinstance(found, NamedValue):
            what = "not a tensor with elements"
            raise self.scan.error(what, at=at, got=f"%{name}", wanted="a tensor", error=InvalidGraph)
        return found

    def lookup(self, name: str, at: int) -> BoundValue:
        """What stands under a name. Raises InvalidGraph where there is nothing."""
        if name not in self.bound:
            raise self.scan.error("undefined value", at=at, got=f"%{name}", wanted="a tensor", error=InvalidGraph)
        return self.bound[name]

    def number(self, name: str, at: int) -> int:
        """The whole number under a name. Raises InvalidGraph for one known only at run time."""
        found = self.bound.get(name)
        if not isinstance(found, ScalarValue) or not isinstance(found.value, int):
            raise self.scan.error("not a constant", at=at, got=f"%{name}", wanted="a whole number", error=InvalidGraph)
        return found.value

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
        """One more op. Attributes and place that the printer wrote down are taken from there."""
        written = operation.attrs
        attrs = MappingProxyType(dict(written.get("shardplan.attrs", attrs)))
        name = self._id(operation) + suffix
        kinds = tuple(kind.type for kind in results)
        rule = bind_op(op, tuple(self.types[held.value] for held in inputs), kinds, attrs=attrs, notation=notation)
        made = Op(
            name,
            op,
            tuple(held.value for held in inputs),
            kinds,
            rule,
            attrs,
            str(written.get("shardplan.scope", "")),
            str(written.get("shardplan.phase", "forward")),
            notation,
        )
        self.annotations.read(inputs, name, operation.at)
        self.ops.append(made)
        for k, kind in enumerate(results):
            text = operation.results[k] if k < len(operation.results) and not suffix else f" {value_id(name, k)}"
            self._define(text, value_id(name, k), kind, at=operation.at)
        return made

    def result(self, op: Op) -> NamedValue:
        """What an op made, without its name in the text."""
        return NamedValue(op.id, op.results[0].shape)

    def _id(self, operation: Operation) -> str:
        if "shardplan.id" in operation.attrs:
            return str(operation.attrs["shardplan.id"])
        if operation.results:
            return operation.results[0]
        return operation.name if operation.name not in self.types else f"{operation.name}.{len(self.ops)}"

    def _define(self, name: str, value: str, kind: MlirTensorType, *, at: int) -> None:
        held = NamedValue(value, kind.type.shape)
        self.bind(name, held, at)
        if value in self.types:
            raise self.scan.error("id used twice", at=at, got=value, wanted="unique ids", error=InvalidGraph)
        self.types[value] = kind.type
        if kind.encoding is not None:
            sharding = self.shardings.checked(kind.encoding, held.shape, self.number)
            self.annotations.define(held, (sharding, True), at)

    def tensors(self, operation: Operation, count: int = 1) -> tuple[MlirTensorType, ...]:
        """The result types, which must be so many tensors. Operand types must be those of the operands."""
        if len(operation.result_types) != count:
            got = len(operation.result_types)
            raise self.scan.error("number of result types", at=operation.at, got=got, wanted=str(count))
        for name, kind in zip(operation.operands, operation.operand_types, strict=False):
            self.check_type(name, kind, operation.at)
        return tuple(self.tensor(kind, operation.at) for kind in operation.result_types)

    def check_type(self, name: str, kind: MlirType, at: int) -> None:
        """Raises InvalidGraph where a tensor is said to be of another type than it is."""
        held = self.bound.get(name)
        if isinstance(kind, MlirTensorType) and isinstance(held, NamedValue):
            said, is_of = self.tensor(kind, at).type, self.types[held.value]
            if said != is_of:
                what = f"type of %{name}"
                raise self.scan.error(what, at=at, got=str(said), wanted=str(is_of), error=InvalidGraph)

    def tensor(self, kind: MlirType, at: int) -> MlirTensorType:
        if isinstance(kind, MlirTensorType):
            return kind
        raise self.scan.error("type", at=at, got=kind, wanted="a tensor", error=InvalidGraph)

    def finish(self) -> tuple[Graph, Mesh]:
        """The graph and its mesh. Raises InvalidGraph, InvalidMesh."""
        mesh = self.shardings.mesh(self.function.at)
        if self.function.result_types and not self.outputs:
            wanted = f"a return of {len(self.function.result_types)}"
            raise self.scan.error("no return", at=self.function.at, got="none", wanted=wanted, error=InvalidGraph)
        outputs = self.outputs or self._unread_values()
        needed = {value for op in self.ops for value in op.inputs} | set(outputs)
        ops = tuple(op for op in self.ops if op.id in needed or op.id not in self.init_tensors)
        left = {value for op in ops for value in op.values} | {entry.id for entry in self.inputs}
        annotations = tuple(
            Annotation(value, sharding, required, user, operand)
            for (value, user, operand), asked in self.annotations.found.items()
            if value in left
            for sharding, required in asked
        )
        producer = self.function.attrs.get("shardplan.producer", {})
        graph = Graph(
            self.function.name, tuple(self.inputs), ops, tuple(outputs), annotations, MappingProxyType(dict(producer))
        )
        return graph, mesh

    def _unread_values(self) -> list[str]:
        """What stands for the outputs of a function that returns nothing."""
        read = {value for op in self.ops for value in op.inputs}
        unread = [value for op in self.ops for value in op.values if value not in read | self.init_tensors]
        return unread or [entry.id for entry in self.inputs]

    def located(self, error: ShardplanError, at: int) -> ShardplanError:
        """The error with its place, where it has none yet."""
        return error if error.where.startswith(self.scan.source) else error.at(self.scan.place(at))
