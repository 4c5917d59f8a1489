"""The translation of a function to a graph: the meaning of its names, and the ops so far.

The id of an op is `shardplan.id` or the name of its first result. Constants that only start an accumulation are
dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    """A number that is no tensor; its value is None if only known at run time, under `name` in the program.

    `places` are its values on the devices of the mesh, where they follow from the mesh.
    """

    value: int | float | None
    name: str = ""
    places: NDArray[np.int64] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class InitTensor:
    """A tensor to be written: empty, or (neutral) one from which every accumulation may start."""

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
        """Add the arguments as inputs."""
        for argument in self.function.arguments:
            self.argument(argument)

    def argument(self, argument: Argument) -> None:
        """Add an argument: an input, or a tensor that is only written to."""
        if isinstance(argument.type, str):
            what, got = "argument that is no tensor", f"%{argument.name}: {argument.type}"
            wanted = "tensors; halo sizes and offsets must be constants"
            raise self.scan.error(what, at=argument.at, got=got, wanted=wanted, error=InvalidGraph)
        kind = self.tensor(argument.type, argument.at)
        if argument.attrs.get("shardplan.init"):
            self.bind(argument.name, InitTensor(neutral=True), argument.at)
        else:
            self.input(argument, kind)

    def input(self, argument: Argument, kind: MlirTensorType) -> None:
        """Add an input of the graph."""
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
        """Bind the result of an operation to its name, if it has one."""
        for name in operation.results[:1]:
            self.bind(name, bound, operation.at)

    def only_operand(self, operation: Operation) -> str:
        """Return the only operand. Raises InvalidDocument if there are none or several."""
        if len(operation.operands) != 1:
            raise self.scan.error("number of operands", at=operation.at, got=len(operation.operands), wanted="1")
        return operation.operands[0]

    def find_tensor(self, name: str, at: int) -> NamedValue:
        """Return the tensor under a name. Raises InvalidGraph if there is none."""
        bound = self.lookup(name, at)
        if not isinstance(bound, NamedValue):
            what = "not a tensor with elements"
            raise self.scan.error(what, at=at, got=f"%{name}", wanted="a tensor", error=InvalidGraph)
        return bound

    def lookup(self, name: str, at: int) -> BoundValue:
        """Return what is bound to a name. Raises InvalidGraph if nothing is."""
        if name not in self.bound:
            raise self.scan.error("undefined value", at=at, got=f"%{name}", wanted="a tensor", error=InvalidGraph)
        return self.bound[name]

    def number(self, name: str, at: int) -> int:
        """Return the integer under a name. Raises InvalidGraph for a number known only at run time."""
        bound = self.bound.get(name)
        if not isinstance(bound, ScalarValue) or not isinstance(bound.value, int):
            raise self.scan.error("not a constant", at=at, got=f"%{name}", wanted="a whole number", error=InvalidGraph)
        return bound.value

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
        """Add an op. Attributes, scope and phase that our printer wrote override the given ones."""
        written = operation.attrs
        attrs = MappingProxyType(dict(written.get("shardplan.attrs", attrs)))
        name = self._id(operation) + suffix
        kinds = tuple(kind.type for kind in results)
        rule = bind_op(op, tuple(self.types[tensor.value] for tensor in inputs), kinds, attrs=attrs, notation=notation)
        added = Op(
            name,
            op,
            tuple(tensor.value for tensor in inputs),
            kinds,
            rule,
            attrs,
            str(written.get("shardplan.scope", "")),
            str(written.get("shardplan.phase", "forward")),
            notation,
        )
        self.annotations.read(inputs, name, operation.at)
        self.ops.append(added)
        for k, kind in enumerate(results):
            text = operation.results[k] if k < len(operation.results) and not suffix else f" {value_id(name, k)}"
            self._define(text, value_id(name, k), kind, at=operation.at)
        return added

    def result(self, op: Op) -> NamedValue:
        """Return the result of an op that has no name in the text."""
        return NamedValue(op.id, op.results[0].shape)

    def _id(self, operation: Operation) -> str:
        if "shardplan.id" in operation.attrs:
            return str(operation.attrs["shardplan.id"])
        if operation.results:
            return operation.results[0]
        return operation.name if operation.name not in self.types else f"{operation.name}.{len(self.ops)}"

    def _define(self, name: str, value: str, kind: MlirTensorType, *, at: int) -> None:
        tensor = NamedValue(value, kind.type.shape)
        self.bind(name, tensor, at)
        if value in self.types:
            raise self.scan.error("id used twice", at=at, got=value, wanted="unique ids", error=InvalidGraph)
        self.types[value] = kind.type
        if kind.encoding is not None:
            sharding = self.shardings.checked(kind.encoding, tensor.shape, self.number)
            self.annotations.define(tensor, (sharding, True), at)

    def tensors(self, operation: Operation, count: int = 1) -> tuple[MlirTensorType, ...]:
        """Return the result types, which must be `count` tensors; check the stated types of the operands."""
        if len(operation.result_types) != count:
            got = len(operation.result_types)
            raise self.scan.error("number of result types", at=operation.at, got=got, wanted=str(count))
        for name, kind in zip(operation.operands, operation.operand_types, strict=False):
            self.check_type(name, kind, operation.at)
        return tuple(self.tensor(kind, operation.at) for kind in operation.result_types)

    def check_type(self, name: str, kind: MlirType, at: int) -> None:
        """Raise InvalidGraph if the stated type of a tensor is not its type."""
        tensor = self.bound.get(name)
        if isinstance(kind, MlirTensorType) and isinstance(tensor, NamedValue):
            stated, actual = self.tensor(kind, at).type, self.types[tensor.value]
            if stated != actual:
                what = f"type of %{name}"
                raise self.scan.error(what, at=at, got=str(stated), wanted=str(actual), error=InvalidGraph)

    def tensor(self, kind: MlirType, at: int) -> MlirTensorType:
        if isinstance(kind, MlirTensorType):
            return kind
        raise self.scan.error("type", at=at, got=kind, wanted="a tensor", error=InvalidGraph)

    def finish(self) -> tuple[Graph, Mesh]:
        """Return the graph and its mesh. Raises InvalidGraph, InvalidMesh."""
        mesh = self.shardings.mesh(self.function.at)
        if self.function.result_types and not self.outputs:
            wanted = f"a return of {len(self.function.result_types)}"
            raise self.scan.error("no return", at=self.function.at, got="none", wanted=wanted, error=InvalidGraph)
        outputs = self.outputs or self._unread_values()
        needed = {value for op in self.ops for value in op.inputs} | set(outputs)
        ops = tuple(op for op in self.ops if op.id in needed or op.id not in self.init_tensors)
        present = {value for op in ops for value in op.values} | {entry.id for entry in self.inputs}
        annotations = tuple(
            Annotation(value, sharding, required, user, operand)
            for (value, user, operand), asked in self.annotations.found.items()
            if value in present
            for sharding, required in asked
        )
        producer = self.function.attrs.get("shardplan.producer", {})
        graph = Graph(
            self.function.name, tuple(self.inputs), ops, tuple(outputs), annotations, MappingProxyType(dict(producer))
        )
        return graph, mesh

    def _unread_values(self) -> list[str]:
        """Return the outputs of a function that returns nothing: its unread values, or else its inputs."""
        read = {value for op in self.ops for value in op.inputs}
        unread = [value for op in self.ops for value in op.values if value not in read | self.init_tensors]
        return unread or [entry.id for entry in self.inputs]

    def located(self, error: ShardplanError, at: int) -> ShardplanError:
        """Return the error with a place, if it has none yet."""
        return error if error.where.startswith(self.scan.source) else error.at(self.scan.place(at))
