"""A problem as flat arrays that shrink in place: what every reduction reads and writes.

Strategies keep their numbers: strategy x of node i stands at node_start[i] + x and is out once it costs FORBIDDEN. The
class of strategy x of edge e's low end stands at low_at[e] + x of `classes`, and likewise for the high end; the pair
(s, t) costs cells[pair_at[e] + s * low_step[e] + t * high_step[e]], so that an edge turns round without its matrix,
and edges may share one. Strategy x of the node of span q uses usage[at[q] + x] over [start[q], stop[q]).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.layout import Layout, begins, numbered
from solvers.parts import IMPOSSIBLE

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

FORBIDDEN = 1 << 60
"""What is impossible costs this inside presolve; sums are cut down to it."""


class Edges(NamedTuple):
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

    def taken(self, which: Flags | Integers) -> Edges:
        """Only these edges."""
        return Edges._make([*(column[which] for column in self[:10]), *self[10:]])

    @property
    def most_classes(self) -> int:
        """Of any end of any edge, at least 1."""
        return int(max(self.low_classes.max(initial=1), self.high_classes.max(initial=1)))

    def compact(self, idle: int) -> Edges:
        """Without the cells that no edge reads, if they are more than so many."""
        at, first, anew = np.unique(self.pair_at, return_index=True, return_inverse=True)
        sizes = (self.low_classes * self.high_classes)[first]
        if self.cells.size - int(sizes.sum()) <= idle:
            return self
        row, place = ragged(sizes)
        return self._replace(cells=self.cells[at[row] + place], pair_at=begins(sizes)[:-1][anew])


class Uses(NamedTuple):
    """One entry per span, ordered by node, but for `usage`."""

    node: Integers
    start: Integers
    stop: Integers
    at: Integers
    usage: Integers

    def taken(self, which: Flags | Integers) -> Uses:
        """Only these spans."""
        return Uses._make([*(column[which] for column in self[:4]), self.usage])

    def at_moments(self, new: Integers) -> Uses:
        """With moment t renumbered new[t]; spans without a moment left vanish."""
        start, stop = new[self.start], new[self.stop]
        return self._replace(start=start, stop=stop).taken(start < stop)

    def first(self, nodes: int) -> Integers:
        """Where each node's spans begin, and the last's end."""
        first: Integers = np.searchsorted(self.node, np.arange(nodes + 1))
        return first


class EdgeUses(NamedTuple):
    """Usages on edges, by the edge's number in the problem; pairs stand as those of its cells do."""

    own: Integers
    start: Integers
    stop: Integers
    at: Integers
    size: Integers
    usage: Integers


def ragged(sizes: Integers) -> tuple[Integers, Integers]:
    """Of rows laid end to end: each entry's row, and its place in the row."""
    return np.repeat(np.arange(sizes.size), sizes), numbered(begins(sizes))


def costs_of(cost: Integers) -> Integers:
    """A copy with what is forbidden at FORBIDDEN."""
    return np.where(cost < IMPOSSIBLE, cost, FORBIDDEN)


def edges_of(layout: Layout) -> Edges:
    """Every edge runs from the lower of its nodes to the higher."""
    own = np.full(layout.source.size, -1)
    own[layout.edge_usage_edge] = layout.edge_usage_edge
    turned = layout.source > layout.target
    one = np.ones_like(layout.width)
    source_at = layout.source_start[:-1]
    target_at = layout.target_start[:-1] + layout.source_class.size

    def ends(source: Integers, target: Integers) -> tuple[Integers, Integers]:
        return np.where(turned, target, source), np.where(turned, source, target)

    return Edges(
        *ends(layout.source, layout.target), *ends(source_at, target_at), *ends(layout.height, layout.width),
        layout.pair_start.copy(), *ends(layout.width, one), own,
        np.concatenate([layout.source_class, layout.target_class]), costs_of(layout.pair_cost),
    )  # fmt: skip


def uses_of(layout: Layout) -> Uses:
    """The spans in which anything is used."""
    node, at, usage = layout.span_node, layout.span_at, layout.span_usage
    if not node.size:
        return Uses(node, node, node, node, usage)
    some = (layout.span_stop > layout.span_start) & np.logical_or.reduceat(usage != 0, at)
    which = np.flatnonzero(some)
    which = which[np.argsort(node[which], kind="stable")]
    return Uses(node[which], layout.span_start[which], layout.span_stop[which], at[which], usage)


def edge_uses_of(layout: Layout) -> EdgeUses:
    """All of them."""
    size = (layout.height * layout.width)[layout.edge_usage_edge]
    return EdgeUses(
        layout.edge_usage_edge, layout.edge_usage_start, layout.edge_usage_stop, layout.edge_usage_pair_start, size,
        layout.pair_usage,
    )  # fmt: skip


@cached_njit()
def seen_from(edges, e, i):  # type: ignore[no-untyped-def]
    """Edge e from its node i: where the classes here stand, step, how many; the other node, and the same there."""
    if edges.low[e] == i:
        here = (edges.low_at[e], edges.low_step[e], edges.low_classes[e])
        return here, edges.high[e], (edges.high_at[e], edges.high_step[e], edges.high_classes[e])
    here = (edges.high_at[e], edges.high_step[e], edges.high_classes[e])
    return here, edges.low[e], (edges.low_at[e], edges.low_step[e], edges.low_classes[e])


@cached_njit()
def incidence(low, high, which, nodes):  # type: ignore[no-untyped-def]
    """first[i] to first[i + 1]: where node i's edges (of those asked for, ascending) stand in the second array."""
    first = np.zeros(nodes + 2, np.int64)
    for e in which:
        first[low[e] + 2] += 1
        first[high[e] + 2] += 1
    for i in range(nodes):
        first[i + 2] += first[i + 1]
    incident = np.empty(2 * which.size, np.int64)
    for e in which:
        incident[first[low[e] + 1]] = e
        first[low[e] + 1] += 1
        incident[first[high[e] + 1]] = e
        first[high[e] + 1] += 1
    return first[:-1], incident
