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

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def reduce(state: State, turn: int) -> None:
    """Until no strategy stands in for another."""
    for node, cost in state.drain(turn):
        y, x = _better(state, node, cost)
        if y.size:
            better = np.zeros((cost.size, cost.size), bool)
            better[y, x] = True
            _drop(state, node, better)


def _better(state: State, node: int, cost: Integers) -> tuple[Integers, Integers]:
    """Pairs (y, x): y may stand in for x; fewer with each thing looked at.

    A pair whose sum is positive half way is given up: that relation is transitive too, and margins of absorbed edges
    are not negative.
    """
    y, x = np.nonzero((cost[:, None] <= cost) & ~np.eye(cost.size, dtype=bool))
    profile = state.usage(node) if y.size else None
    if profile is not None:
        less = (profile.usage[:, y] <= profile.usage[:, x]).all(axis=0)
        y, x = y[less], x[less]
    above = cost[y] - cost[x]
    for view in state.views(node) if y.size else ():
        if view.usages or view.table.margin is None:
            return y[:0], x[:0]
        above += view.table.margin[view.here[y], view.here[x]]
        still = above <= 0
        y, x, above = y[still], x[still], above[still]
        if not y.size:
            break
    return y, x


def _drop(state: State, node: int, better: Flags) -> None:
    count = better.shape[0]
    first = np.arange(count)[:, None] < np.arange(count)[None, :]
    beats = better & ~(better.T & ~first)
    gone = beats.any(axis=0)
    left = np.flatnonzero(~gone)
    heirs = left[better[left].argmax(axis=0)]
    names = state.strategies[node]
    by = {int(names[x]): int(names[heirs[x]]) for x in np.flatnonzero(gone)}
    state.records.append(Replaced(node, by))
    state.keep(node, left)
