"""Colour refinement of an assignment problem: which of its nodes look alike up to a depth.

The label of a node consists of its strategies' costs; that of an edge of its matrix, the classes of both ends, and its
rank among the edges into its target, which for an op is the number of the operand. Names do not count. A node's *view*
of depth d consists of its label, and of the labels and the views of depth d - 1 over its edges (Weisfeiler and Leman,
1968). Numbers of views are exact: nodes of equal number have equal views, not just equal hashes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.choose.fold.interning import ArrayInterner
from solvers import Problem


class LabelledEdge(NamedTuple):
    """An edge, as seen from one end: the node at the other end, and the edge's label."""

    other: int
    label: int


@dataclass(frozen=True, eq=False)
class LabelledGraph:
    """Labels of the nodes, and for each node the edges into it (by rank) and out of it (in the problem's order)."""

    labels: list[int]
    in_edges: list[list[LabelledEdge]]
    out_edges: list[list[LabelledEdge]]

    @classmethod
    def of(cls, problem: Problem, contents: ArrayInterner) -> LabelledGraph:
        into: list[list[LabelledEdge]] = [[] for _ in problem.nodes]
        out: list[list[LabelledEdge]] = [[] for _ in problem.nodes]
        number = contents.number
        keys: dict[Hashable, int] = {}
        for edge in problem.edges:
            content = number(edge.matrix, edge.kinds), number(edge.source_class), number(edge.target_class)
            key = (*content, edge.multiplicity, len(into[edge.target]))
            label = keys.setdefault(key, len(keys))
            into[edge.target].append(LabelledEdge(edge.source, label))
            out[edge.source].append(LabelledEdge(edge.target, label))
        return cls(_number_keys([(number(node.cost), node.multiplicity) for node in problem.nodes]), into, out)

    def colours(self, depth: int) -> list[list[int]]:
        """Return the number of each node's view, `[depth + 1][nodes]`."""
        colours = [self.labels]
        for _ in range(depth):
            inner = colours[-1]
            ends = zip(inner, self.in_edges, self.out_edges, strict=True)
            colours.append(
                _number_keys(
                    # -1 separates edges into a node from edges out of it: no label is negative.
                    [(own, *_refine_colours(into, inner), -1, *_refine_colours(out, inner)) for own, into, out in ends]
                )
            )
        return colours

    def find_depths(self) -> list[int]:
        """Return the longest path to each node, in edges from an earlier node to a later one."""
        depths: list[int] = []
        for v, links in enumerate(self.in_edges):
            depths.append(1 + max((depths[link.other] for link in links if link.other < v), default=-1))
        return depths


def _refine_colours(links: list[LabelledEdge], inner: list[int]) -> list[int]:
    """Return a number for each pair of a label and a view; view numbers are below the number of nodes."""
    # One integer per pair sorts and hashes much faster than a tuple.
    return sorted([label * len(inner) + inner[other] for other, label in links])


def _number_keys(keys: Sequence[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
