"""Arc consistency: a strategy that is forbidden, or that some edge forbids whatever the other end takes, goes.

Exact: every choice that takes it is impossible (A. Mackworth, "Consistency in networks of relations", 1977).
"""

from __future__ import annotations

import numpy as np

from solvers.presolve.state import State
from solvers.presolve.tables import FORBIDDEN


def reduce(state: State, turn: int) -> None:
    """Until every strategy left has a partner across every edge. Raises Impossible if a node has none left."""
    for node, cost in state.drain(turn):
        possible = cost < FORBIDDEN
        for view in state.views(node):
            if view.table.dead is not None:
                possible &= ~view.table.dead[view.here]
        if not possible.all():
            state.keep(node, np.flatnonzero(possible))
