"""A problem as flat arrays that shrink: what the reductions that work on all of it at once read and leave.

Strategies keep their numbers: strategy x of node i stands at node_start[i] + x and is out once it costs FORBIDDEN. The
class of strategy x of edge e's low end stands at low_at[e] + x of `classes`, and likewise for the high end; the pair
(s, t) costs cells[pair_at[e] + s * low_step[e] + t * high_step[e]], so that an edge turns round without its matrix.
Strategy x of the node of span q uses span_usage[span_at[q] + x] over [span_start[q], span_stop[q]).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.parts import IMPOSSIBLE
from solvers.presolve.tables import FORBIDDEN
from solvers.problem import Problem

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """One entry per edge, but for `classes` and `cells`. own: the problem's edge, if that has usage, otherwise -1."""

    low: Integers
    high: Integers
    low_at: Integers
    high_at: Integers
    low_classes: Integers
    high_classes: Integers
    pair_at: Integers
    low_step: Integers
    high_step: Integers
    own: Integers
    classes: Integers
    cells: Integers

    def taken(self, which: NDArray[np.bool_] | Integers) -> Edges:
        """Only these edges."""
        per_edge = [getattr(self, name)[which] for name in Edges.__slots__[:10]]
        return Edges(*[*per_edge, self.classes, self.cells])

    def joined(self, other: Edges) -> Edges:
        """These edges and, after them, those."""
        parts = [np.concatenate([getattr(self, name), getattr(other, name)]) for name in Edges.__slots__]
        count, columns = self.low.size, Edges.__slots__
        for name, by in (("low_at", self.classes), ("high_at", self.classes), ("pair_at", self.cells)):
            parts[columns.index(name)][count:] += by.size
        return Edges(*parts)


@dataclass(frozen=True, slots=True, eq=False)
class Uses:
    """One entry per span, but for `usage`."""

    node: Integers
    start: Integers
    stop: Integers
    at: Integers
    usage: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Flat:
    """The whole; `cost` alone is written to."""

    node_start: Integers
    cost: Integers
    edges: Edges
    uses: Uses

    @property
    def sizes(self) -> Integers:
        """How many strategies each node had."""
        return np.diff(self.node_start)


def ragged(sizes: Integers) -> tuple[Integers, Integers]:
    """Of rows laid end to end: each entry's row, and its place in the row."""
    row = np.repeat(np.arange(sizes.size), sizes)
    return row, np.arange(row.size) - (np.cumsum(sizes) - sizes)[row]


def starts(sizes: Integers) -> Integers:
    """Where rows laid end to end begin."""
    first: Integers = np.cumsum(sizes) - sizes
    return first


def flattened(problem: Problem) -> Flat:
    """Forbidden costs are FORBIDDEN, every edge runs from the lower of its nodes to the higher."""
    layout = problem.layout
    own = np.full(layout.source.size, -1)
    own[layout.edge_usage_edge] = layout.edge_usage_edge
    turned = layout.source > layout.target
    one = np.ones_like(layout.width)
    source_at = layout.source_start[:-1]
    target_at = layout.target_start[:-1] + layout.source_class.size

    def ends(source: Integers, target: Integers) -> tuple[Integers, Integers]:
        return np.where(turned, target, source), np.where(turned, source, target)

    edges = Edges(
        *ends(layout.source, layout.target), *ends(source_at, target_at), *ends(layout.height, layout.width),
        layout.pair_start, *ends(layout.width, one), own, np.concatenate([layout.source_class, layout.target_class]),
        np.where(layout.pair_cost < IMPOSSIBLE, layout.pair_cost, FORBIDDEN),
    )  # fmt: skip
    cost = np.where(layout.cost < IMPOSSIBLE, layout.cost, FORBIDDEN)
    used = np.repeat(layout.span_stop > layout.span_start, np.diff(layout.node_start)[layout.span_node])
    uses = Uses(
        layout.span_node, layout.span_start, layout.span_stop, layout.span_at, np.where(used, layout.span_usage, 0)
    )
    return Flat(layout.node_start, cost, edges, uses)
