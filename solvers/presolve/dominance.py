"""A strategy goes if another one of its node is no worse, whatever the neighbours take.

y stands in for x if it uses no more at any moment, and c(y) - c(x) + sum over edges of max_t (C(y, t) - C(x, t)) <= 0,
t over what x allows: to put y in the place of x keeps any choice feasible and makes it no dearer. The relation is
transitive (the maxima are subadditive), so all strategies that another stands in for may go at once if of
equals the first stays (R. Desmet et al., "The dead-end elimination theorem", 1992; Goldstein's form).
Nodes with usage on their edges are left alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.presolve.records import Replaced
from solvers.presolve.state import State
from solvers.presolve.tables import capped

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def reduce(state: State, turn: int) -> None:
    """Until no strategy stands in for another."""
    for node, cost in state.drain(turn):
        better = _better(state, node, cost) if cost.size > 1 else None
        if better is not None:
            _drop(state, node, better)


def _better(state: State, node: int, cost: Integers) -> Flags | None:
    """better[y, x]: may y stand in for x?"""
    above = cost[:, None] - cost[None, :]
    for view in state.views(node):
        if view.usages or view.table.margin is None:
            return None
        above = capped(above + view.table.margin[view.here[:, None], view.here])
    better: Flags = above <= 0
    profile = state.usage(node)
    if profile is not None:
        y, x = np.nonzero(better)
        better[y, x] = (profile.usage[:, y] <= profile.usage[:, x]).all(axis=0)
    return better


def _drop(state: State, node: int, better: Flags) -> None:
    count = better.shape[0]
    first = np.arange(count)[:, None] < np.arange(count)[None, :]
    beats = better & ~(better.T & ~first)
    np.fill_diagonal(beats, False)
    gone = beats.any(axis=0)
    if gone.any():
        left = np.flatnonzero(~gone)
        heirs = left[better[left].argmax(axis=0)]
        names = state.strategies[node]
        by = {int(names[x]): int(names[heirs[x]]) for x in np.flatnonzero(gone)}
        state.records.append(Replaced(node, by))
        state.keep(node, left)
