"""Dives, for what message passing alone leaves open without a limit.

With symmetries (equal mesh axes) no strategy of an orbit can be excluded, and a decoded assignment may mix
representatives of several optima. Fixing one node's strategy breaks the tie. A dive does so for one node after another
and is a heuristic.
"""

from __future__ import annotations

import numpy as np

from solvers.relaxation import Relaxation

# Message rounds per step.
ROUNDS = 4


def _select_node(relaxation: Relaxation) -> int | None:
    """Return the node to fix: most edges, then most strategies, of those with at least two; None if none has."""
    counts = relaxation.counts()
    if counts.max(initial=0) <= 1:
        return None
    degree = np.diff(relaxation.model.graph.first)
    return int(np.argmax((counts > 1) * (degree * 10**6 + counts)))


def _fix_strategy(relaxation: Relaxation, node: int, strategy: int) -> None:
    """Fix the node's strategy here (its first allowed one if this is excluded)."""
    start, stop = relaxation.model.arrays.node_start[node : node + 2]
    kept = np.arange(stop - start) == strategy
    if not relaxation.allowed[start + strategy]:
        kept = np.arange(stop - start) == np.argmax(relaxation.allowed[start:stop])
    relaxation.allowed[start:stop] &= kept
    relaxation.is_exact = False


def run_dive(relaxation: Relaxation, most: int) -> None:
    """Fix one node after another, at most `most`, until nothing below the upper cutoff is left. Assignments decoded on
    the way are submitted to the state; `relaxation` is not changed."""
    dive = relaxation.copy()
    for _ in range(most):
        assignment = dive.pass_messages(ROUNDS, 0.0)
        node = _select_node(dive)
        if assignment is None or node is None or dive.model.state.is_exhausted:
            return
        _fix_strategy(dive, node, int(assignment[node]))
