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

from planner.choose.fold.content import Contents
from solvers import Problem


class Link(NamedTuple):
    """An edge as one of its ends has it: the node at the other end, the edge's label."""

    other: int
    label: int


@dataclass(frozen=True, eq=False)
class Structure:
    """Labels of nodes, and per node the edges into it (by rank) and out of it (in the problem's order)."""

    labels: list[int]
    into: list[list[Link]]
    out: list[list[Link]]

    @classmethod
    def of(cls, problem: Problem, contents: Contents) -> Structure:
        into: list[list[Link]] = [[] for _ in problem.nodes]
        out: list[list[Link]] = [[] for _ in problem.nodes]
        number = contents.number
        keys: dict[Hashable, int] = {}
        for edge in problem.edges:
            content = number(edge.matrix), number(edge.source_class), number(edge.target_class)
            key = (*content, edge.multiplicity, len(into[edge.target]))
            label = keys.setdefault(key, len(keys))
            into[edge.target].append(Link(edge.source, label))
            out[edge.source].append(Link(edge.target, label))
        return cls(_numbered([(number(node.cost), node.multiplicity) for node in problem.nodes]), into, out)

    def views(self, depth: int) -> list[list[int]]:
        """[depth + 1][nodes]: the number of every node's view, by depth."""
        found = [self.labels]
        for _ in range(depth):
            inner = found[-1]
            ends = zip(inner, self.into, self.out, strict=True)
            found.append(_numbered([(own, *_seen(into, inner), -1, *_seen(out, inner)) for own, into, out in ends]))
        return found

    def levels(self) -> list[int]:
        """The longest way to every node, in edges that lead from an earlier node to a later one."""
        found: list[int] = []
        for v, links in enumerate(self.into):
            found.append(1 + max((found[link.other] for link in links if link.other < v), default=-1))
        return found


def _seen(links: list[Link], inner: list[int]) -> list[int]:
    """A number for every pair of a label and a view; there are fewer views than nodes."""
    return sorted([label * len(inner) + inner[other] for other, label in links])


def _numbered(keys: Sequence[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
