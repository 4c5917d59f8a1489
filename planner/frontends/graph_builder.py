"""A graph document while it grows: what every frontend emits its inputs, nodes, casts and constants with.

Ids of nodes: inside `within(..., call="x")` they are `x/0`, `x/1` and so on, elsewhere the op's name with a number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from planner.errors import InvalidGraph
from planner.frontends.dtypes import LARGEST_FLOAT
from planner.frontends.uncovered_ops import NotExpressible, UncoveredOps, unrelated_rule
from planner.ir.graph import TensorType, value_id
from planner.ir.sharding import Shape
from planner.ops import OPS

MAX_NODES = 1 << 20

Entry = dict[str, Any]
"""An input or a node of the document, as JSON values."""


@dataclass(frozen=True, slots=True)
class DocumentValue:
    """A value of the document: its id and its type."""

    id: str
    type: TensorType

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype


class GraphBuilder:
    """The inputs and nodes so far; new nodes get the current `scope` and `phase`.

    An empty phase means that the source does not say it: the node belongs to the update if an operand was computed
    after the forward pass, else to the forward pass. `uncovered` collects the ops that the frontend's table lacks.
    """

    def __init__(self, *, phase: str = "forward", prefix: str = "") -> None:
        self.inputs: dict[str, Entry] = {}
        self.nodes: list[Entry] = []
        self.uncovered = UncoveredOps()
        self.scope, self.phase = "", phase
        self._prefix = prefix
        self._call, self._call_start = "", 0
        self._counts = Counter[str]()
        self._seeds = count()
        self._nodes_by_value: dict[str, Entry] = {}
        self._values: dict[str, DocumentValue] = {}

    @contextmanager
    def within(self, scope: str, phase: str = "forward", *, call: str = "") -> Iterator[None]:
        """Give the nodes emitted meanwhile this scope and phase, and ids below `call` if that is given."""
        before = self.scope, self.phase, self._call, self._call_start
        self.scope, self.phase, self._call, self._call_start = scope, phase, call, len(self.nodes)
        try:
            yield
        finally:
            self.scope, self.phase, self._call, self._call_start = before

    def add_input(self, value: str, kind: str, type_: TensorType, *, name: str = "") -> DocumentValue:
        """Add a value from outside, unless it is there already; its name is its id unless given."""
        self.inputs.setdefault(value, {"id": value, "kind": kind, "name": name or value, **_type_entry(type_)})
        return self._values.setdefault(value, DocumentValue(value, type_))

    def emit(
        self,
        op: str,
        operands: Sequence[DocumentValue],
        shape: Sequence[int] | None = None,
        *,
        dtype: str = "",
        **attrs: Any,
    ) -> DocumentValue:
        """Emit a node with one result, which has the first operand's shape and dtype unless given."""
        kind = TensorType(operands[0].shape if shape is None else tuple(shape), dtype or operands[0].dtype)
        return self.emit_all(op, operands, [kind], attrs=attrs)[0]

    def emit_all(
        self,
        op: str,
        operands: Sequence[DocumentValue],
        types: Sequence[TensorType],
        *,
        attrs: Mapping[str, Any],
        node: str = "",
        rule: str = "",
    ) -> list[DocumentValue]:
        """Emit a node with a result of each type, under the id `node` or a fresh one.

        An op without a row in the op table is planned by `rule`, and replicated if there is none. Raises NotExpressible
        for an attribute that JSON cannot hold, such as NaN, and InvalidGraph for too many nodes.
        """
        if len(self.nodes) >= MAX_NODES:
            raise InvalidGraph("too many nodes", where=self.scope, wanted=f"at most {MAX_NODES}")
        for key, number in attrs.items():
            if isinstance(number, float) and not math.isfinite(number):
                raise NotExpressible(f"{key} {number}, wanted a finite number")
        entry: Entry = {
            "id": node or self.fresh_id(op),
            "op": op,
            "inputs": [value.id for value in operands],
            "attrs": dict(attrs),
            "outputs": [_type_entry(kind) for kind in types],
            "scope": self.scope,
            "phase": self._choose_phase(operands),
        }
        if op not in OPS:
            entry["rule"] = rule or unrelated_rule([value.shape for value in operands], [kind.shape for kind in types])
        self.nodes.append(entry)
        results = [DocumentValue(value_id(entry["id"], k), kind) for k, kind in enumerate(types)]
        self._nodes_by_value.update((result.id, entry) for result in results)
        self._values.update((result.id, result) for result in results)
        return results

    def drop_nodes(self, start: int) -> None:
        """Drop the nodes from position `start` on, which a call emitted before it turned out to have no row."""
        del self.nodes[start:]

    def cast(self, value: DocumentValue, dtype: str) -> DocumentValue:
        """Return the value in a dtype, through a `cast` if it has another."""
        return value if value.dtype == dtype else self.emit("cast", [value], dtype=dtype)

    def reshape(self, value: DocumentValue, shape: Sequence[int]) -> DocumentValue:
        """Return the value in a shape, through a `reshape` if it has another."""
        return value if value.shape == tuple(shape) else self.emit("reshape", [value], shape)

    def full(self, number: float, shape: Sequence[int], dtype: str) -> DocumentValue:
        """Emit a tensor of equal elements."""
        return self.emit("full", [], shape, dtype=dtype, value=clamp_infinity(number, dtype))

    def find_value(self, value: str) -> DocumentValue:
        """Return a value by its id."""
        return self._values[value]

    def find_node(self, value: DocumentValue) -> Entry | None:
        """Return the node that computes a value; None for an input."""
        return self._nodes_by_value.get(value.id)

    def fresh_id(self, op: str) -> str:
        """Return an id that no node has yet."""
        if self._call:
            return f"{self._call}/{len(self.nodes) - self._call_start}"
        number = self._counts[op]
        self._counts[op] += 1
        return f"{self._prefix}{op}_{number}" if number else f"{self._prefix}{op}"

    def fresh_seed(self) -> int:
        """Return a seed that no random op has yet: ops of different seeds draw different numbers."""
        return next(self._seeds)

    def _choose_phase(self, operands: Iterable[DocumentValue]) -> str:
        if self.phase:
            return self.phase
        sources = (self.find_node(value) for value in operands)
        return "update" if any(node["phase"] != "forward" for node in sources if node) else "forward"


