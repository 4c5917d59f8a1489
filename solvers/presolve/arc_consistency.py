"""Arc consistency: remove strategies that are forbidden, or that have no permitted partner across some edge.

Exact, because every assignment with such a strategy contains something forbidden (A. Mackworth, "Consistency in
networks of relations", 1977; this is AC-3, with a queue of nodes).
"""

from __future__ import annotations

import numpy as np

from solvers.jit import cached_njit
from solvers.presolve.state import PresolveState
from solvers.presolve.working_arrays import FORBIDDEN, orient_edge


@cached_njit(error_model="numpy")
def _any_allowed(cells, at, step, used, classes):  # type: ignore[no-untyped-def]
    """Return whether any pair of this row with a class in use is permitted."""
    t = 0
    while t < classes and not (used[t] and cells[at + t * step] < FORBIDDEN):
        t += 1
    return t < classes


@cached_njit(error_model="numpy")
def _revise(edges, e, i, node_start, cost, used, good):  # type: ignore[no-untyped-def]
    """Forbid the strategies at the other end of edge e without a permitted partner at node i; return whether any went.

    used, good: scratch by class; good is 0 where not yet known, 1 for a class with a partner, 2 for one without.
    """
    (at, step, classes), j, (at_there, step_there, classes_there) = orient_edge(edges, e, i)
    for t in range(classes):
        used[t] = False
    for s in range(classes_there):
        good[s] = 0
    for y in range(node_start[i + 1] - node_start[i]):
        if cost[node_start[i] + y] < FORBIDDEN:
            used[edges.classes[at + y]] = True
    gone = False
    for x in range(node_start[j + 1] - node_start[j]):
        if cost[node_start[j] + x] >= FORBIDDEN:
            continue
        s = edges.classes[at_there + x]
        if good[s] == 0:
            good[s] = 1 if _any_allowed(edges.cells, edges.pair_at[e] + s * step_there, step, used, classes) else 2
        if good[s] == 2:
            cost[node_start[j] + x] = FORBIDDEN
            gone = True
    return gone


@cached_njit(error_model="numpy")
def _propagate_arcs(waits, edges, node_start, cost, first, incident, classes, changed):  # type: ignore[no-untyped-def]
    """Revise the edges of all waiting nodes, and of every node that loses a strategy on the way, in a ring queue."""
    used, good = np.empty(classes, np.bool_), np.empty(classes, np.int8)
    count, queue, head, length = waits.size, np.empty(waits.size, np.int64), 0, 0
    for i in range(count):
        if waits[i]:
            queue[length] = i
            length += 1
    while length:
        i = queue[head]
        head, length = (head + 1) % count, length - 1
        waits[i] = False
        for q in range(first[i], first[i + 1]):
            e = incident[q]
            if not _revise(edges, e, i, node_start, cost, used, good):
                continue
            j = edges.high[e] if edges.low[e] == i else edges.low[e]
            changed[j] = True
            if not waits[j]:
                waits[j] = True
                queue[(head + length) % count] = j
                length += 1


def enforce_arc_consistency(state: PresolveState, turn: int) -> None:
    """Run until every strategy left has a partner across every edge. Raises Infeasible if a node has none left."""
    dirty, changed = state.take_dirty(turn), np.zeros(state.alive.size, bool)
    most = state.edges.most_classes
    _propagate_arcs(dirty, state.edges, state.node_start, state.cost, *state.incidence(), most, changed)
    state.require_feasible()
    state.mark_dirty_around(changed)
    state.mark_clean(turn)
