"""A strategy goes if another one of its node is no worse, whatever the neighbours take.

y stands in for x if it uses no more at any moment, and c(y) - c(x) + sum over edges of max_t (C(y, t) - C(x, t)) <= 0,
t over what x allows: to put y in the place of x keeps any choice feasible and makes it no dearer. The relation is
transitive (the maxima are subadditive), so all strategies that another stands in for may go at once if of
equals the first stays (R. Desmet et al., "The dead-end elimination theorem", 1992; Goldstein's form). What
has left one node is out for the next.

Of a node without edges the strategies on the Pareto front of cost and usage stay. Those above its lower convex hull
must stay too: where costs 0, 6, 10 use 10, 5, 0, the second is above the hull, and the best under a limit of 5. (The
bound knows only the hull: a price on usage takes none of the others.) Nodes with usage on their edges are left alone.
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

# Work of a node that is too much for it, and between two looks at the clock (comparisons of two cells).
MAX_WORK, CHUNK = 1 << 26, 1 << 26


@cached_njit(error_model="numpy")
def _own_margin(own, begin, end, uses):  # type: ignore[no-untyped-def]
    """Pairs (y, x) of which y costs no more and uses no more in any of the spans, and by how much y costs more."""
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
    """The most that class s costs above class r in any class there that r allows."""
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
    """better[y, x]: y may stand in for x.

    A pair whose sum is positive half way is given up: that relation is transitive too, and margins of absorbed edges
    are not negative.
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
    """Forbid what another stands in for: out's rows are node, strategy, and the one that stays; how many."""
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
    """Of each node, at most: comparisons of two cells, and of two strategies."""
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
    """Until no strategy stands in for another."""
    work, fresh = _estimate_work(state), state.take_dirty(turn) & ~state.has_edge_usage
    nodes = np.flatnonzero(fresh & (work <= MAX_WORK))
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
