"""A node whose strategy another one determines becomes a part of it.

If an edge allows each strategy x of node i exactly one class of node j's strategies, and each class holds one
strategy f(x), every possible choice has x_j = f(x_i). Then i takes over j's cost and the edge's, c_i(x) += c_j(f(x)) +
C(x, f(x)), likewise j's usage (over j's interval) and the usage on edges between them; j's other edges get i for
j, with the class of f(x). Possible choices correspond one to one, with equal cost and equal usage at every moment.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.presolve.records import Followed
from solvers.presolve.state import Link, State

Integers = NDArray[np.int64]


def reduce(state: State, turn: int) -> None:
    """Until no node determines another."""
    for node, _ in state.drain(turn):
        found = _follower(state, node)
        if found is not None:
            _contract(state, *found)


def _follower(state: State, node: int) -> tuple[int, int, Integers] | None:
    """A node here or next to it that follows the other one: (leader, follower, the follower's strategies)."""
    for view in state.views(node):
        ahead = _followed(view.here, view.there, view.table.picks)
        back = _followed(view.there, view.here, view.table.turned.picks)
        if ahead is not None and (back is None or len(state.at[view.other]) <= len(state.at[node])):
            return node, view.other, ahead
        if back is not None:
            return view.other, node, back
    return None


def _followed(leader: NDArray[np.int32], follower: NDArray[np.int32], picks: Integers | None) -> Integers | None:
    if picks is None or follower.size > int(follower.max()) + 1:
        return None
    strategy_of_class = np.empty(follower.size, np.int64)
    strategy_of_class[follower] = np.arange(follower.size)
    strategies: Integers = strategy_of_class[picks[leader]]
    return strategies


def _contract(state: State, leader: int, follower: int, strategies: Integers) -> None:
    cost = state.cost[follower]
    assert cost is not None
    profiles = [state.profile[leader], state.profile[follower]]
    parts = [] if profiles[0] is None else [(profiles[0].start, profiles[0].stop, profiles[0].usage)]
    if profiles[1] is not None:
        parts.append((profiles[1].start, profiles[1].stop, profiles[1].usage[:, strategies]))
    extra = len(parts) - (profiles[0] is not None)
    state.add_cost(leader, cost[strategies])
    for view in state.views(follower):
        state.unlink(view.number)
        own = view.here[strategies]
        if view.other != leader:
            state.link(Link(leader, view.other, own, view.there, view.table, view.usages))
            continue
        state.add_cost(leader, view.table.cells[own, view.there])
        for usage in view.usages:
            at = (np.array([usage.start]), np.array([usage.stop]))
            parts.append((*at, usage.matrix[own, view.there][None, :]))
            extra += 1
    if extra:
        state.set_usage(leader, parts)
    every = np.arange(strategies.size, dtype=np.int32)
    record = Followed(follower, (state.end(leader, every),), state.strategies[follower][strategies])
    state.leave(follower, record)
