"""Sequential tree-reweighted message passing (TRW-S) in integers, so that the bound of every pass is a proof.

V. Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", PAMI 2006. A message is a vector
that is added to the costs of a node and subtracted from an incident edge's: a reparametrisation, which leaves the cost
of every assignment as it is. One pass visits the nodes in order. At node i:

1. D(x) = cost(x) + the sum of the incoming messages M(x). min D is added to the constant and subtracted from D.
2. Each edge that leads on receives the share D // max(edges before, edges after) >= 0.
3. The new message to the edge's far end is m(y) = min_x share(x) - M(x) + cost(x, y), less its own minimum, which is
   added to the constant as well.

What remains at nodes and edges is >= 0, so the constant of one pass is a lower bound of every assignment's cost, for
*any* messages before it and *any* shares that sum to at most D. Rounding shares down and cutting values to a cap only
lower the bound; no rounding can invalidate it.

The minimum over x is taken per class first: k + S T operations for k strategies and an S x T matrix.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit, copy_values
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import Potentials

Integers = NDArray[np.int64]
# The initial value of minima, above every sum of potentials.
UNREACHED = np.int64(1 << 61)


@cached_njit(nogil=True, error_model="numpy", inline="always")
def _send(  # type: ignore[no-untyped-def]
    share, by_class, reduced, own, message, theirs, sent, matrix, at, by_rows, cap
):
    """Write the message to the far end, sent[y] = min_x share[x] - message[x] + cost(class of x, class of y) less its
    own minimum, and return that minimum.

    own, theirs: the classes of the strategies at the near and at the far end. by_class, reduced: scratch, one entry per
    class at the near and at the far end. The matrix begins at `at` and is read row by row: its rows are the classes at
    the near end (by_rows) or at the far end.
    """
    by_class[:] = UNREACHED
    for x in range(own.size):
        by_class[own[x]] = min(by_class[own[x]], share[x] - message[x])
    if by_rows:
        reduced[:] = UNREACHED
        width = reduced.size
        for s in range(by_class.size):
            value = by_class[s]
            row = matrix[at + s * width : at + (s + 1) * width]
            for t in range(width):
                reduced[t] = min(reduced[t], value + row[t])
    else:
        width = by_class.size
        for t in range(reduced.size):
            row = matrix[at + t * width : at + (t + 1) * width]
            nearest = UNREACHED
            for s in range(width):
                nearest = min(nearest, by_class[s] + row[s])
            reduced[t] = nearest
    least = UNREACHED
    for y in range(theirs.size):
        least = min(least, reduced[theirs[y]])
    for y in range(theirs.size):
        sent[y] = min(reduced[theirs[y]] - least, cap)
    return least


@cached_njit(nogil=True, error_model="numpy")
def run_sweep(  # type: ignore[no-untyped-def]
    way, node_start, first, ends, classes_of, theta, matrix, matrix_at, messages, min_marginals, slack, cap, split,
    largest, classes,
):  # fmt: skip
    """Pass messages once along the edges from their near to their far ends; way: a SweepArrays.

    Writes messages, min_marginals and slack (the reduced costs). Returns the constant as (high part, low 40 bits):
    with many nodes the sum can exceed 64 bits.
    """
    share = np.empty(largest, np.int64)
    by_class, reduced = np.empty(classes, np.int64), np.empty(classes, np.int64)
    carry, constant = np.int64(0), np.int64(0)
    onward_first, far, near_start, far_start = way.onward_first, way.far, way.near_start, way.far_start
    for i in way.order:
        begin, k = node_start[i], node_start[i + 1] - node_start[i]
        aggregate = min_marginals[begin : begin + k]
        copy_values(theta[begin : begin + k], aggregate)
        for start in ends[first[i] : first[i + 1]]:
            incoming = messages[start : start + k]
            for x in range(k):
                aggregate[x] += incoming[x]
        least = aggregate[0]
        for x in range(1, k):
            least = min(least, aggregate[x])
        constant += least
        onward = onward_first[i + 1] - onward_first[i]
        # Kolmogorov's weights: with max(before, after) parts no pass lowers the bound, rounding aside.
        parts = max(max(onward, first[i + 1] - first[i] - onward) * split, 1)
        for x in range(k):
            aggregate[x] -= least
            share[x] = aggregate[x] // parts if parts > 1 else aggregate[x]
            slack[begin + x] = aggregate[x] - onward * share[x]
        for e in way.onward_edges[onward_first[i] : onward_first[i + 1]]:
            mine, theirs = near_start[e], far_start[e]
            others = node_start[far[e] + 1] - node_start[far[e]]
            constant += _send(
                share, by_class[: way.heights[e]], reduced[: way.widths[e]],
                classes_of[mine : mine + k], messages[mine : mine + k],
                classes_of[theirs : theirs + others], messages[theirs : theirs + others],
                matrix, matrix_at[e], way.by_rows, cap,
            )  # fmt: skip
        carry += constant >> 40
        constant &= (np.int64(1) << 40) - 1
    return carry, constant


@cached_njit(nogil=True, error_model="numpy")
def _decode(  # type: ignore[no-untyped-def]
    order, chosen, node_start, first, incident, low, high, low_start, high_start, classes_of, columns,
    theta, pair, pair_at, messages, assignment, largest,
):  # fmt: skip
    """Choose a strategy node by node: exact costs to neighbours that are chosen, messages from those that are not.

    Ties keep the present strategy of a node that is already chosen, so repeated calls terminate. Returns how many
    nodes changed.
    """
    aggregate = np.empty(largest, np.int64)
    changed = 0
    for i in order:
        begin, k = node_start[i], node_start[i + 1] - node_start[i]
        copy_values(theta[begin : begin + k], aggregate)
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
    """The messages of one graph. They are kept when the potentials change: any messages are valid for any potentials.

    A sweep also leaves, for each strategy x (flat), reduced_costs[x], a lower bound of what choosing x adds to the
    constant, and min_marginals[x], by how much x is above its node's cheapest strategy given all incoming messages.
    Both are in scaled units.
    """

    def __init__(self, graph: OrientedGraph, values: Integers | None = None) -> None:
        self.graph = graph
        self.values = np.zeros(graph.classes_of.size, np.int64) if values is None else values.copy()
        self.reduced_costs = np.zeros(int(graph.arrays.node_start[-1]), np.int64)
        self.min_marginals = np.zeros_like(self.reduced_costs)

    def copy(self) -> TrwsMessages:
        """Return an independent copy of the messages."""
        return TrwsMessages(self.graph, self.values)

    def sweep(self, potentials: Potentials, forward: bool, split: int = 1) -> int:
        """Pass messages once, to higher nodes if `forward`, and return a lower bound of all assignments' scaled costs.

        split: a node gives its edges 1/split of what it could. With 2 the bound rises more slowly, and larger reduced
        costs stay at the nodes.
        """
        graph = self.graph
        carry, rest = run_sweep(
            graph.forward if forward else graph.backward, graph.arrays.node_start, graph.first, graph.ends,
            graph.classes_of, potentials.theta, potentials.pair, potentials.pair_at,
            self.values, self.min_marginals, self.reduced_costs, potentials.cap, split, graph.largest, graph.classes,
        )  # fmt: skip
        return (int(carry) << 40) + int(rest)

    def decode(self, potentials: Potentials, order: Integers | None = None) -> Integers:
        """Return an assignment chosen node by node from costs and messages, in this order (None: first to last)."""
        count = self.graph.arrays.node_start.size - 1
        assignment = np.zeros(count, np.int64)
        self._decode(potentials, assignment, np.arange(count) if order is None else order, chosen=np.zeros(count, bool))
        return assignment

    def run_icm(self, potentials: Potentials, assignment: Integers, rounds: int = 20) -> Integers:
        """Improve an assignment by iterated conditional modes: set each node to its best with all others fixed, until a
        round changes nothing."""
        assignment, order = assignment.copy(), np.arange(assignment.size)
        for _ in range(rounds):
            if not self._decode(potentials, assignment, order, chosen=np.ones(assignment.size, bool)):
                break
        return assignment

    def _decode(
        self, potentials: Potentials, assignment: Integers, order: Integers, *, chosen: NDArray[np.bool_]
    ) -> int:
        graph = self.graph
        changed = _decode(
            order, chosen, graph.arrays.node_start, graph.first, graph.incident, graph.low, graph.high,
            graph.low_start, graph.high_start, graph.classes_of, graph.columns,
            potentials.theta, potentials.pair, potentials.pair_at, self.values, assignment, graph.largest,
        )  # fmt: skip
        return int(changed)
