"""A graph beside an earlier state of itself: whether it says the same, and its ops in the order of the earlier one.

Names and the order of a document say nothing about a model. A graph that is its base but for names and order is the
same question, to which the same plan is the answer: nothing has to be planned. One in which something changed is
planned in the base's order, so that no live interval differs for the order's sake alone.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import replace

import networkx as nx

from planner.ir.graph import Graph
from planner.judge.graph_matching import GraphMatching

GraphContents = tuple[frozenset[Hashable], ...]


def is_equivalent(base: Graph, new: Graph, found: GraphMatching) -> bool:
    """Whether the new graph is the base by other names or in another order; scopes and producers are names."""
    whole = len(found.values) == len(new.types) == len(base.types) and len(found.ops) == len(new.ops) == len(base.ops)
    return whole and _collect_contents(new, found.values, found.ops) == _collect_contents(base, {}, {})


def collect_annotations(graph: Graph, values: Mapping[str, str], ops: Mapping[str, str]) -> dict[Hashable, str]:
    """The annotations of a graph in other names, with the values' own."""
    return {
        (values.get(a.value, a.value), a.sharding, a.required, ops.get(a.user or "", a.user), a.operand): a.value
        for a in graph.annotations
    }


def _collect_contents(graph: Graph, values: Mapping[str, str], ops: Mapping[str, str]) -> GraphContents:
    """Everything a graph says, in other names."""

    def name(value: str | None) -> str | None:
        return None if value is None else values.get(value, value)

    made = {
        (
            *(ops.get(op.id, op.id), op.op, tuple(map(name, op.inputs)), op.results, op.notation, op.phase, op.option),
            json.dumps(dict(op.attrs), sort_keys=True),
        )
        for op in graph.ops
    }
    given = {(name(entry.id), entry.kind, entry.type, name(entry.next)) for entry in graph.inputs}
    left = {(number, name(value)) for number, value in enumerate(graph.outputs)}
    return frozenset(made), frozenset(given), frozenset(left), frozenset(collect_annotations(graph, values, ops))


def align_order(base: Graph, new: Graph, found: GraphMatching) -> Graph:
    """The new graph with inputs and ops in the base's order; what is new there stands right before its first reader."""
    place = {op.id: number for number, op in enumerate(base.ops)}
    rank: dict[str, tuple[int, int]] = {}
    for number, op in reversed(list(enumerate(new.ops))):
        first = min((rank[reader][0] for reader in new.dag.successors(op.id)), default=len(place))
        rank[op.id] = (place[found.ops[op.id]], len(new.ops)) if op.id in found.ops else (first, number)
    order = nx.lexicographical_topological_sort(new.dag, key=lambda node: rank.get(node, (-1, -1)))
    ops = {op.id: op for op in new.ops}
    known = {entry.id: number for number, entry in enumerate(base.inputs)}
    inputs = sorted(new.inputs, key=lambda entry: known.get(found.values.get(entry.id, ""), len(known)))
    return replace(new, inputs=tuple(inputs), ops=tuple(ops[node] for node in order if node in ops))
