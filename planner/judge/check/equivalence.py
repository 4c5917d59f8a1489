"""Compare a graph with an earlier version of itself, and bring its ops into the order of that version.

Names and the order of ops in a document do not change a model. A graph that differs from its base in names and order
only has the same plan, and need not be planned. A graph with other changes is planned in the base's order, so that no
live interval differs merely because of the order.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import replace

import networkx as nx

from planner.ir.graph import Graph
from planner.judge.graph_matching import GraphMatching

GraphContents = tuple[frozenset[Hashable], ...]


def is_equivalent(base: Graph, new: Graph, matching: GraphMatching) -> bool:
    """Return whether two graphs differ in names and order only. Scopes and producers count as names."""
    is_complete = len(matching.values) == len(new.types) == len(base.types) and len(matching.ops) == len(
        new.ops
    ) == len(base.ops)
    return is_complete and _collect_contents(new, matching.values, matching.ops) == _collect_contents(base, {}, {})


def collect_annotations(graph: Graph, values: Mapping[str, str], ops: Mapping[str, str]) -> dict[Hashable, str]:
    """Return the annotations of a graph with names replaced, each with the original name of its value."""
    return {
        (values.get(a.value, a.value), a.sharding, a.required, ops.get(a.user or "", a.user), a.operand): a.value
        for a in graph.annotations
    }


def _collect_contents(graph: Graph, values: Mapping[str, str], ops: Mapping[str, str]) -> GraphContents:
    """Return the contents of a graph, independently of order, with names replaced."""

    def name(value: str | None) -> str | None:
        return None if value is None else values.get(value, value)

    nodes = {
        (
            *(ops.get(op.id, op.id), op.op, tuple(map(name, op.inputs)), op.results, op.notation, op.phase, op.option),
            json.dumps(dict(op.attrs), sort_keys=True),
        )
        for op in graph.ops
    }
    inputs = {(name(entry.id), entry.kind, entry.type, name(entry.next)) for entry in graph.inputs}
    outputs = {(number, name(value)) for number, value in enumerate(graph.outputs)}
    return frozenset(nodes), frozenset(inputs), frozenset(outputs), frozenset(collect_annotations(graph, values, ops))


def align_order(base: Graph, new: Graph, matching: GraphMatching) -> Graph:
    """Return the new graph with inputs and ops in the base's order; new ops stand right before their first reader."""
    place = {op.id: number for number, op in enumerate(base.ops)}
    rank: dict[str, tuple[int, int]] = {}
    for number, op in reversed(list(enumerate(new.ops))):
        first = min((rank[reader][0] for reader in new.dag.successors(op.id)), default=len(place))
        rank[op.id] = (place[matching.ops[op.id]], len(new.ops)) if op.id in matching.ops else (first, number)
    order = nx.lexicographical_topological_sort(new.dag, key=lambda node: rank.get(node, (-1, -1)))
    ops = {op.id: op for op in new.ops}
    known = {entry.id: number for number, entry in enumerate(base.inputs)}
    inputs = sorted(new.inputs, key=lambda entry: known.get(matching.values.get(entry.id, ""), len(known)))
    return replace(new, inputs=tuple(inputs), ops=tuple(ops[node] for node in order if node in ops))
