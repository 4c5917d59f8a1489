"""Find what was edited between two graphs, and which edit is nearest to what rose.

An op is edited where it is new, or differs from the op that it matches (`planner.judge.graph_matching`) in more than
its operands' changes. Other edits are a removed op, a requested annotation or option, an output, and the kind of an
input. The cause of a rise is the edit fewest ops away from the term that rose most, in either direction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from planner.ir.graph import Graph, Op
from planner.judge.check.equivalence import collect_annotations
from planner.judge.check.measures import ChangedTerm
from planner.judge.graph_matching import GraphMatching


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of an op, input, annotation or output (`what`); `at` are the nodes of the new graph that it touches."""

    what: str
    name: str
    reason: str
    at: tuple[str, ...]


@dataclass(frozen=True)
class Revision:
    """Two graphs, the matching of what is the same in both, and that which includes edited ops."""

    base: Graph
    new: Graph
    exact: GraphMatching
    edited: GraphMatching

    @cached_property
    def changed_values(self) -> frozenset[str]:
        """Results, in the new graph, of ops that have no exact match."""
        return frozenset(value for op in self.new.ops if op.id not in self.exact.ops for value in op.values)

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """All edits, by kind and in the order of the new graph."""
        return (*self._edited_ops(), *self._removed_ops(), *self._annotation_edits(), *self._output_edits())

    def nearest_edits(self, what: ChangedTerm) -> list[Edit]:
        """Return the edits in the order of their distance to an op or value that changed."""
        start = self._nodes_of(what)
        steps = nx.multi_source_dijkstra_path_length(nx.Graph(self.new.dag), set(start)) if start else {}
        far = len(self.new.dag) + 1
        return sorted(self.edits, key=lambda edit: min((steps.get(node, far) for node in edit.at), default=far))

    def _nodes_of(self, what: ChangedTerm) -> list[str]:
        """Return the nodes of the new graph that a term is about."""
        return (
            self._nodes_around(_maker(self.base, what.base_name or ""))
            if what.name is None
            else [_maker(self.new, what.name)]
        )

    def _nodes_around(self, removed: str) -> list[str]:
        """Return the neighbours, in the new graph, of a node of the base."""
        back = {was: name for name, was in (*self.edited.values.items(), *self.edited.ops.items())}
        return [
            back[node]
            for node in (*self.base.dag.successors(removed), *self.base.dag.predecessors(removed))
            if node in back
        ]

    def _edited_ops(self) -> Iterator[Edit]:
        old = {op.id: op for op in self.base.ops}
        for op in self.new.ops:
            was = old.get(self.edited.ops.get(op.id, ""))
            reason = f"new {op.op}" if was is None else self._describe_edit(was, op)
            if reason and op.recompute_of is None:
                yield Edit("op", op.id, reason, (op.id,))

    def _describe_edit(self, was: Op, op: Op) -> str:
        """Describe how an op was edited; empty where it was not, or where only its operands changed."""
        types = self.base.types, self.new.types
        for old, value in zip(was.inputs, op.inputs, strict=False):
            if value not in self.changed_values and types[0][old] != types[1][value]:
                return f"reads {value} as {types[1][value]}, was {types[0][old]}"
            if value not in self.changed_values and self.edited.values.get(value) != old:
                return f"reads {value}, was {old}"
        if op.option is not None and op.option != was.option:
            return "its option is pinned"
        if op.id in self.exact.ops or not self.changed_values.isdisjoint(op.inputs):
            return ""
        for key in {**op.attrs, **was.attrs}:
            if op.attrs.get(key) != was.attrs.get(key):
                return f"{key} {op.attrs.get(key)}, was {was.attrs.get(key)}"
        results = [" ".join(map(str, each.results)) for each in (was, op)]
        if results[0] != results[1]:
            return f"makes {results[1]}, was {results[0]}"
        return "its rule changed" if op.notation != was.notation else ""

    def _removed_ops(self) -> Iterator[Edit]:
        """Yield removed ops, at their neighbours that still exist."""
        left = set(self.edited.ops.values())
        for op in self.base.ops:
            if op.id not in left and op.recompute_of is None:
                yield Edit("op", op.id, f"{op.op} was removed", tuple(self._nodes_around(op.id)))

    def _annotation_edits(self) -> Iterator[Edit]:
        """Yield values with an annotation that the other graph does not have."""
        mine, old = (
            collect_annotations(self.new, self.edited.values, self.edited.ops),
            collect_annotations(self.base, {}, {}),
        )
        back = {was: name for name, was in self.edited.values.items()}
        listed = {back[value]: "no longer requested" for key, value in old.items() if key not in mine and value in back}
        listed |= {value: "requested" for key, value in mine.items() if key not in old}
        for value, how in listed.items():
            maker = _maker(self.new, value)
            yield Edit("annotation", value, f"its sharding is {how}", (maker, *self.new.dag.successors(maker)))

    def _output_edits(self) -> Iterator[Edit]:
        """Yield values that became outputs, and inputs whose kind changed."""
        same = self.edited.values
        more = Counter(same.get(value, value) for value in self.new.outputs) - Counter(self.base.outputs)
        for value in dict.fromkeys(self.new.outputs):
            if value in same and more[same[value]]:
                yield Edit("output", value, "is an output", (_maker(self.new, value),))
        kinds = {entry.id: entry.kind for entry in self.base.inputs}
        for entry in self.new.inputs:
            was = kinds.get(same.get(entry.id, ""), entry.kind)
            if was != entry.kind:
                yield Edit("input", entry.id, f"{entry.kind}, was {was}", (entry.id,))


def _maker(graph: Graph, name: str) -> str:
    """Return the node of an op or value."""
    return name if name in graph.dag else next(op.id for op in graph.ops if name in op.values)
