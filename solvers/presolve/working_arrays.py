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
from solvers.model import IMPOSSIBLE
from solvers.problem_arrays import ProblemArrays, compute_offsets, ragged_arange

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

FORBIDDEN = 1 << 60
"""What is impossible costs this inside presolve; sums are cut down to it."""


class EdgeArrays(NamedTuple):
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

    def select(self, which: Flags | Integers) -> EdgeArrays:
        """Only these edges."""
        return EdgeArrays._make([*(column[which] for column in self[:10]), *self[10:]])

    @property
    def most_classes(self) -> int:
        """Of any end of any edge, at least 1."""
        return int(max(self.low_classes.max(initial=1), self.high_classes.max(initial=1)))

    def drop_unused_cells(self, idle: int) -> EdgeArrays:
        """Without the cells that no edge reads, if they are more than so many."""
        at, first, anew = np.unique(self.pair_at, return_index=True, return_inverse=True)
        sizes = (self.low_classes * self.high_classes)[first]
        if self.cells.size - int(sizes.sum()) <= idle:
            return self
        row, place = ragged_indices(sizes)
        return self._replace(cells=self.cells[at[row] + place], pair_at=compute_offsets(sizes)[:-1][anew])


class UsageArrays(NamedTuple):
    """One entry per span, ordered by node, but for `usage`."""

    node: Integers
    start: Integers
    stop: Integers
    at: Integers
    usage: Integers

    def select(self, which: Flags | Integers) -> UsageArrays:
        """Only these spans."""
        return UsageArrays._make([*(column[which] for column in self[:4]), self.usage])

    def renumber_steps(self, new: Integers) -> UsageArrays:
        """With moment t renumbered new[t]; spans without a moment left vanish."""
        start, stop = new[self.start], new[self.stop]
        return self._replace(start=start, stop=stop).select(start < stop)

    def first(self, nodes: int) -> Integers:
        """Where each node's spans begin, and the last's end."""
        first: Integers = np.searchsorted(self.node, np.arange(nodes + 1))
        return first


class EdgeUsageArrays(NamedTuple):
    """Usages on edges, by the edge's number in the problem; pairs stand as those of its cells do."""

    own: Integers
    start: Integers
    stop: Integers
    at: Integers
    size: Integers
    usage: Integers


def ragged_indices(sizes: Integers) -> tuple[Integers, Integers]:
    """Of rows laid end to end: each entry's row, and its place in the row."""
    return np.repeat(np.arange(sizes.size), sizes), ragged_arange(compute_offsets(sizes))


def copy_costs(cost: Integers) -> Integers:
    """A copy with what is forbidden at FORBIDDEN."""
    return np.where(cost < IMPOSSIBLE, cost, FORBIDDEN)


def build_edge_arrays(arrays: ProblemArrays) -> EdgeArrays:
    """Every edge runs from the lower of its nodes to the higher."""
    own = np.full(arrays.source.size, -1)
    own[arrays.edge_usage_edge] = arrays.edge_usage_edge
    turned = arrays.source > arrays.target
    one = np.ones_like(arrays.width)
    source_at = arrays.source_start[:-1]
    target_at = arrays.target_start[:-1] + arrays.source_class.size

    def ends(source: Integers, target: Integers) -> tuple[Integers, Integers]:
        return np.where(turned, target, source), np.where(turned, source, target)

    return EdgeArrays(
        *ends(arrays.source, arrays.target), *ends(source_at, target_at), *ends(arrays.height, arrays.width),
        arrays.pair_start.copy(), *ends(arrays.width, one), own,
        np.concatenate([arrays.source_class, arrays.target_class]), copy_costs(arrays.pair_cost),
    )  # fmt: skip


def build_usage_arrays(arrays: ProblemArrays) -> UsageArrays:
    """The spans in which anything is used."""
    node, at, usage = arrays.span_node, arrays.span_at, arrays.span_usage
    if not node.size:
        return UsageArrays(node, node, node, node, usage)
    some = (arrays.span_stop > arrays.span_start) & np.logical_or.reduceat(usage != 0, at)
    which = np.flatnonzero(some)
    which = which[np.argsort(node[which], kind="stable")]
    return UsageArrays(node[which], arrays.span_start[which], arrays.span_stop[which], at[which], usage)


def build_edge_usage_arrays(arrays: ProblemArrays) -> EdgeUsageArrays:
    """All of them."""
    size = (arrays.height * arrays.width)[arrays.edge_usage_edge]
    return EdgeUsageArrays(
        arrays.edge_usage_edge, arrays.edge_usage_start, arrays.edge_usage_stop, arrays.edge_usage_pair_start, size,
        arrays.pair_usage,
    )  # fmt: skip


@cached_njit()
def orient_edge(edges, e, i):  # type: ignore[no-untyped-def]
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
