"""Merging of parallel edges: edges between the same two nodes become one.

A class of the merged edge is a pair of classes, one of each edge, and costs add up, which is exact. Edges stay apart
where the merged table would be larger than the two together, unless it is small.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.presolve.state import PresolveState
from solvers.presolve.working_arrays import FORBIDDEN

Integers = NDArray[np.int64]

# Merged tables of up to this many cells are always made.
SMALL = 256


@cached_njit(error_model="numpy")
def _pair_classes(node_start, cost, i, classes, one, ones, two, twos):  # type: ignore[no-untyped-def]
    """Number the pairs of classes (from `one` and `two` on) that permitted strategies of node i have; return the number
    of each strategy's pair and how many there are."""
    k, count = node_start[i + 1] - node_start[i], 0
    paired, seen = np.zeros(k, np.int64), np.zeros(ones * twos, np.int64)
    for x in range(k):
        if cost[node_start[i] + x] < FORBIDDEN:
            pair = classes[one + x] * twos + classes[two + x]
            if seen[pair] == 0:
                count += 1
                seen[pair] = count
            paired[x] = seen[pair] - 1
    return paired, count


@cached_njit(error_model="numpy")
def _add_edge_costs(edges, e, f, node_start, cost, rows, columns, width, at):  # type: ignore[no-untyped-def]
    """Write the sum of both edges' costs for the new classes at `at`, and give edge e these classes."""
    i, j = node_start[edges.low[e]], node_start[edges.high[e]]
    for x in range(rows.size):
        s = edges.pair_at[e] + edges.classes[edges.low_at[e] + x] * edges.low_step[e]
        more = edges.pair_at[f] + edges.classes[edges.low_at[f] + x] * edges.low_step[f]
        for y in range(columns.size):
            if cost[i + x] < FORBIDDEN and cost[j + y] < FORBIDDEN:
                total = edges.cells[s + edges.classes[edges.high_at[e] + y] * edges.high_step[e]]
                total += edges.cells[more + edges.classes[edges.high_at[f] + y] * edges.high_step[f]]
                edges.cells[at + rows[x] * width + columns[y]] = min(total, FORBIDDEN)
    for x in range(rows.size):
        edges.classes[edges.low_at[e] + x] = rows[x]
    for y in range(columns.size):
        edges.classes[edges.high_at[e] + y] = columns[y]


@cached_njit(error_model="numpy")
def _merge(group, order, edges, node_start, cost, end, merged):  # type: ignore[no-untyped-def]
    """Merge each group of edges order[group[g] : group[g + 1]] into its first, where that pays.

    New cells are written from `end` on; returns where they end. merged: flags of the edges that changed or went.
    """
    for g in range(group.size - 1):
        e = order[group[g]]
        i, j, i_at, j_at, classes = edges.low[e], edges.high[e], edges.low_at[e], edges.high_at[e], edges.classes
        for p in range(group[g] + 1, group[g + 1]):
            f, a, b = order[p], edges.low_classes[e], edges.high_classes[e]
            c, d = edges.low_classes[f], edges.high_classes[f]
            rows, h = _pair_classes(node_start, cost, i, classes, i_at, a, edges.low_at[f], c)
            columns, w = _pair_classes(node_start, cost, j, classes, j_at, b, edges.high_at[f], d)
            if h * w > max(a * b + c * d, SMALL):
                continue
            _add_edge_costs(edges, e, f, node_start, cost, rows, columns, w, end)
            edges.low_classes[e], edges.high_classes[e], edges.pair_at[e] = h, w, end
            edges.low_step[e], edges.high_step[e], merged[f], merged[e] = w, 1, True, True
            end += h * w
    return end


def merge_parallel_edges(state: PresolveState, turn: int) -> None:
    """Merge parallel edges at changed nodes, where that pays."""
    dirty, e = state.take_dirty(turn), state.edges
    free = np.flatnonzero(dirty[e.low] | dirty[e.high])
    order = free[np.lexsort((free, e.high[free], e.low[free]))]
    new = np.ones(order.size, bool)
    new[1:] = (np.diff(e.low[order]) != 0) | (np.diff(e.high[order]) != 0)
    sizes = np.diff(np.append(np.flatnonzero(new), order.size))
    order, several = order[np.repeat(sizes > 1, sizes)], sizes[sizes > 1]
    if several.size:
        _merge_groups(state, order, np.concatenate([[0], np.cumsum(several)]))
    state.mark_clean(turn)


def _merge_groups(state: PresolveState, order: Integers, group: Integers) -> None:
    """Merge groups of parallel edges, order[group[g] : group[g + 1]], after allocating the most cells they can need."""
    e, sizes, heads = state.edges, state.sizes, order[group[:-1]]
    table = np.add.reduceat(e.low_classes[order] * e.high_classes[order], group[:-1]) + SMALL
    table = np.minimum(table, sizes[e.low[heads]] * sizes[e.high[heads]])
    room, merged = int((table * (np.diff(group) - 1)).sum()), np.zeros(e.low.size, bool)
    edges = e._replace(cells=np.concatenate([e.cells, np.empty(room, np.int64)]))
    end = _merge(group, order, edges, state.node_start, state.cost, e.cells.size, merged)
    state.mark_dirty(e.low[merged])
    state.mark_dirty(e.high[merged])
    merged[heads] = False
    state.edges = edges._replace(cells=edges.cells[:end].copy()).select(~merged)
