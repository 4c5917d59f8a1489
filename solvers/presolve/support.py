"""Arc consistency and determination over flat arrays: the two questions about what the edges allow.

Arc consistency: a strategy that some edge forbids whatever the other end takes goes (A. Mackworth, "Consistency in
networks of relations", 1977). Determination: a strategy of the one end leaves the other a single one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from solvers.presolve.flat import Flat, ragged
from solvers.presolve.tables import FORBIDDEN

Integers = NDArray[np.int64]


@njit(cache=True, error_model="numpy")
def _revise(cost, mine, own_at, own_step, theirs, their_at, their_step, classes, cells, at, used, good):  # type: ignore[no-untyped-def]
    """Forbid the strategies [mine) that no possible one of [theirs) goes with; were there any?"""
    used[:] = False
    good[:] = 0
    for y in range(theirs[1] - theirs[0]):
        if cost[theirs[0] + y] < FORBIDDEN:
            used[classes[their_at + y]] = True
    gone = False
    for x in range(mine[1] - mine[0]):
        if cost[mine[0] + x] >= FORBIDDEN:
            continue
        s = classes[own_at + x]
        if good[s] == 0:
            good[s] = 2
            row = at + s * own_step
            for t in range(used.size):
                if used[t] and cells[row + t * their_step] < FORBIDDEN:
                    good[s] = 1
                    break
        if good[s] == 2:
            cost[mine[0] + x] = FORBIDDEN
            gone = True
    return gone


@njit(cache=True, error_model="numpy")
def _consistent(  # type: ignore[no-untyped-def]
    node_start, cost, low, high, low_at, high_at, low_classes, high_classes, pair_at, low_step, high_step, classes,
    cells, first, incident,
):  # fmt: skip
    """Revise along a queue of nodes of which something went (at first all)."""
    count, largest = node_start.size - 1, max(low_classes.max(), high_classes.max())
    used, good = np.empty(largest, np.bool_), np.empty(largest, np.int8)
    queue, waits = np.arange(count), np.ones(count, np.bool_)
    head, length = 0, count
    while length:
        i = queue[head]
        head, length = (head + 1) % count, length - 1
        waits[i] = False
        for e in incident[first[i] : first[i + 1]]:
            if low[e] == i:
                j, own_at, own_step, own_count = high[e], high_at[e], high_step[e], high_classes[e]
                at, step, classes_there = low_at[e], low_step[e], low_classes[e]
            else:
                j, own_at, own_step, own_count = low[e], low_at[e], low_step[e], low_classes[e]
                at, step, classes_there = high_at[e], high_step[e], high_classes[e]
            if _revise(
                cost, node_start[j : j + 2], own_at, own_step, node_start[i : i + 2], at, step, classes, cells,
                pair_at[e], used[:classes_there], good[:own_count],
            ) and not waits[j]:  # fmt: skip
                waits[j] = True
                queue[(head + length) % count] = j
                length += 1


@njit(cache=True, error_model="numpy")
def _single(cost, mine, own_at, own_step, theirs, their_at, their_step, classes, cells, at, follow, alone):  # type: ignore[no-untyped-def]
    """Does each possible strategy of [mine) allow one of [theirs) alone? Which, goes to follow."""
    alone[:] = -1
    for y in range(theirs[1] - theirs[0]):
        if cost[theirs[0] + y] < FORBIDDEN:
            t = classes[their_at + y]
            alone[t] = y if alone[t] == -1 else -2
    for x in range(mine[1] - mine[0]):
        if cost[mine[0] + x] >= FORBIDDEN:
            follow[x] = 0
            continue
        row = at + classes[own_at + x] * own_step
        found = -1
        for t in range(alone.size):
            if alone[t] != -1 and cells[row + t * their_step] < FORBIDDEN:
                if found != -1 or alone[t] == -2:
                    return False
                found = alone[t]
        follow[x] = max(found, 0)
    return True


@njit(cache=True, error_model="numpy")
def _follows(e, i, j, arrays, follow, alone):  # type: ignore[no-untyped-def]
    """Does edge e leave node j a single strategy for each of node i? Which, goes to follow."""
    (
        node_start, cost, low, _, low_at, high_at, low_classes, high_classes, pair_at, low_step, high_step, classes,
        cells,
    ) = arrays  # fmt: skip
    mine, theirs = node_start[i : i + 2], node_start[j : j + 2]
    if low[e] == i:
        return _single(
            cost, mine, low_at[e], low_step[e], theirs, high_at[e], high_step[e], classes, cells, pair_at[e], follow,
            alone[: high_classes[e]],
        )  # fmt: skip
    return _single(
        cost, mine, high_at[e], high_step[e], theirs, low_at[e], low_step[e], classes, cells, pair_at[e], follow,
        alone[: low_classes[e]],
    )  # fmt: skip


@njit(cache=True, error_model="numpy")
def _forest(order, fixed, arrays, first, incident):  # type: ignore[no-untyped-def]
    """Trees of nodes that their root determines: root[i], and map[at[i] + x], what i takes where its root takes x."""
    node_start, (low, high), (low_classes, high_classes) = arrays[0], arrays[2:4], arrays[6:8]
    count, follow = node_start.size - 1, np.empty(np.diff(node_start).max(), np.int64)
    alone = np.empty(max(low_classes.max(), high_classes.max()), np.int64)
    root, at, queue = np.full(count, -1), np.zeros(count, np.int64), np.empty(count, np.int64)
    maps, end = np.empty(max(2 * node_start[-1], 4 * follow.size), np.int64), 0
    for top in order:
        if root[top] != -1:
            continue
        k = node_start[top + 1] - node_start[top]
        queue[0], root[top], at[top] = top, top, end
        if end + 2 * follow.size > maps.size:
            maps = np.concatenate((maps, np.empty_like(maps)))
        maps[end : end + k] = np.arange(k)
        head, tail, end = 0, 1, end + k
        while head < tail:
            i = queue[head]
            head += 1
            for e in incident[first[i] : first[i + 1]]:
                j = high[e] if low[e] == i else low[e]
                if root[j] != -1 or fixed[j] or not _follows(e, i, j, arrays, follow, alone):
                    continue
                root[j], at[j] = top, end
                maps[end : end + k] = follow[maps[at[i] : at[i] + k]]
                queue[tail] = j
                tail, end = tail + 1, end + k
                if end + follow.size > maps.size:
                    maps = np.concatenate((maps, np.empty_like(maps)))
    return root, at, maps[:end]


def _incidence(flat: Flat, which: NDArray[np.bool_]) -> tuple[Integers, Integers]:
    """first[i] to first[i + 1]: where node i's edges (of those asked for) stand in the second."""
    edges, count = np.flatnonzero(which), flat.node_start.size - 1
    ends = np.concatenate([flat.edges.low[edges], flat.edges.high[edges]])
    order = np.argsort(ends, kind="stable")
    first = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(ends, minlength=count), out=first[1:])
    return first, np.concatenate([edges, edges])[order]


