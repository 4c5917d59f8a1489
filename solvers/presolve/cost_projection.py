"""Projection of edge costs onto nodes, and merging of the classes that an edge does not distinguish.

With a(s) = min_t C(s, t) and b(t) = min_s (C(s, t) - a(s)), C = a + b + C' where C' >= 0. Moving a and b to the nodes
leaves the cost of every assignment as it is, and forbids a strategy that has no permitted partner across the edge.
Equal rows of C' become one class, and so do equal columns; classes without a permitted strategy disappear. Where C' = 0
the edge is dropped. Equal matrices are stored once: a training step repeats its layers, so that a hundred thousand
edges may have a thousand distinct ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.presolve.state import PresolveState
from solvers.presolve.working_arrays import FORBIDDEN, EdgeArrays
from solvers.problem_arrays import PartPool

Integers = NDArray[np.int64]

# Cells processed between two checks of the clock.
CHUNK = 1 << 20


@cached_njit(error_model="numpy")
def _used_classes(node_start, cost, i, classes, at, count):  # type: ignore[no-untyped-def]
    """Renumber the classes of node i that have a permitted strategy; return the new number of each old class (-1: it
    has none) and how many there are."""
    new, found = np.empty(count, np.int64), 0
    for s in range(count):
        new[s] = -1
    for x in range(node_start[i + 1] - node_start[i]):
        if cost[node_start[i] + x] < FORBIDDEN:
            new[classes[at + x]] = 0
    for s in range(count):
        if new[s] == 0:
            new[s] = found
            found += 1
    return new, found


@cached_njit(error_model="numpy")
def _unary_share(rest, count, step, others, other_step):  # type: ignore[no-untyped-def]
    """Subtract each row's minimum in place; return the minima and the largest of them (FORBIDDEN if a row has no
    permitted cell)."""
    least, most = np.empty(count, np.int64), 0
    for s in range(count):
        least[s] = FORBIDDEN
        for t in range(others):
            least[s] = min(least[s], rest[s * step + t * other_step])
        most = max(most, least[s])
        for t in range(others):
            if 0 < least[s] < FORBIDDEN and rest[s * step + t * other_step] < FORBIDDEN:
                rest[s * step + t * other_step] -= least[s]
    return least, most


@cached_njit(error_model="numpy")
def _merge_equal_classes(rest, count, step, others, other_step):  # type: ignore[no-untyped-def]
    """Group equal rows; return the first row of each group, each row's group and the number of groups."""
    first, group_of, groups = np.empty(count, np.int64), np.empty(count, np.int64), 0
    for s in range(count):
        group, t = 0, 0
        while group < groups and t < others:
            if rest[first[group] * step + t * other_step] == rest[s * step + t * other_step]:
                t += 1
            else:
                group, t = group + 1, 0
        if group == groups:
            first[groups] = s
            groups += 1
        group_of[s] = group
    return first, group_of, groups


@cached_njit(error_model="numpy")
def _charge_node(node_start, cost, i, classes, at, new, own, group):  # type: ignore[no-untyped-def]
    """Add each class's projected cost to its strategies of node i, and make its group their new class."""
    begin = node_start[i]
    for x in range(node_start[i + 1] - begin):
        s = new[classes[at + x]]
        if cost[begin + x] < FORBIDDEN:
            cost[begin + x] = min(cost[begin + x] + own[s], FORBIDDEN)
        classes[at + x] = group[s] if s >= 0 else 0


@cached_njit(error_model="numpy")
def _project_edges(which, edges, node_start, cost, cells, changed):  # type: ignore[no-untyped-def]
    """Project and merge these edges; write the new matrices of those that changed end to end to `cells`."""
    # For the literal 1 numba would compile second versions of the functions that are called.
    end, one = 0, np.int64(1)
    for n in range(which.size):
        e = which[n]
        i, j, i_at, j_at = edges.low[e], edges.high[e], edges.low_at[e], edges.high_at[e]
        row, height = _used_classes(node_start, cost, i, edges.classes, i_at, edges.low_classes[e])
        column, width = _used_classes(node_start, cost, j, edges.classes, j_at, edges.high_classes[e])
        rest = np.empty(height * width, np.int64)
        for s in range(row.size):
            for t in range(column.size):
                if row[s] >= 0 and column[t] >= 0:
                    at = edges.pair_at[e] + s * edges.low_step[e] + t * edges.high_step[e]
                    rest[row[s] * width + column[t]] = edges.cells[at]
        own_rows, most = _unary_share(rest, height, width, width, one)
        own_columns, more = _unary_share(rest, width, one, height, width)
        if rest.size == 0:
            continue
        first, row_group, h = _merge_equal_classes(rest, height, width, width, one)
        other, column_group, w = _merge_equal_classes(rest, width, one, height, width)
        if h == row.size and w == column.size and most == 0 and more == 0:
            continue
        changed[n] = True
        _charge_node(node_start, cost, i, edges.classes, i_at, row, own_rows, row_group)
        _charge_node(node_start, cost, j, edges.classes, j_at, column, own_columns, column_group)
        for s in range(h):
            for t in range(w):
                cells[end] = rest[first[s] * width + other[t]]
                end += 1
        edges.low_classes[e], edges.high_classes[e] = h, w
        edges.low_step[e], edges.high_step[e] = w, 1


def _chunks(edges: EdgeArrays, which: Integers) -> Iterator[Integers]:
    cells = np.cumsum(edges.low_classes[which] * edges.high_classes[which])
    yield from np.split(which, np.flatnonzero(np.diff(cells // CHUNK)) + 1)


def project_costs(state: PresolveState, turn: int) -> None:
    """Run until every row and column of every matrix has minimum 0, and no two rows or columns are equal.

    Raises Infeasible if a node has no permitted strategy left.
    """
    dirty, edges, before = state.take_dirty(turn), state.edges, np.count_nonzero(state.cost >= FORBIDDEN)
    which = np.flatnonzero(dirty[edges.low] | dirty[edges.high])
    matrices, changed = PartPool(edges.cells), np.zeros(edges.low.size, bool)
    for part in _chunks(edges, which):
        if state.stopped():
            break
        sizes = edges.low_classes[part] * edges.high_classes[part]
        cells, done = np.empty(int(sizes.sum()), np.int64), np.zeros(part.size, bool)
        _project_edges(part, edges, state.node_start, state.cost, cells, done)
        anew = part[done]
        widths = edges.high_classes[anew]
        edges.pair_at[anew] = matrices.add_matrices(cells, edges.low_classes[anew] * widths, widths)
        changed[part[done]] = True
    state.mark_dirty(edges.low[changed])
    state.mark_dirty(edges.high[changed])
    left = ~changed | (edges.low_classes * edges.high_classes > 1)
    cells = matrices.concatenate()
    state.edges = edges._replace(cells=cells).select(left).drop_unused_cells(cells.size // 2)
    state.require_feasible()
    # Where a strategy became forbidden, the node's other edges may have to be projected once more.
    if np.count_nonzero(state.cost >= FORBIDDEN) == before:
        state.mark_clean(turn)