def build_document(
    name: str,
    producer: tuple[str, str],
    *,
    inputs: Iterable[Entry],
    nodes: Sequence[Entry],
    outputs: Sequence[str],
    next_values: Mapping[str, str] | None = None,
    annotations: Sequence[Entry] = (),
) -> dict[str, Any]:
    """Return the graph document as JSON values, by `producer` (name, version).

    `next_values` says which output takes the place of an input in the next run.
    """
    following = next_values or {}
    return {
        "format": "shardplan.graph",
        "version": 1,
        "name": name,
        "producer": {"name": producer[0], "version": producer[1]},
        "inputs": [e | ({"next": following[e["id"]]} if e["id"] in following else {}) for e in inputs],
        "nodes": list(nodes),
        "outputs": list(outputs),
        "annotations": list(annotations),
    }


def prune_nodes(nodes: Sequence[Entry], wanted: Iterable[str]) -> list[Entry]:
    """Return the nodes that a wanted value depends on, in order."""
    read, kept = set(wanted), []
    for node in reversed(nodes):
        if not read.isdisjoint(value_id(node["id"], k) for k in range(len(node["outputs"]))):
            read.update(node["inputs"])
            kept.append(node)
    return kept[::-1]


def prune_inputs(inputs: Iterable[Entry], nodes: Iterable[Entry], wanted: Iterable[str]) -> list[Entry]:
    """Return the inputs that a node reads or that are wanted themselves, in order."""
    read = {value for node in nodes for value in node["inputs"]} | set(wanted)
    return [entry for entry in inputs if entry["id"] in read]


def clamp_infinity(number: float, dtype: str) -> float:
    """Return a number as JSON can hold it: an infinity, as of masks, becomes the dtype's largest number of its sign.

    A bool becomes 0 or 1. NaN stays, and no node takes it. Raises NotExpressible for an infinite integer.
    """
    if isinstance(number, bool):
        return int(number)
    if isinstance(number, int) or not math.isinf(number):
        return number
    if dtype not in LARGEST_FLOAT:
        raise NotExpressible(f"{number} as {dtype}")
    return math.copysign(LARGEST_FLOAT[dtype], number)


def _type_entry(kind: TensorType) -> Entry:
    """Return the type as a document has it. Raises InvalidGraph for a tensor without elements."""
    if 0 in kind.shape:
        raise InvalidGraph("tensor without elements", got=str(kind), wanted="dims of 1 or more")
    return {"shape": list(kind.shape), "dtype": kind.dtype}
