"""A graph document while it grows: inputs, and calls of ops in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from planner.frontends.value import Value
from planner.model.graph import TensorType, value_id

VERSION = "1"


@dataclass(frozen=True, slots=True)
class Input:
    """A value from outside; its name is its id where nothing else is said."""

    value: Value
    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """An op applied to values."""

    id: str
    op: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attrs: dict[str, Any]
    scope: str
    phase: str


class Writer:
    """What has been written so far; `dtype` is that of parameters and activations, `prefix` begins every node's id.

    `next` says, by the input's id, which output takes an input's place in the next run.
    """

    def __init__(self, dtype: str, prefix: str = "") -> None:
        self.dtype, self.prefix = dtype, prefix
        self.inputs: list[Input] = []
        self.calls: list[Call] = []
        self.next: dict[str, Value] = {}
        self._scope, self._phase = "", "forward"
        self._count = Counter[str]()

    @property
    def wide(self) -> str:
        """The dtype in which losses and optimizer states are kept."""
        return "f64" if self.dtype == "f64" else "f32"

    @contextmanager
    def within(self, scope: str, phase: str = "forward") -> Iterator[None]:
        """What is written meanwhile has this scope and phase."""
        before = self._scope, self._phase
        self._scope, self._phase = scope, phase
        yield
        self._scope, self._phase = before

    def input(self, name: str, shape: Sequence[int], kind: str = "parameter", dtype: str | None = None) -> Value:
        """A value from outside, named below the scope."""
        path = f"{self._scope}.{name}" if self._scope else name
        value = Value(path, TensorType(tuple(shape), dtype or self.dtype))
        self.inputs.append(Input(value, kind))
        return value

    def node(
        self, op: str, operands: Sequence[Value], shape: Sequence[int] | None = None, dtype: str = "", **attrs: Any
    ) -> Value:
        """The result of an op; of the first operand's shape and dtype where nothing else is said."""
        kept = operands[0].shape if shape is None else tuple(shape)
        return self.call(op, operands, TensorType(kept, dtype or operands[0].dtype), **attrs)[0]

    def call(self, op: str, operands: Sequence[Value], *types: TensorType, **attrs: Any) -> tuple[Value, ...]:
        """The results of an op."""
        number = self._count[op]
        self._count[op] += 1
        name = f"{self.prefix}{op}_{number}" if number else f"{self.prefix}{op}"
        results = tuple(Value(value_id(name, k), kind) for k, kind in enumerate(types))
        self.calls.append(Call(name, op, tuple(operands), results, attrs, self._scope, self._phase))
        return results

    def cast(self, value: Value, dtype: str) -> Value:
        return value if value.dtype == dtype else self.node("cast", [value], dtype=dtype)

    def document(self, name: str, outputs: Sequence[Value]) -> dict[str, Any]:
        """The graph document, as plain JSON values."""
        return {
            "format": "shardplan.graph",
            "version": 1,
            "name": name,
            "producer": {"name": "shardplan.zoo", "version": VERSION},
            "inputs": [self._entry(entry) for entry in self.inputs],
            "nodes": [_node(call) for call in self.calls],
            "outputs": [value.id for value in outputs],
            "annotations": [],
        }

    def _entry(self, entry: Input) -> dict[str, Any]:
        name = entry.value.id
        known = {"id": name, "kind": entry.kind, "name": entry.name or name, **_typed(entry.value)}
        return {**known, "next": self.next[name].id} if name in self.next else known


def _typed(value: Value) -> dict[str, Any]:
    return {"shape": list(value.shape), "dtype": value.dtype}


def _node(call: Call) -> dict[str, Any]:
    return {
        "id": call.id,
        "op": call.op,
        "inputs": [value.id for value in call.operands],
        "attrs": call.attrs,
        "outputs": [_typed(value) for value in call.results],
        "scope": call.scope,
        "phase": call.phase,
    }
