"""Dives and branch and bound, for what message passing alone leaves open.

With symmetries (equal mesh axes) no strategy of an orbit can be excluded, and a decoded assignment may mix
representatives of several optima. Fixing one node's strategy breaks the tie. A dive does so for one node after another
and is a heuristic; branch and bound also keeps the other branch, and so proves a bound.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState

Integers = NDArray[np.int64]

# Message rounds per dive step, and the gain per round, as a share of the bound, that ends those of a branch.
DIVE_ROUNDS = 4
BRANCH_STALL = 1e-6


def _select_node(relaxation: Relaxation) -> int | None:
    """Return the node to branch on: most edges, then most strategies, of those with at least two; None if none has."""
    counts = relaxation.counts()
    if counts.max(initial=0) <= 1:
        return None
    degree = np.diff(relaxation.model.graph.first)
    return int(np.argmax((counts > 1) * (degree * 10**6 + counts)))


def _branch_on(relaxation: Relaxation, node: int, strategy: int) -> Relaxation:
    """Fix the node's strategy here (its first allowed one if this is excluded); return the branch without it."""
    start, stop = relaxation.model.arrays.node_start[node : node + 2]
    at = start + strategy
    if not relaxation.allowed[at]:
        at = start + int(np.flatnonzero(relaxation.allowed[start:stop])[0])
    other = relaxation.copy()
    other.allowed[at] = False
    relaxation.allowed[start:stop] = False
    relaxation.allowed[at] = True
    relaxation.is_exact = other.is_exact = False
    return other


def run_dive(relaxation: Relaxation, most: int) -> None:
    """Fix one node after another, at most `most`, until nothing below the upper cutoff is left. Assignments decoded on
    the way are submitted to the state; `relaxation` is not changed."""
    dive = relaxation.copy()
    for _ in range(most):
        assignment = dive.pass_messages(DIVE_ROUNDS, 0.0)
        node = _select_node(dive)
        if assignment is None or node is None or dive.model.state.is_exhausted:
            return
        _branch_on(dive, node, int(assignment[node]))


def run_branch_and_bound(state: SolveState, root: Relaxation, work: float) -> None:
    """Run best-first branch and bound for `work` units of work, raising the state's lower bound as branches close."""
    heap: list[tuple[int, int, Relaxation]] = [(root.bound, 0, root.copy())]
    stop_at, count = state.work_done + work, 0
    while heap and state.work_done < stop_at and not state.is_exhausted:
        _, _, relaxation = heapq.heappop(heap)
        while True:
            count += 1
            assignment = relaxation.pass_messages(3 * DIVE_ROUNDS, BRANCH_STALL)
            node = _select_node(relaxation)
            if assignment is None or node is None:
                break
            if state.is_exhausted or state.work_done >= stop_at:
                heapq.heappush(heap, (relaxation.bound, -count, relaxation))
                break
            other = _branch_on(relaxation, node, int(assignment[node]))
            heapq.heappush(heap, (other.bound, -count, other))
        # The open branches cover everything below the cutoff, so the least of their bounds holds for the problem.
        if root.is_exact:
            state.raise_lower_bound(min([state.upper_cutoff, *(bound for bound, _, _ in heap)]))
