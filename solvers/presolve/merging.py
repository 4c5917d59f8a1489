"""Edges between the same two nodes become one.

A class of the merged edge is a pair of classes, one of each; its cost is the sum of theirs: exact. Not done where the
merged table would be larger than the two (and not small), nor to edges with usage.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from solvers.presolve.flat import Edges, Flat
from solvers.presolve.tables import FORBIDDEN

Integers = NDArray[np.int64]
SMALL = 256


@njit(cache=True, error_model="numpy", inline="always")
def _paired(cost, classes, own, other, seen):  # type: ignore[no-untyped-def]
    """Overwrite the classes `own` of possible strategies by those of the pairs with `other`; how many there are."""
    seen[:] = -1
    count = 0
    for x in range(own.size):
        if cost[x] >= FORBIDDEN:
            own[x] = 0
            continue
        pair = own[x] * classes + other[x]
        if seen[pair] == -1:
            seen[pair] = count
            count += 1
        own[x] = seen[pair]
    return count


@njit(cache=True, error_model="numpy")
def _merge(  # type: ignore[no-untyped-def]
    group, order, node_start, cost, low, high, low_at, high_at, low_classes, high_classes, pair_at, low_step, high_step,
    classes, cells, merged, new_classes, new_cells, shape,
):  # fmt: skip
    """Each group order[group[g]:group[g + 1]] into its first edge, as far as that pays; the rest stay unmerged."""
    at, end = 0, 0
    for g in range(group.size - 1):
        e = order[group[g]]
        first, second = (
            cost[node_start[low[e]] : node_start[low[e] + 1]],
            cost[node_start[high[e]] : node_start[high[e] + 1]],
        )
        a, b = first.size, second.size
        rows, columns = classes[low_at[e] : low_at[e] + a].copy(), classes[high_at[e] : high_at[e] + b].copy()
        height, width = low_classes[e], high_classes[e]
        table = np.empty((height, width), np.int64)
        for s in range(height):
            for t in range(width):
                table[s, t] = cells[pair_at[e] + s * low_step[e] + t * high_step[e]]
        for f in order[group[g] + 1 : group[g + 1]]:
            more, wide = classes[low_at[f] : low_at[f] + a], classes[high_at[f] : high_at[f] + b]
            new_rows, new_columns = rows.copy(), columns.copy()
            h = _paired(first, low_classes[f], new_rows, more, np.empty(height * low_classes[f], np.int64))
            w = _paired(second, high_classes[f], new_columns, wide, np.empty(width * high_classes[f], np.int64))
            if h * w > max(height * width + low_classes[f] * high_classes[f], SMALL):
                continue
            both = np.empty((h, w), np.int64)
            for x in range(a):
                if first[x] < FORBIDDEN:
                    for y in range(b):
                        if second[y] < FORBIDDEN:
                            own = cells[pair_at[f] + more[x] * low_step[f] + wide[y] * high_step[f]]
                            both[new_rows[x], new_columns[y]] = min(table[rows[x], columns[y]] + own, FORBIDDEN)
            rows, columns, table, height, width, merged[f] = new_rows, new_columns, both, h, w, True
        new_classes[at : at + a], new_classes[at + a : at + a + b] = rows, columns
        new_cells[end : end + height * width] = table.ravel()
        shape[g, 0], shape[g, 1], shape[g, 2], shape[g, 3] = at, end, height, width
        at, end = at + a + b, end + height * width
    return at, end


def merge_parallel(flat: Flat) -> Edges:
    """The edges with those of one pair of nodes merged; edges with usage stay."""
    e = flat.edges
    free = np.flatnonzero(e.own < 0)
    order = free[np.lexsort((free, e.high[free], e.low[free]))]
    new = np.ones(order.size, bool)
    new[1:] = (np.diff(e.low[order]) != 0) | (np.diff(e.high[order]) != 0)
    first = np.flatnonzero(new)
    sizes = np.diff(np.append(first, order.size))
    several = sizes > 1
    if not several.any():
        return e
    inside = np.repeat(several, sizes)
    order, heads = order[inside], order[first[several]]
    group = np.concatenate([[0], np.cumsum(sizes[several])])
    room = np.add.reduceat(e.low_classes[order] * e.high_classes[order] + SMALL, group[:-1])
    room = np.minimum(room, flat.sizes[e.low[heads]] * flat.sizes[e.high[heads]])
    room = np.maximum(room, e.low_classes[heads] * e.high_classes[heads])
    merged, shape = np.zeros(e.low.size, bool), np.zeros((heads.size, 4), np.int64)
    classes = np.empty(int((flat.sizes[e.low[heads]] + flat.sizes[e.high[heads]]).sum()), np.int64)
    cells = np.empty(int(room.sum()), np.int64)
    used, filled = _merge(
        group, order, flat.node_start, flat.cost, e.low, e.high, e.low_at, e.high_at, e.low_classes, e.high_classes,
        e.pair_at, e.low_step, e.high_step, e.classes, e.cells, merged, classes, cells, shape,
    )  # fmt: skip
    merged[heads] = True
    at, end, height, width = shape.T
    made = Edges(
        e.low[heads], e.high[heads], at, at + flat.sizes[e.low[heads]], height, width, end, width, np.ones_like(width),
        np.full(heads.size, -1), classes[:used], cells[:filled].copy(),
    )  # fmt: skip
    return e.taken(~merged).joined(made)
