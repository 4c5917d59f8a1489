"""A graph document while it grows: inputs, and calls of ops in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from planner.frontends.document_value import DocumentValue
from planner.ir.graph import TensorType, value_id

VERSION = "1"


@dataclass(frozen=True, slots=True)
class ZooInput:
    """A value from outside; its name is its id where nothing else is said."""

    value: DocumentValue
    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class ZooOpCall:
    """An op applied to values."""

    id: str
    op: str
    operands: tuple[DocumentValue, ...]
    results: tuple[DocumentValue, ...]
    attrs: dict[str, Any]
    scope: str
    phase: str


class ZooWriter:
    """What has been written so far; `dtype` is that of parameters and activations, `prefix` begins every node's id.

    `next` says, by the input's id, which output takes an input's place in the next run.
    """

    def __init__(self, dtype: str, prefix: str = "") -> None:
        self.dtype, self.prefix = dtype, prefix
        self.inputs: list[ZooInput] = []
        self.calls: list[ZooOpCall] = []
        self.next: dict[str, DocumentValue] = {}
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

    def input(
        self, name: str, shape: Sequence[int], kind: str = "parameter", dtype: str | None = None
    ) -> DocumentValue:
        """A value from outside, named below the scope."""
        path = f"{self._scope}.{name}" if self._scope else name
        value = DocumentValue(path, TensorType(tuple(shape), dtype or self.dtype))
        self.inputs.append(ZooInput(value, kind))
        return value

    def node(
        self,
        op: str,
        operands: Sequence[DocumentValue],
        shape: Sequence[int] | None = None,
        dtype: str = "",
        **attrs: Any,
    ) -> DocumentValue:
        """The result of an op; of the first operand's shape and dtype where nothing else is said."""
        kept = operands[0].shape if shape is None else tuple(shape)
        return self.call(op, operands, TensorType(kept, dtype or operands[0].dtype), **attrs)[0]

    def call(
        self, op: str, operands: Sequence[DocumentValue], *types: TensorType, **attrs: Any
    ) -> tuple[DocumentValue, ...]:
        """The results of an op."""
        number = self._count[op]
        self._count[op] += 1
        name = f"{self.prefix}{op}_{number}" if number else f"{self.prefix}{op}"
        results = tuple(DocumentValue(value_id(name, k), kind) for k, kind in enumerate(types))
        self.calls.append(ZooOpCall(name, op, tuple(operands), results, attrs, self._scope, self._phase))
        return results

    def cast(self, value: DocumentValue, dtype: str) -> DocumentValue:
        return value if value.dtype == dtype else self.node("cast", [value], dtype=dtype)

    def document(self, name: str, outputs: Sequence[DocumentValue]) -> dict[str, Any]:
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

    def _entry(self, entry: ZooInput) -> dict[str, Any]:
        name = entry.value.id
        known = {"id": name, "kind": entry.kind, "name": entry.name or name, **_type_entry(entry.value)}
        return {**known, "next": self.next[name].id} if name in self.next else known


def _type_entry(value: DocumentValue) -> dict[str, Any]:
    return {"shape": list(value.shape), "dtype": value.dtype}


def _node(call: ZooOpCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "op": call.op,
        "inputs": [value.id for value in call.operands],
        "attrs": call.attrs,
        "outputs": [_type_entry(value) for value in call.results],
        "scope": call.scope,
        "phase": call.phase,
    }
