"""Elimination of nodes with at most two edges and no usage (R0, R1 and R2 of PBQP solvers).

For node b between a and c, C(s, t) = min_x c_b(x) + C_ab(s, x) + C_bc(x, t) is what b contributes if it is chosen
optimally after its neighbours. An edge a - c with these costs replaces b and its edges; with one neighbour a cost at a
does, with none a constant (U. Bertele, F. Brioschi, "Nonserial dynamic programming", 1972). A node is kept where the
new table would be larger than the two old ones together, unless it is small.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.presolve.postsolve import EliminationRecord
from solvers.presolve.state import Infeasible, PresolveState
from solvers.presolve.working_arrays import FORBIDDEN, orient_edge

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Tables of up to this many cells are always made.
SMALL_SIZE = 256
# Most combinations tried for one node, and between two checks of the clock; cells allocated for the first batch.
MAX_WORK, BATCH_WORK, MAX_CELLS = 1 << 22, 1 << 26, 1 << 18


class EliminationLog(NamedTuple):
    """The arrays of an EliminationRecord while they are filled."""

    columns: Integers
    classes: Integers
    strategy: Integers


@cached_njit(error_model="numpy")
def _costs_from(edges, e, i, k):  # type: ignore[no-untyped-def]
    """Return edge e's costs [classes at the other end, strategies of node i]; for no edge (-1), one row of zeros."""
    if e == -1:
        return np.zeros((1, k), np.int64)
    (at, step, _), _, (_, step_there, classes_there) = orient_edge(edges, e, i)
    costs = np.empty((classes_there, k), np.int64)
    for t in range(classes_there):
        for x in range(k):
            costs[t, x] = edges.cells[edges.pair_at[e] + edges.classes[at + x] * step + t * step_there]
    return costs


@cached_njit(error_model="numpy")
def _minimize_out(own, first, second, cells, at, strategy, place):  # type: ignore[no-untyped-def]
    """Write the least cost over a node's strategies for each pair of its neighbours' classes, and the strategy that
    attains it."""
    for s in range(first.shape[0]):
        for t in range(second.shape[0]):
            least, best = np.int64(FORBIDDEN), 0
            for x in range(own.size):
                if own[x] < FORBIDDEN and own[x] + first[s, x] + second[t, x] < least:
                    least, best = own[x] + first[s, x] + second[t, x], x
            cells[at], strategy[place] = least, best
            at, place = at + 1, place + 1


@cached_njit(error_model="numpy")
def _add_edge(edges, e, one, other, at):  # type: ignore[no-untyped-def]
    """Connect two nodes, each given as (node, start of its classes, their number), by edge e with cells at `at`."""
    (a, a_at, height), (c, c_at, width) = one, other
    edges.pair_at[e] = at
    if a < c:
        edges.low[e], edges.low_at[e], edges.low_classes[e], edges.low_step[e] = a, a_at, height, width
        edges.high[e], edges.high_at[e], edges.high_classes[e], edges.high_step[e] = c, c_at, width, 1
    else:
        edges.low[e], edges.low_at[e], edges.low_classes[e], edges.low_step[e] = c, c_at, width, 1
        edges.high[e], edges.high_at[e], edges.high_classes[e], edges.high_step[e] = a, a_at, height, width


@cached_njit(error_model="numpy")
def _neighbour(edges, e, i, node_start, classes, filled):  # type: ignore[no-untyped-def]
    """Return (node across edge e, start of its classes, their number), and copy those classes for the record.

    The copy is needed because the edge that replaces e may overwrite them. If there is no room for it, the returned
    fill level exceeds the buffer and the caller stops.
    """
    if e == -1:
        return (-1, 0, 1), filled
    _, j, (at, _, count) = orient_edge(edges, e, i)
    k = node_start[j + 1] - node_start[j]
    if filled + k <= classes.size:
        for x in range(k):
            classes[filled + x] = edges.classes[at + x]
    return (j, at, count), filled + k


@cached_njit(error_model="numpy")
def _detach(first, incident, degree, j, e, instead):  # type: ignore[no-untyped-def]
    """Replace edge e by `instead` in node j's incidence list, or remove it (-1)."""
    q = first[j]
    while incident[q] != e:
        q += 1
    if instead == -1:
        degree[j] -= 1
        instead = incident[first[j] + degree[j]]
    incident[q] = instead


@cached_njit(error_model="numpy")
def _is_worthwhile(edges, e, f, size, k):  # type: ignore[no-untyped-def]
    """Return whether the new table (of `size` cells) is no larger than the two it replaces, or small, and cheap to
    compute. With one edge or none it always is."""
    if f == -1:
        return True
    two = edges.low_classes[e] * edges.high_classes[e] + edges.low_classes[f] * edges.high_classes[f]
    return size <= max(two, SMALL_SIZE) and size * k <= MAX_WORK


