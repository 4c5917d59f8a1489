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

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from solvers.layout import Layout
from solvers.potentials import Potentials

Integers = NDArray[np.int64]


@njit(cache=True, error_model="numpy")
def _sweep(  # type: ignore[no-untyped-def]  # noqa: C901
    forward, node_start, first, incident, low, high, low_start, high_start, low_class, high_class, rows, columns,
    theta, pair, pair_transposed, pair_at, to_low, to_high, slack, cap, split, largest, classes,
):  # fmt: skip
    """One pass in either direction; returns the constant as (high part, low 40 bits)."""
    count = node_start.size - 1
    aggregate = np.empty(largest, np.int64)
    share = np.empty(largest, np.int64)
    by_class = np.empty(classes, np.int64)
    reduced = np.empty(classes, np.int64)
    unused = np.int64(1) << 61
    carry = np.int64(0)
    constant = np.int64(0)
    for step in range(count):
        i = step if forward else count - 1 - step
        begin = node_start[i]
        k = node_start[i + 1] - begin
        for x in range(k):
            aggregate[x] = theta[begin + x]
        onward = 0
        for at in range(first[i], first[i + 1]):
            e = incident[at]
            start, messages = (low_start[e], to_low) if low[e] == i else (high_start[e], to_high)
            message = messages[start : start + k]
            onward += (low[e] == i) == forward
            for x in range(k):
                aggregate[x] += message[x]
        least = aggregate[0]
        for x in range(k):
            least = min(least, aggregate[x])
        constant += least
        parts = max(onward, first[i + 1] - first[i] - onward) * split
        if parts == 0:
            parts = 1
        for x in range(k):
            aggregate[x] -= least
            share[x] = aggregate[x] // parts
            slack[begin + x] = aggregate[x] - onward * share[x]
        for at in range(first[i], first[i + 1]):
            e = incident[at]
            if (low[e] == i) != forward:
                continue
            j = high[e] if forward else low[e]
            others = node_start[j + 1] - node_start[j]
            if forward:
                mine = to_low[low_start[e] : low_start[e] + k]
                cls = low_class[low_start[e] : low_start[e] + k]
                theirs = to_high[high_start[e] : high_start[e] + others]
                other_cls = high_class[high_start[e] : high_start[e] + others]
                height, width, matrix = rows[e], columns[e], pair
            else:
                mine = to_high[high_start[e] : high_start[e] + k]
                cls = high_class[high_start[e] : high_start[e] + k]
                theirs = to_low[low_start[e] : low_start[e] + others]
                other_cls = low_class[low_start[e] : low_start[e] + others]
                height, width, matrix = columns[e], rows[e], pair_transposed
            for s in range(height):
                by_class[s] = unused
            for x in range(k):
                by_class[cls[x]] = min(by_class[cls[x]], share[x] - mine[x])
            for t in range(width):
                reduced[t] = unused
            for s in range(height):
                value = by_class[s]
                if value == unused:
                    continue
                row = matrix[pair_at[e] + s * width : pair_at[e] + (s + 1) * width]
                for t in range(width):
                    reduced[t] = min(reduced[t], value + row[t])
            least = unused
            for y in range(others):
                least = min(least, reduced[other_cls[y]])
            constant += least
            for y in range(others):
                theirs[y] = min(reduced[other_cls[y]] - least, cap)
        carry += constant >> 40
        constant &= (np.int64(1) << 40) - 1
    return carry, constant


