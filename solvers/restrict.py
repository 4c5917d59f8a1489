"""A problem with fewer strategies: some of each node's are kept, and matrices shrink to the classes that remain."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from solvers.parts import Edge, EdgeUsage, Node, Spans
from solvers.problem import Problem

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Restricted:
    """Strategy x of the problem's node i stands for strategy kept[i][x] of the original's."""

    problem: Problem
    kept: tuple[Integers, ...]

    @staticmethod
    def nothing(problem: Problem) -> Restricted:
        """The problem itself."""
        return Restricted(problem, tuple(np.arange(node.cost.size) for node in problem.nodes))

    def narrowed(self, allowed: Mask) -> Restricted:
        """Only the allowed strategies of this one (a flag per strategy, flat; at least one of every node)."""
        kept = [np.flatnonzero(flags) for flags in self._by_node(allowed)]
        nodes = [_narrowed(node, keep) for node, keep in zip(self.problem.nodes, kept, strict=True)]
        blocks: dict[tuple[int, bytes, bytes], Integers] = {}
        edges = [_shrunk(edge, kept, blocks) for edge in self.problem.edges]
        problem = Problem(nodes, edges, self.problem.limit)
        return Restricted(problem, tuple(old[keep] for old, keep in zip(self.kept, kept, strict=True)))

    def lift(self, choice: Integers) -> Integers:
        """The original's choice."""
        return np.array([keep[x] for keep, x in zip(self.kept, choice.tolist(), strict=True)], np.int64)

    def lower(self, choice: Integers) -> Integers | None:
        """The restricted problem's choice for one of the original, if all of it was kept."""
        places = [int(np.searchsorted(keep, x)) for keep, x in zip(self.kept, choice.tolist(), strict=True)]
        found = all(
            p < keep.size and keep[p] == x for p, keep, x in zip(places, self.kept, choice.tolist(), strict=True)
        )
        return np.array(places, np.int64) if found else None

    def at_ends(self, allowed: Mask, values: Integers) -> Integers:
        """Of one value per strategy at each end of each edge (sources, then targets), those at allowed strategies."""
        flags, layout = self._by_node(allowed), self.problem.layout
        ends = [flags[i] for i in layout.source.tolist()] + [flags[i] for i in layout.target.tolist()]
        return values[np.concatenate(ends)] if ends else values

    def _by_node(self, allowed: Mask) -> list[Mask]:
        starts = self.problem.layout.node_start
        return [allowed[a:b] for a, b in pairwise(starts)]


def _narrowed(node: Node, keep: Integers) -> Node:
    spans = node.further
    further = None if spans is None else Spans(spans.start, spans.stop, spans.usage[:, keep])
    return Node(node.name, node.cost[keep], node.usage[keep], node.interval, node.multiplicity, further)


def _shrunk(edge: Edge, kept: list[Integers], blocks: dict[tuple[int, bytes, bytes], Integers]) -> Edge:
    rows, source_class = np.unique(edge.source_class[kept[edge.source]], return_inverse=True)
    columns, target_class = np.unique(edge.target_class[kept[edge.target]], return_inverse=True)

    def block(matrix: Integers) -> Integers:
        key = (id(matrix), rows.tobytes(), columns.tobytes())
        if key not in blocks:
            blocks[key] = np.ascontiguousarray(matrix[np.ix_(rows, columns)])
        return blocks[key]

    usages = tuple(EdgeUsage(usage.start, usage.stop, block(usage.matrix)) for usage in edge.usages)
    return Edge(
        edge.source, edge.target, source_class.astype(np.int32), target_class.astype(np.int32),
        block(edge.matrix), edge.multiplicity, usages,
    )  # fmt: skip
