"""A problem as flat arrays that the reductions change in place.

* Strategies keep their numbers: strategy x of node i has the flat index node_start[i] + x, and is removed by setting
  its cost to FORBIDDEN.
* The class of strategy x at edge e's low end is classes[low_at[e] + x], and likewise for the high end.
* The pair (s, t) costs cells[pair_at[e] + s * low_step[e] + t * high_step[e]]: with steps an edge can be turned without
  transposing its matrix, which other edges may share.
* Strategy x of the node of span q uses usage[at[q] + x] bytes over [start[q], stop[q]).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.model import IMPOSSIBLE
from solvers.problem_arrays import PartPool, ProblemArrays, compute_offsets, own_kinds, ragged_arange

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

FORBIDDEN = 1 << 60
"""The cost of everything forbidden inside presolve, to which sums are cut: above every sum of permitted costs (presolve
requires it to be below IMPOSSIBLE), and low enough that a few of it add up within int64."""


class EdgeArrays(NamedTuple):
    """The edges, each from a lower to a higher node: one entry per edge, except in `classes` and `cells`."""

    low: Integers
    high: Integers
    low_at: Integers
    high_at: Integers
    low_classes: Integers
    high_classes: Integers
    pair_at: Integers
    low_step: Integers
    high_step: Integers
    classes: Integers
    cells: Integers

    def select(self, which: Flags | Integers) -> EdgeArrays:
        """Return only these edges."""
        return EdgeArrays._make([*(column[which] for column in self[:9]), *self[9:]])

    @property
    def most_classes(self) -> int:
        """The largest number of classes at an end of an edge, at least 1."""
        return int(max(self.low_classes.max(initial=1), self.high_classes.max(initial=1)))

    def drop_unused_cells(self, idle: int) -> EdgeArrays:
        """Return the edges without the cells that none of them reads, if these are more than `idle`."""
        at, first, anew = np.unique(self.pair_at, return_index=True, return_inverse=True)
        sizes = (self.low_classes * self.high_classes)[first]
        if self.cells.size - int(sizes.sum()) <= idle:
            return self
        row, place = ragged_indices(sizes)
        return self._replace(cells=self.cells[at[row] + place], pair_at=compute_offsets(sizes)[:-1][anew])


class UsageArrays(NamedTuple):
    """The spans, ordered by node: one entry per span, except in `usage`."""

    node: Integers
    start: Integers
    stop: Integers
    at: Integers
    usage: Integers

    def select(self, which: Flags | Integers) -> UsageArrays:
        """Return only these spans."""
        return UsageArrays._make([*(column[which] for column in self[:4]), self.usage])

    def renumber_steps(self, new: Integers) -> UsageArrays:
        """Return the spans with time step t renumbered to new[t]; empty spans are dropped."""
        start, stop = new[self.start], new[self.stop]
        return self._replace(start=start, stop=stop).select(start < stop)

    def first(self, nodes: int) -> Integers:
        """Return the offsets of each node's spans, [nodes + 1]."""
        first: Integers = np.searchsorted(self.node, np.arange(nodes + 1))
        return first


def ragged_indices(sizes: Integers) -> tuple[Integers, Integers]:
    """Return, for rows of these sizes laid end to end, each entry's row and its position in the row."""
    return np.repeat(np.arange(sizes.size), sizes), ragged_arange(compute_offsets(sizes))


def copy_costs(cost: Integers) -> Integers:
    """Copy costs, replacing those of IMPOSSIBLE or more by FORBIDDEN."""
    return np.where(cost < IMPOSSIBLE, cost, FORBIDDEN)


def with_own_kinds(arrays: ProblemArrays) -> ProblemArrays:
    """Return the arrays of a problem without usage on edges with an entry of its own for every pair of classes, which
    reductions then change apart. Equal matrices are stored once."""
    if not arrays.kind_start.any():
        return arrays
    pool, sizes = PartPool(np.zeros(0, np.int64)), arrays.height * arrays.width
    keys = zip(arrays.pair_start.tolist(), arrays.kind_start.tolist(), sizes.tolist(), strict=True)
    starts = [pool.add(key, arrays.costs_of, edge) for edge, key in enumerate(keys)]
    own = own_kinds(arrays.height, arrays.width)
    return replace(arrays, **own, pair_start=np.array(starts, np.int64), pair_cost=pool.concatenate())


def build_edge_arrays(arrays: ProblemArrays) -> EdgeArrays:
    """Build the edges of a problem, oriented from the lower to the higher node."""
    turned = arrays.source > arrays.target
    one = np.ones_like(arrays.width)
    source_at = arrays.source_start[:-1]
    target_at = arrays.target_start[:-1] + arrays.source_class.size

    def ends(source: Integers, target: Integers) -> tuple[Integers, Integers]:
        return np.where(turned, target, source), np.where(turned, source, target)

    return EdgeArrays(
        *ends(arrays.source, arrays.target), *ends(source_at, target_at), *ends(arrays.height, arrays.width),
        arrays.pair_start.copy(), *ends(arrays.width, one),
        np.concatenate([arrays.source_class, arrays.target_class]), copy_costs(arrays.pair_cost),
    )  # fmt: skip


def build_usage_arrays(arrays: ProblemArrays) -> UsageArrays:
    """Build the spans of a problem, without those in which nothing is used."""
    node, at, usage = arrays.span_node, arrays.span_at, arrays.span_usage
    if not node.size:
        return UsageArrays(node, node, node, node, usage)
    some = (arrays.span_stop > arrays.span_start) & np.logical_or.reduceat(usage != 0, at)
    which = np.flatnonzero(some)
    which = which[np.argsort(node[which], kind="stable")]
    return UsageArrays(node[which], arrays.span_start[which], arrays.span_stop[which], at[which], usage)


@cached_njit()
def orient_edge(edges, e, i):  # type: ignore[no-untyped-def]
    """Return edge e seen from its node i: (start of classes, step, number of classes) here, the other node, and the
    same there."""
    if edges.low[e] == i:
        here = (edges.low_at[e], edges.low_step[e], edges.low_classes[e])
        return here, edges.high[e], (edges.high_at[e], edges.high_step[e], edges.high_classes[e])
    here = (edges.high_at[e], edges.high_step[e], edges.high_classes[e])
    return here, edges.low[e], (edges.low_at[e], edges.low_step[e], edges.low_classes[e])


@cached_njit()
def incidence(low, high, which, nodes):  # type: ignore[no-untyped-def]
    """Return (first, incident): node i's edges among `which` are incident[first[i] : first[i + 1]], ascending."""
    # A counting sort. Counts are shifted by two, so that first[i + 1] serves as node i's fill pointer in the second
    # pass and ends up as node i + 1's start.
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
