"""A node whose strategy another one determines becomes a part of it.

If an edge allows each strategy x of node i exactly one class of node j's strategies, and each class holds one
strategy f(x), every possible choice has x_j = f(x_i). Then i takes over j's cost and the edge's, c_i(x) += c_j(f(x)) +
C(x, f(x)), likewise j's usage (over j's interval) and the usage on edges between them; j's other edges get i for
j, with the class of f(x). Possible choices correspond one to one, with equal cost and equal usage at every moment.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.parts import EdgeUsage
from solvers.presolve.profile import Profile
from solvers.presolve.records import Followed
from solvers.presolve.state import Link, State

Integers = NDArray[np.int64]


def reduce(state: State, turn: int) -> None:
    """Until no node determines another."""
    for node, _ in state.drain(turn):
        for view in state.views(node):
            ahead = _followed(view.here, view.there, view.table.picks)
            back = _followed(view.there, view.here, view.table.turned.picks)
            if ahead is not None and (back is None or len(state.at[view.other]) <= len(state.at[node])):
                _contract(state, node, view.other, ahead)
            elif back is not None:
                _contract(state, view.other, node, back)
                break


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
    state.add_cost(leader, cost[strategies])
    state.add_usage(leader, [part.of(strategies) for part in state.parts(follower)])
    for view in state.views(follower):
        state.unlink(view.number)
        own = view.here[strategies]
        if view.other == leader:
            state.add_cost(leader, view.table.cells[own, view.there])
            state.add_usage(leader, [_on_edge(usage, usage.matrix[own, view.there]) for usage in view.usages])
        else:
            state.link(Link(leader, view.other, own, view.there, view.table, view.usages))
    every = np.arange(strategies.size, dtype=np.int32)
    record = Followed(follower, (state.end(leader, every),), state.strategies[follower][strategies])
    state.leave(follower, record)


def _on_edge(usage: EdgeUsage, used: Integers) -> Profile:
    return Profile(np.array([usage.start]), np.array([usage.stop]), used[None, :])
