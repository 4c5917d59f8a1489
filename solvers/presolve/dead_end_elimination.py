"""Dead-end elimination: remove strategies that another one of the node dominates, whatever the neighbours take.

y dominates x if it uses no more at any time step and c(y) - c(x) + sum over edges of max_t (C(y, t) - C(x, t)) <= 0,
with t over the classes that x permits: replacing x by y keeps any assignment feasible and does not raise its cost
(J. Desmet et al., "The dead-end elimination theorem", 1992, in Goldstein's form). The relation is transitive (the
maxima are subadditive), so all dominated strategies may go at once if the first of each group of equals stays.
Strategies removed at one node no longer count for the next.

At a node without edges, the Pareto front of cost and usage remains. Strategies above its lower convex hull must remain
too: with costs 0, 6, 10 for usages 10, 5, 0 the second is above the hull, but the best under a limit of 5. (The
Lagrangian bound sees only the hull: no multiplier selects the others.)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.presolve.postsolve import DominationRecord
from solvers.presolve.state import PresolveState
from solvers.presolve.working_arrays import FORBIDDEN, orient_edge

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Comparisons of two cells: nodes that need more are skipped; those between two checks of the clock.
MAX_WORK, CHUNK = 1 << 26, 1 << 26


@cached_njit(error_model="numpy")
def _own_margin(own, begin, end, uses):  # type: ignore[no-untyped-def]
    """Return the pairs (y, x) where y costs no more and uses no more than x in each span, with c(y) - c(x), and their
    number."""
    most, count = own.size * own.size, 0
    y, x, above = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    for a in range(own.size):
        for b in range(own.size):
            if a == b or own[b] >= FORBIDDEN or own[a] > own[b]:
                continue
            q = begin
            while q < end and uses.usage[uses.at[q] + a] <= uses.usage[uses.at[q] + b]:
                q += 1
            if q == end:
                y[count], x[count], above[count] = a, b, own[a] - own[b]
                count += 1
    return y, x, above, count


@cached_njit(error_model="numpy")
def _edge_margin(edges, e, step, step_there, there, s, r):  # type: ignore[no-untyped-def]
    """Return max_t C(s, t) - C(r, t) over the classes t there that r permits; FORBIDDEN if s forbids one of them."""
    most, at = -FORBIDDEN, edges.pair_at[e]
    for t in range(there):
        least = edges.cells[at + r * step + t * step_there]
        if least < FORBIDDEN:
            cost = edges.cells[at + s * step + t * step_there]
            if cost >= FORBIDDEN:
                return FORBIDDEN
            most = max(most, cost - least)
    return most if most > -FORBIDDEN else 0


@cached_njit(error_model="numpy")
def _is_dominated_by(i, edges, incident, first, last, own, begin, end, uses):  # type: ignore[no-untyped-def]
    """Return (better, count): better[y, x] says whether y dominates x, and count how many pairs there are.

    A pair is dropped once its partial sum over edges is positive. That is exact, because the margins of projected edges
    are not negative, and the relation stays transitive.
    """
    y, x, above, count = _own_margin(own, begin, end, uses)
    for q in range(first, last):
        if count == 0:
            break
        e = incident[q]
        (at, step, here), _, (_, step_there, there) = orient_edge(edges, e, i)
        margin, known, still = np.empty((here, here), np.int64), np.zeros((here, here), np.bool_), 0
        for p in range(count):
            s, r = edges.classes[at + y[p]], edges.classes[at + x[p]]
            if not known[s, r]:
                known[s, r] = True
                margin[s, r] = _edge_margin(edges, e, step, step_there, there, s, r) if s != r else 0
            if above[p] + margin[s, r] <= 0:
                y[still], x[still], above[still] = y[p], x[p], above[p] + margin[s, r]
                still += 1
        count = still
    better = np.zeros((own.size, own.size), np.bool_)
    for p in range(count):
        better[y[p], x[p]] = True
    return better, count


@cached_njit(error_model="numpy")
def _find_dominated(nodes, edges, node_start, cost, first, incident, uses, first_use, out):  # type: ignore[no-untyped-def]
    """Forbid the dominated strategies of these nodes and return how many there are.

    Writes their nodes, the strategies, and the remaining strategies that dominate them to the rows of `out`.
    """
    done = 0
    for i in nodes:
        own = cost[node_start[i] : node_start[i + 1]]
        spans = first_use[i], first_use[i + 1]
        better, count = _is_dominated_by(i, edges, incident, first[i], first[i + 1], own, spans[0], spans[1], uses)
        if count == 0:
            continue
        begin = done
        for x in range(own.size):
            for y in range(own.size):
                if better[y, x] and (y < x or not better[x, y]):
                    out[0, done], out[1, done] = i, x
                    done += 1
                    break
        for r in range(begin, done):
            own[out[1, r]] = FORBIDDEN
        for r in range(begin, done):
            y = 0
            while not (better[y, out[1, r]] and own[y] < FORBIDDEN):
                y += 1
            out[2, r] = y
    return done


def _estimate_work(state: PresolveState) -> Integers:
    """Return an upper bound of each node's comparisons, of two cells and of two strategies."""
    edges, sizes = state.edges, state.sizes
    work = sizes * sizes
    for end, here, there in (
        (edges.low, edges.low_classes, edges.high_classes),
        (edges.high, edges.high_classes, edges.low_classes),
    ):
        np.add.at(work, end, here * here * there)
    return work


def _chunks(nodes: Integers, work: Integers) -> Iterator[Integers]:
    yield from np.split(nodes, np.flatnonzero(np.diff(np.cumsum(work) // CHUNK)) + 1)


def eliminate_dominated(state: PresolveState, turn: int) -> None:
    """Remove the dominated strategies of the dirty nodes; nodes that change, and their neighbours, become dirty."""
    work, dirty = _estimate_work(state), state.take_dirty(turn)
    nodes = np.flatnonzero(dirty & (work <= MAX_WORK))
    first_use, incidence = state.uses.first(state.alive.size), state.incidence()
    changed = np.zeros(state.alive.size, bool)
    for part in _chunks(nodes, work[nodes]):
        if state.stopped():
            break
        out = np.empty((3, int(state.sizes[part].sum())), np.int64)
        done = _find_dominated(
            part, state.edges, state.node_start, state.cost, *incidence, state.uses, first_use, out
        )  # fmt: skip
        if done:
            state.records.append(DominationRecord(*out[:, :done].copy()))
            changed[out[0, :done]] = True
    state.mark_dirty_around(changed)