@cached_njit(error_model="numpy")
def _eliminate_node(edges, e, f, one, other, at, node_start, cost, first, incident, degree, gone):  # type: ignore[no-untyped-def]
    """Replace a node's edges e and f by the cells at `at`: by an edge, by costs at its one neighbour, or by a constant,
    which is returned (otherwise 0)."""
    if e == -1:
        return edges.cells[at]
    if f != -1:
        gone[f] = True
        _add_edge(edges, e, one, other, at)
        _detach(first, incident, degree, other[0], f, e)
        return 0
    gone[e] = True
    _detach(first, incident, degree, one[0], e, -1)
    begin = node_start[one[0]]
    for x in range(node_start[one[0] + 1] - begin):
        cost[begin + x] = min(cost[begin + x] + edges.cells[at + edges.classes[one[1] + x]], FORBIDDEN)
    return 0


@cached_njit(error_model="numpy")
def _append_column(columns, done, values):  # type: ignore[no-untyped-def]
    for c in range(7):
        columns[c, done] = values[c]


@cached_njit(error_model="numpy")
def _eliminate(waits, fixed, edges, node_start, cost, first, incident, begin, left, gone, changed):  # type: ignore[no-untyped-def]
    """Eliminate waiting nodes, and neighbours whose degree falls on the way, until a buffer is full or BATCH_WORK done.

    fixed: nodes that must stay. New cells are written from `begin` on. Returns how many nodes were eliminated, the fill
    levels of left.classes and of the new cells, and the constant.
    """
    count, degree, queue = waits.size, np.empty(waits.size, np.int64), np.empty(waits.size, np.int64)
    head, length, done, filled, end, work, constant = 0, 0, 0, 0, begin, 0, 0
    for i in range(count):
        degree[i] = first[i + 1] - first[i]
        if waits[i]:
            queue[length] = i
            length += 1
    while length and work < BATCH_WORK:
        i = queue[head]
        own = cost[node_start[i] : node_start[i + 1]]
        if degree[i] <= 2 and not fixed[i]:
            e = incident[first[i]] if degree[i] > 0 else -1
            f = incident[first[i] + 1] if degree[i] > 1 else -1
            one, copied = _neighbour(edges, e, i, node_start, left.classes, filled)
            other, stop = _neighbour(edges, f, i, node_start, left.classes, copied)
            size = one[2] * other[2]
            if end + size > edges.cells.size or stop > left.classes.size:
                break
            if _is_worthwhile(edges, e, f, size, own.size) and (f == -1 or one[0] != other[0]):
                firsts, seconds = _costs_from(edges, e, i, own.size), _costs_from(edges, f, i, own.size)
                _minimize_out(own, firsts, seconds, edges.cells, end, left.strategy, end - begin)
                _append_column(left.columns, done, (i, one[0], filled, other[0], copied, end - begin, other[2]))
                more = _eliminate_node(edges, e, f, one, other, end, node_start, cost, first, incident, degree, gone)
                constant = min(constant + more, FORBIDDEN)
                done, filled, end, work, fixed[i] = done + 1, stop, end + size, work + size * own.size, True
                for j in (one[0], other[0]):
                    if j != -1 and not waits[j]:
                        waits[j] = True
                        queue[(head + length) % count] = j
                        length += 1
                    if j != -1:
                        changed[j] = True
        waits[i] = False
        head, length = (head + 1) % count, length - 1
    return done, filled, end - begin, constant


def eliminate_degree2(state: PresolveState, turn: int) -> None:
    """Run until every node left has usage, has three or more edges, or would leave a larger table."""
    waits, room = state.take_dirty(turn), MAX_CELLS
    changed = np.zeros(waits.size, bool)
    while waits.any() and not state.stopped():
        _eliminate_batch(state, waits, changed, room=room)
        room *= 2  # a node that did not fit this time will fit eventually
    state.mark_dirty_around(changed & state.alive)


def _eliminate_batch(state: PresolveState, waits: Flags, changed: Flags, *, room: int) -> None:
    """Eliminate until a table, or a copy of classes, does not fit into `room` entries, or BATCH_WORK is done."""
    fixed = ~state.alive
    fixed[state.uses.node] = True
    begin, gone = state.edges.cells.size, np.zeros(state.edges.low.size, bool)
    edges = state.edges._replace(cells=np.concatenate([state.edges.cells, np.empty(room, np.int64)]))
    left = EliminationLog(np.empty((7, waits.size), np.int64), np.empty(room, np.int64), np.empty(room, np.int64))
    done, filled, size, constant = _eliminate(
        waits, fixed, edges, state.node_start, state.cost, *state.incidence(), begin, left, gone, changed
    )
    if constant >= FORBIDDEN:
        raise Infeasible
    state.constant += constant
    columns = left.columns[:, :done].copy()
    state.alive[columns[0]] = False
    state.records.append(EliminationRecord(columns, left.classes[:filled].copy(), left.strategy[:size].copy()))
    state.edges = edges._replace(cells=edges.cells[: begin + size].copy()).select(~gone)