@njit(cache=True, error_model="numpy")
def _decode(  # type: ignore[no-untyped-def]  # noqa: C901
    conditional, node_start, first, incident, low, high, low_start, high_start, low_class, high_class, columns,
    theta, pair, pair_at, to_low, to_high, choice, largest,
):  # fmt: skip
    """Choose node by node: exact costs to chosen neighbours, messages (unless conditional) for the ones after."""
    aggregate = np.empty(largest, np.int64)
    changed = 0
    for i in range(node_start.size - 1):
        begin = node_start[i]
        k = node_start[i + 1] - begin
        for x in range(k):
            aggregate[x] = theta[begin + x]
        for at in range(first[i], first[i + 1]):
            e = incident[at]
            if low[e] == i:
                if conditional:
                    cls = low_class[low_start[e] : low_start[e] + k]
                    column = pair_at[e] + high_class[high_start[e] + choice[high[e]]]
                    for x in range(k):
                        aggregate[x] += pair[column + cls[x] * columns[e]]
                else:
                    message = to_low[low_start[e] : low_start[e] + k]
                    for x in range(k):
                        aggregate[x] += message[x]
            else:
                cls = high_class[high_start[e] : high_start[e] + k]
                row = pair_at[e] + low_class[low_start[e] + choice[low[e]]] * columns[e]
                for x in range(k):
                    aggregate[x] += pair[row + cls[x]]
        best = choice[i] if conditional else 0
        for x in range(k):
            if aggregate[x] < aggregate[best]:
                best = x
        changed += best != choice[i]
        choice[i] = best
    return changed


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """Edges turned so that they lead from the lower to the higher node, and each node's incident edges."""

    layout: Layout
    turned: NDArray[np.bool_]
    low: Integers
    high: Integers
    low_start: Integers
    high_start: Integers
    low_class: Integers
    high_class: Integers
    rows: Integers
    columns: Integers
    first: Integers
    incident: Integers
    largest: int
    classes: int

    @staticmethod
    def of(layout: Layout) -> Topology:
        turned = layout.source > layout.target
        shift = layout.source_class.size
        classes = np.concatenate([layout.source_class, layout.target_class])
        source_start, target_start = layout.source_start[:-1], layout.target_start[:-1] + shift
        ends = np.concatenate([layout.source, layout.target])
        edges = np.concatenate([np.arange(layout.source.size), np.arange(layout.target.size)])
        counts = np.bincount(ends, minlength=layout.node_start.size - 1)
        return Topology(
            layout=layout,
            turned=turned,
            low=np.where(turned, layout.target, layout.source),
            high=np.where(turned, layout.source, layout.target),
            low_start=np.where(turned, target_start, source_start),
            high_start=np.where(turned, source_start, target_start),
            low_class=classes,
            high_class=classes,
            rows=np.where(turned, layout.width, layout.height),
            columns=np.where(turned, layout.height, layout.width),
            first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            incident=edges[np.argsort(ends, kind="stable")].astype(np.int64),
            largest=int(np.diff(layout.node_start).max(initial=1)),
            classes=int(max(layout.width.max(initial=1), layout.height.max(initial=1))),
        )

    @property
    def degree(self) -> int:
        """The most edges at one node."""
        return int(np.diff(self.first).max(initial=0))


class Messages:
    """The messages of one topology; they stay when potentials change, and any potentials may be passed over them."""

    def __init__(self, topology: Topology, values: Integers | None = None) -> None:
        self.topology = topology
        # Both ends' messages live in one array, laid out as the classes are.
        self.values = np.zeros(topology.low_class.size, np.int64) if values is None else values.copy()
        self.slack = np.zeros(int(topology.layout.node_start[-1]), np.int64)

    def copy(self) -> Messages:
        """The same messages, free to go their own way."""
        return Messages(self.topology, self.values)

    def sweep(self, potentials: Potentials, forward: bool, split: int = 1) -> int:
        """One pass; a lower bound on every choice's scaled cost. slack[x]: what choosing x adds to it at least."""
        t = self.topology
        carry, rest = _sweep(
            forward, t.layout.node_start, t.first, t.incident, t.low, t.high, t.low_start, t.high_start,
            t.low_class, t.high_class, t.rows, t.columns, potentials.theta, potentials.pair,
            potentials.pair_transposed, potentials.pair_at, self.values, self.values, self.slack,
            potentials.cap, split, t.largest, t.classes,
        )  # fmt: skip
        return (int(carry) << 40) + int(rest)

    def decode(self, potentials: Potentials) -> Integers:
        """A choice, from first node to last, as the messages of a backward pass see it."""
        choice = np.zeros(self.topology.layout.node_start.size - 1, np.int64)
        self._decode(potentials, choice, False)
        return choice

    def descend(self, potentials: Potentials, choice: Integers, rounds: int = 20) -> Integers:
        """Change one node at a time to its best, all others fixed, until nothing changes."""
        choice = choice.copy()
        for _ in range(rounds):
            if not self._decode(potentials, choice, True):
                break
        return choice

    def _decode(self, potentials: Potentials, choice: Integers, conditional: bool) -> int:
        t = self.topology
        changed = _decode(
            conditional, t.layout.node_start, t.first, t.incident, t.low, t.high, t.low_start, t.high_start,
            t.low_class, t.high_class, t.columns, potentials.theta, potentials.pair, potentials.pair_at,
            self.values, self.values, choice, t.largest,
        )  # fmt: skip
        return int(changed)
