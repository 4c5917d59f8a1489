"""A node without usage and with at most two edges leaves: its best strategy for each pair of classes of its neighbours.

Node b between a and c: C(s, t) = min_x c_b(x) + C_ab(s, x) + C_bc(x, t) is what b adds at least, and what it adds if
it is chosen last, as nothing else depends on it: one edge a - c (with one neighbour, a cost at a; with none, a
constant) takes the place of b and its edges (U. Bertele, F. Brioschi, "Nonserial dynamic programming", 1972).
Not done where the new table would be larger than the two old ones together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.presolve.records import Followed
from solvers.presolve.state import Impossible, Link, State, View
from solvers.presolve.tables import FORBIDDEN, capped

Integers = NDArray[np.int64]

SMALL = 256
MOST_WORK = 1 << 22


class Best(NamedTuple):
    """The least cost, and the strategy (its position) that has it, by the neighbours' classes."""

    cost: Integers
    at: Integers


def reduce(state: State, turn: int) -> None:
    """Until every node that is left uses memory, or has three edges, or would leave a larger table."""
    for node, cost in state.drain(turn):
        if len(state.at[node]) > 2 or state.usage(node) is not None:
            continue
        views = list(state.views(node))
        if any(view.usages for view in views):
            continue
        if len(views) < 2 or _worthwhile(cost, *views):
            _eliminate(state, node, cost, views)


def _worthwhile(cost: Integers, one: View, two: View) -> bool:
    size = one.table.cells.shape[1] * two.table.cells.shape[1]
    allowed = max(one.table.cells.size + two.table.cells.size, SMALL)
    return one.other != two.other and size <= allowed and size * cost.size <= MOST_WORK


def _eliminate(state: State, node: int, cost: Integers, views: list[View]) -> None:
    key = ("best", cost.tobytes(), *((id(view.here), id(view.table)) for view in views))
    best: Best = state.pool.once(key, lambda: _best(cost, views))
    ends = tuple(state.end(view.other, view.there) for view in views)
    for view in views:
        state.unlink(view.number)
    if not views:
        if int(best.cost) >= FORBIDDEN:
            raise Impossible
        state.constant += int(best.cost)
    elif len(views) == 1:
        state.add_cost(views[0].other, best.cost[views[0].there])
    else:
        one, two = views
        state.link(Link(one.other, two.other, one.there, two.there, state.pool.table(best.cost)))
    state.leave(node, Followed(node, ends, state.strategies[node][best.at]))


def _best(cost: Integers, views: list[View]) -> Best:
    total = cost
    for axis, view in enumerate(views):
        cells = view.table.cells[view.here]
        total = total[..., None] + (cells if axis == 0 else cells[:, None, :])
    at = total.argmin(axis=0)
    return Best(capped(total.min(axis=0)), at)
