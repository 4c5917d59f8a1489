"""Functional dependencies: edges where each strategy at one end permits a single strategy at the other.

The relation is transitive, so that dependent nodes form a forest in which the root determines every node of its tree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.presolve.state import PresolveState
from solvers.presolve.working_arrays import FORBIDDEN, orient_edge, ragged_indices

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@cached_njit(error_model="numpy")
def _is_determined(edges, e, i, node_start, cost, follow, alone):  # type: ignore[no-untyped-def]
    """Return whether edge e permits a single strategy of its other node for each permitted strategy x of node i, and
    write it to follow[x].

    alone: scratch by class at the other end: its only permitted strategy, -1 if it has none, -2 if it has several.
    """
    (at, step, _), j, (at_there, step_there, classes_there) = orient_edge(edges, e, i)
    for t in range(classes_there):
        alone[t] = -1
    for y in range(node_start[j + 1] - node_start[j]):
        if cost[node_start[j] + y] < FORBIDDEN:
            t = edges.classes[at_there + y]
            alone[t] = y if alone[t] == -1 else -2
    for x in range(node_start[i + 1] - node_start[i]):
        if cost[node_start[i] + x] >= FORBIDDEN:
            follow[x] = 0
            continue
        row = edges.pair_at[e] + edges.classes[at + x] * step
        partner = -1
        for t in range(classes_there):
            if alone[t] != -1 and edges.cells[row + t * step_there] < FORBIDDEN:
                if partner != -1 or alone[t] == -2:
                    return False
                partner = alone[t]
        follow[x] = max(partner, 0)
    return True


@cached_njit()
def _grow_array(values, end, more):  # type: ignore[no-untyped-def]
    """Return an array with the first `end` values and room for `more` behind them."""
    if end + more <= values.size:
        return values
    roomy = np.empty(2 * values.size + more, np.int64)
    for p in range(end):
        roomy[p] = values[p]
    return roomy


@cached_njit(error_model="numpy")
def _build_forest(order, edges, node_start, cost, follow, alone, first, incident, root, at):  # type: ignore[no-untyped-def]
    """Build the trees, breadth first from the nodes in `order`; fill root and at, return maps (see DependencyForest).

    follow, alone: scratch of _is_determined.
    """
    queue, maps, end = np.empty(order.size, np.int64), np.empty(order.size, np.int64), 0
    for top in order:
        if root[top] != -1:
            continue
        k = node_start[top + 1] - node_start[top]
        queue[0], root[top], at[top] = top, top, end
        head, tail, maps = 0, 1, _grow_array(maps, end, k)
        for x in range(k):
            maps[end + x] = x
        end += k
        while head < tail:
            i = queue[head]
            head += 1
            for q in range(first[i], first[i + 1]):
                e = incident[q]
                j = edges.high[e] if edges.low[e] == i else edges.low[e]
                if root[j] != -1 or not _is_determined(edges, e, i, node_start, cost, follow, alone):
                    continue
                root[j], at[j], queue[tail] = top, end, j
                maps = _grow_array(maps, end, k)
                for x in range(k):
                    maps[end + x] = follow[maps[at[i] + x]]
                tail, end = tail + 1, end + k
    return maps


class DependencyForest(NamedTuple):
    """Each node's root (itself for a root, -1 for a node that is gone), and its strategy maps[at[i] + x] where the root
    has strategy x."""

    root: Integers
    at: Integers
    maps: Integers

    def apply_map(self, values: Integers, values_at: Integers, node: Integers, *, sizes: Integers) -> Integers:
        """Convert rows of values by nodes' strategies to rows by their roots' strategies, laid end to end.

        Row r belongs to node[r] and begins at values_at[r]; sizes: the number of strategies of each root.
        """
        row, x = ragged_indices(sizes)
        mapped: Integers = values[values_at[row] + self.maps[self.at[node][row] + x]]
        return mapped


def find_dependencies(state: PresolveState, dirty: Flags) -> DependencyForest:
    """Find dependencies through edges at the flagged nodes.

    Nodes with more permitted strategies become roots first: only a node with at least as many can determine another's.
    """
    possible = np.add.reduceat(state.cost < FORBIDDEN, state.node_start[:-1], dtype=np.int64)
    order = np.argsort(-possible, kind="stable")
    order, edges = order[state.alive[order]], state.edges
    which = dirty[edges.low] | dirty[edges.high]
    follow, alone = np.empty(int(state.sizes.max()), np.int64), np.empty(edges.most_classes, np.int64)
    root, at = np.full(state.alive.size, -1), np.zeros(state.alive.size, np.int64)
    graph = edges, state.node_start, state.cost, follow, alone, *state.incidence(which)
    maps = _build_forest(order, *graph, root, at)
    return DependencyForest(root, at, maps)
