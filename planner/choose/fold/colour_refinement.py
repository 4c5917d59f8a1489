"""A choice problem as a labelled graph, and how much of it looks alike from each of its nodes.

The label of a node is what its strategies cost; that of an edge its matrix, the classes of both ends, and its rank
among the edges into its target, which for an op is the number of the operand. No name takes part. A node's *view*
of depth d is its label with the labels and the views of depth d - 1 over its edges (colour refinement, Weisfeiler
and Leman 1968): nodes of equal number have equal views, not just equal hashes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.choose.fold.interning import ArrayInterner
from solvers import Problem


class LabelledEdge(NamedTuple):
    """An edge as one of its ends has it: the node at the other end, the edge's label."""

    other: int
    label: int


@dataclass(frozen=True, eq=False)
class LabelledGraph:
    """Labels of nodes, and per node the edges into it (by rank) and out of it (in the problem's order)."""

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
            content = number(edge.matrix), number(edge.source_class), number(edge.target_class)
            key = (*content, edge.multiplicity, len(into[edge.target]))
            label = keys.setdefault(key, len(keys))
            into[edge.target].append(LabelledEdge(edge.source, label))
            out[edge.source].append(LabelledEdge(edge.target, label))
        return cls(_number_keys([(number(node.cost), node.multiplicity) for node in problem.nodes]), into, out)

    def colours(self, depth: int) -> list[list[int]]:
        """[depth + 1][nodes]: the number of every node's view, by depth."""
        found = [self.labels]
        for _ in range(depth):
            inner = found[-1]
            ends = zip(inner, self.in_edges, self.out_edges, strict=True)
            found.append(
                _number_keys(
                    [(own, *_refine_colours(into, inner), -1, *_refine_colours(out, inner)) for own, into, out in ends]
                )
            )
        return found

    def find_depths(self) -> list[int]:
        """The longest way to every node, in edges that lead from an earlier node to a later one."""
        found: list[int] = []
        for v, links in enumerate(self.in_edges):
            found.append(1 + max((found[link.other] for link in links if link.other < v), default=-1))
        return found


def _refine_colours(links: list[LabelledEdge], inner: list[int]) -> list[int]:
    """A number for every pair of a label and a view; there are fewer views than nodes."""
    return sorted([label * len(inner) + inner[other] for other, label in links])


def _number_keys(keys: Sequence[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
