"""From a problem to the state that presolve works on: what collapses at once has done so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from solvers.parts import EdgeUsage
from solvers.presolve.collapse import collapse
from solvers.presolve.flat import Edges, Flat
from solvers.presolve.profile import Profile
from solvers.presolve.state import Impossible, Link, State, turned
from solvers.presolve.tables import FORBIDDEN, Table
from solvers.problem import Problem

Integers = NDArray[np.int64]


def load(problem: Problem, reductions: int, stopped: Callable[[], bool]) -> State:
    """The nodes and edges that are left, costs multiplied out. Raises Impossible if some node has no strategy left."""
    flat, here, records = collapse(problem, stopped)
    state = State(problem.limit, problem.layout.moments, reductions, stopped)
    state.records.extend(records)
    uses = _by_node(flat)
    bounds, costs = flat.node_start.tolist(), flat.cost
    for i, present in enumerate(here.tolist()):
        if not present:
            state.add_absent()
            continue
        cost = costs[bounds[i] : bounds[i + 1]]
        left = np.flatnonzero(cost < FORBIDDEN)
        if left.size == 0:
            raise Impossible
        state.add_node(cost[left], left, [profile.of(left) for profile in uses[i]])
    _link(state, problem, flat.edges)
    return state


def _by_node(flat: Flat) -> list[list[Profile]]:
    """Each node's usage: one profile for each of its spans in which anything is used."""
    uses, sizes = flat.uses, flat.sizes
    found: list[list[Profile]] = [[] for _ in range(sizes.size)]
    if not uses.at.size:
        return found
    some = np.flatnonzero((uses.stop > uses.start) & np.logical_or.reduceat(uses.usage != 0, uses.at))
    owner = uses.node[some]
    entries = zip(some.tolist(), owner.tolist(), uses.at[some].tolist(), sizes[owner].tolist(), strict=True)
    for q, node, at, k in entries:
        found[node].append(Profile(uses.start[q : q + 1], uses.stop[q : q + 1], uses.usage[None, at : at + k]))
    return found


def _link(state: State, problem: Problem, edges: Edges) -> None:
    tables: dict[tuple[int, ...], Table] = {}
    classes = edges.classes.astype(np.int32)
    ends = zip(edges.low.tolist(), edges.high.tolist(), edges.low_at.tolist(), edges.high_at.tolist(), strict=True)
    keys = np.stack([edges.pair_at, edges.low_classes, edges.high_classes, edges.low_step, edges.high_step], axis=1)
    for (low, high, low_at, high_at), own, key in zip(ends, edges.own.tolist(), map(tuple, keys.tolist()), strict=True):
        if key not in tables:
            at, height, width, down, right = key
            positions = at + np.arange(height)[:, None] * down + np.arange(width) * right
            tables[key] = state.pool.table(edges.cells[positions])
        low_class = classes[low_at + state.strategies[low]]
        high_class = classes[high_at + state.strategies[high]]
        usages = () if own < 0 else _usages(problem, own, low)
        state.link(Link(low, high, low_class, high_class, tables[key], usages))


def _usages(problem: Problem, number: int, low: int) -> tuple[EdgeUsage, ...]:
    edge = problem.edges[number]
    used = (usage for usage in edge.usages if usage.start < usage.stop and usage.matrix.any())
    return tuple(usage if edge.source == low else turned(usage) for usage in used)
