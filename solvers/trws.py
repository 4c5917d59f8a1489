"""Sequential tree-reweighted message passing (TRW-S), wholly in integers, so that every pass is a proof.

V. Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", PAMI 2006. A message is
a vector moved from an edge to one of its ends: added to the node's costs, subtracted from the edge's. It
never changes the cost of a choice. One pass visits the nodes in order. At node i,
D = cost + all incoming messages; min D joins the constant and leaves D; a share D // max(before, after) >= 0 goes to
each edge that leads on, where  m(y) = min_x share(x) - M(x) + cost(x, y)  becomes the new message to the other
end, less its own minimum, which joins the constant too. What remains at nodes and edges is >= 0, so the
constant of one pass is a lower bound for *any* messages before it and *any* shares that sum to at most D.
Floor division, and cutting values down to a cap, only lower the bound: no rounding can make it false.

The minimum over x goes by classes: k + S T operations for k strategies and an S x T matrix.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import Potentials

Integers = NDArray[np.int64]
UNREACHED = np.int64(1 << 61)


@cached_njit(nogil=True, error_model="numpy")
def _copy(source, target):  # type: ignore[no-untyped-def]
    """`target[: source.size] = source`, whose check of shapes would take longer to compile than all else here."""
    for x in range(source.size):
        target[x] = source[x]


@cached_njit(nogil=True, error_model="numpy", inline="always")
def _send(share, by_class, reduced, own, message, theirs, sent, matrix, at, cap):  # type: ignore[no-untyped-def]
    """Write the message to the far end: sent[y] = min over x of share(x) - message(x) + matrix[class of x, class of y],
    less its own minimum, which is returned. By class first, then row by row."""
    by_class[:] = UNREACHED
    for x in range(own.size):
        by_class[own[x]] = min(by_class[own[x]], share[x] - message[x])
    reduced[:] = UNREACHED
    width = reduced.size
    for s in range(by_class.size):
        value = by_class[s]
        row = matrix[at + s * width : at + (s + 1) * width]
        for t in range(width):
            reduced[t] = min(reduced[t], value + row[t])
    least = UNREACHED
    for y in range(theirs.size):
        least = min(least, reduced[theirs[y]])
    for y in range(theirs.size):
        sent[y] = min(reduced[theirs[y]] - least, cap)
    return least


@cached_njit(nogil=True, error_model="numpy")
def _sweep(  # type: ignore[no-untyped-def]
    order, node_start, first, ends, onward_first, onward_edges, far, near_start, far_start, classes_of, heights,
    widths, theta, matrix, matrix_at, messages, min_marginals, slack, cap, split, largest, classes,
):  # fmt: skip
    """One pass along edges from their near to their far end; returns the constant as (high part, low 40 bits)."""
    share = np.empty(largest, np.int64)
    by_class, reduced = np.empty(classes, np.int64), np.empty(classes, np.int64)
    carry, constant = np.int64(0), np.int64(0)
    for i in order:
        begin, k = node_start[i], node_start[i + 1] - node_start[i]
        aggregate = min_marginals[begin : begin + k]
        _copy(theta[begin : begin + k], aggregate)
        for start in ends[first[i] : first[i + 1]]:
            incoming = messages[start : start + k]
            for x in range(k):
                aggregate[x] += incoming[x]
        least = aggregate[0]
        for x in range(1, k):
            least = min(least, aggregate[x])
        constant += least
        onward = onward_first[i + 1] - onward_first[i]
        parts = max(max(onward, first[i + 1] - first[i] - onward) * split, 1)
        for x in range(k):
            aggregate[x] -= least
            share[x] = aggregate[x] // parts if parts > 1 else aggregate[x]
            slack[begin + x] = aggregate[x] - onward * share[x]
        for e in onward_edges[onward_first[i] : onward_first[i + 1]]:
            mine, theirs = near_start[e], far_start[e]
            others = node_start[far[e] + 1] - node_start[far[e]]
            constant += _send(
                share, by_class[: heights[e]], reduced[: widths[e]],
                classes_of[mine : mine + k], messages[mine : mine + k],
                classes_of[theirs : theirs + others], messages[theirs : theirs + others], matrix, matrix_at[e], cap,
            )  # fmt: skip
        carry += constant >> 40
        constant &= (np.int64(1) << 40) - 1
    return carry, constant


@cached_njit(nogil=True, error_model="numpy")
def _decode(  # type: ignore[no-untyped-def]
    order, chosen, node_start, first, incident, low, high, low_start, high_start, classes_of, columns,
    theta, pair, pair_at, messages, assignment, largest,
):  # fmt: skip
    """Choose node by node: exact costs to chosen neighbours, messages for those not yet chosen."""
    aggregate = np.empty(largest, np.int64)
    changed = 0
    for i in order:
        begin, k = node_start[i], node_start[i + 1] - node_start[i]
        _copy(theta[begin : begin + k], aggregate)
        for e in incident[first[i] : first[i + 1]]:
            lower, upper = low_start[e], high_start[e]
            if low[e] != i and chosen[low[e]]:
                row = pair_at[e] + classes_of[lower + assignment[low[e]]] * columns[e]
                for x in range(k):
                    aggregate[x] += pair[row + classes_of[upper + x]]
            elif low[e] == i and chosen[high[e]]:
                column = pair_at[e] + classes_of[upper + assignment[high[e]]]
                for x in range(k):
                    aggregate[x] += pair[column + classes_of[lower + x] * columns[e]]
            else:
                start = lower if low[e] == i else upper
                for x in range(k):
                    aggregate[x] += messages[start + x]
        best = assignment[i] if chosen[i] else 0
        for x in range(k):
            if aggregate[x] < aggregate[best]:
                best = x
        changed += best != assignment[i]
        assignment[i], chosen[i] = best, True
    return changed


class TrwsMessages:
    """The messages of one topology; they stay when potentials change, and any potentials may be passed over them."""

    def __init__(self, graph: OrientedGraph, values: Integers | None = None) -> None:
        self.graph = graph
        self.values = np.zeros(graph.classes_of.size, np.int64) if values is None else values.copy()
        self.reduced_costs = np.zeros(int(graph.arrays.node_start[-1]), np.int64)
        self.min_marginals = np.zeros_like(self.reduced_costs)

    def copy(self) -> TrwsMessages:
        """The same messages, free to go their own way."""
        return TrwsMessages(self.graph, self.values)

    def sweep(self, potentials: Potentials, forward: bool, split: int = 1) -> int:
        """One pass; a lower bound on every choice's scaled cost. slack[x]: what choosing x adds to it at least;
        marginal[x]: what all of x's incoming messages and cost make it dearer than its node's cheapest."""
        t, count = self.graph, self.graph.arrays.node_start.size - 1
        order = np.arange(count) if forward else np.arange(count - 1, -1, -1)
        low, high = (t.low, t.low_start, t.rows), (t.high, t.high_start, t.columns)
        (_, near_start, heights), (far, far_start, widths) = (low, high) if forward else (high, low)
        onward = (t.low_first, t.low_edges) if forward else (t.high_first, t.high_edges)
        matrix = potentials.pair if forward else potentials.pair_transposed
        carry, rest = _sweep(
            order, t.arrays.node_start, t.first, t.ends, *onward, far, near_start, far_start, t.classes_of, heights,
            widths, potentials.theta, matrix, potentials.pair_at, self.values, self.min_marginals, self.reduced_costs,
            potentials.cap, split, t.largest, t.classes,
        )  # fmt: skip
        return (int(carry) << 40) + int(rest)

    def decode(self, potentials: Potentials, order: Integers | None = None) -> Integers:
        """A choice node by node, as the messages see it: in this order, or from first to last."""
        count = self.graph.arrays.node_start.size - 1
        assignment = np.zeros(count, np.int64)
        self._decode(potentials, assignment, np.arange(count) if order is None else order, chosen=np.zeros(count, bool))
        return assignment

    def run_icm(self, potentials: Potentials, assignment: Integers, rounds: int = 20) -> Integers:
        """Change one node at a time to its best, all others fixed, until nothing changes."""
        assignment, order = assignment.copy(), np.arange(assignment.size)
        for _ in range(rounds):
            if not self._decode(potentials, assignment, order, chosen=np.ones(assignment.size, bool)):
                break
        return assignment

    def _decode(
        self, potentials: Potentials, assignment: Integers, order: Integers, *, chosen: NDArray[np.bool_]
    ) -> int:
        t = self.graph
        changed = _decode(
            order, chosen, t.arrays.node_start, t.first, t.incident, t.low, t.high, t.low_start, t.high_start,
            t.classes_of, t.columns, potentials.theta, potentials.pair, potentials.pair_at,
            self.values, assignment, t.largest,
        )  # fmt: skip
        return int(changed)