def _arrays(flat: Flat) -> tuple[Integers, ...]:
    e = flat.edges
    return (
        flat.node_start, flat.cost, e.low, e.high, e.low_at, e.high_at, e.low_classes, e.high_classes, e.pair_at,
        e.low_step, e.high_step, e.classes, e.cells,
    )  # fmt: skip


def forbid_unsupported(flat: Flat) -> None:
    """Until every possible strategy has a possible partner across every edge."""
    if flat.edges.low.size:
        _consistent(*[*_arrays(flat), *_incidence(flat, np.ones(flat.edges.low.size, bool))])


class Forest(NamedTuple):
    """For each node its root (its own, or -1 for one that is not there), and maps[at[i] + x]: what it takes where its
    root takes strategy x."""

    root: Integers
    at: Integers
    maps: Integers

    def carried(self, values: Integers, values_at: Integers, node: Integers, sizes: Integers) -> Integers:
        """Rows of values by strategies of nodes, as rows (of these sizes, laid end to end) by those of their roots."""
        row, x = ragged(sizes)
        carried: Integers = values[values_at[row] + self.maps[self.at[node][row] + x]]
        return carried


def determined(flat: Flat, here: NDArray[np.bool_]) -> Forest:
    """The more strategies a node has the sooner it is a root: whatever can follow, follows."""
    possible = np.add.reduceat(flat.cost < FORBIDDEN, flat.node_start[:-1], dtype=np.int64)
    order = np.argsort(-possible, kind="stable")
    fixed = np.zeros(here.size, bool)
    bound = flat.edges.own >= 0
    fixed[flat.edges.low[bound]] = fixed[flat.edges.high[bound]] = True
    fixed = fixed | ~here
    if flat.edges.low.size == 0:
        return Forest(np.where(here, np.arange(here.size), -1), flat.node_start[:-1], np.zeros(0, np.int64))
    return Forest(*_forest(order[here[order]], fixed, _arrays(flat), *_incidence(flat, ~bound)))
