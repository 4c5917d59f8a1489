"""Which nodes determine which: a strategy of the one end of an edge leaves the other a single one.

Determination is transitive: a forest of nodes, each of which its root determines.
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
    """Does edge e leave its other node a single strategy for each possible one of node i? Which, goes to follow."""
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
        found = -1
        for t in range(classes_there):
            if alone[t] != -1 and edges.cells[row + t * step_there] < FORBIDDEN:
                if found != -1 or alone[t] == -2:
                    return False
                found = alone[t]
        follow[x] = max(found, 0)
    return True


@cached_njit()
def _grow_array(values, end, more):  # type: ignore[no-untyped-def]
    """The values up to `end`, with room for more behind them."""
    if end + more <= values.size:
        return values
    roomy = np.empty(2 * values.size + more, np.int64)
    for p in range(end):
        roomy[p] = values[p]
    return roomy


@cached_njit(error_model="numpy")
def _build_forest(order, fixed, edges, node_start, cost, follow, alone, first, incident, root, at):  # type: ignore[no-untyped-def]
    """Trees of nodes that their root determines: root[i], and maps[at[i] + x], what i takes where its root takes x."""
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
                if root[j] != -1 or fixed[j] or not _is_determined(edges, e, i, node_start, cost, follow, alone):
                    continue
                root[j], at[j], queue[tail] = top, end, j
                maps = _grow_array(maps, end, k)
                for x in range(k):
                    maps[end + x] = follow[maps[at[i] + x]]
                tail, end = tail + 1, end + k
    return maps


class DependencyForest(NamedTuple):
    """For each node its root (its own, or -1 for one that is not there), and maps[at[i] + x]: what it takes where its
    root takes strategy x."""

    root: Integers
    at: Integers
    maps: Integers

    def apply_map(self, values: Integers, values_at: Integers, node: Integers, *, sizes: Integers) -> Integers:
        """Rows of values by strategies of nodes, as rows (of these sizes, laid end to end) by those of their roots."""
        row, x = ragged_indices(sizes)
        carried: Integers = values[values_at[row] + self.maps[self.at[node][row] + x]]
        return carried


def find_dependencies(state: PresolveState, fresh: Flags) -> DependencyForest:
    """By edges at fresh nodes. The more strategies a node has the sooner it is a root: whatever can follow, follows."""
    possible = np.add.reduceat(state.cost < FORBIDDEN, state.node_start[:-1], dtype=np.int64)
    order = np.argsort(-possible, kind="stable")
    order, edges = order[state.alive[order]], state.edges
    which = (edges.own < 0) & (fresh[edges.low] | fresh[edges.high])
    follow, alone = np.empty(int(state.sizes.max()), np.int64), np.empty(edges.most_classes, np.int64)
    root, at = np.full(state.alive.size, -1), np.zeros(state.alive.size, np.int64)
    graph = edges, state.node_start, state.cost, follow, alone, *state.incidence(which)
    maps = _build_forest(order, state.has_edge_usage, *graph, root, at)
    return DependencyForest(root, at, maps)
