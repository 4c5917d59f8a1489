"""Diving and branching, for what message passing alone leaves open.

Equal choices (equal mesh axes) leave every strategy of an orbit in place, and a decoded choice may mix them. Taking
one strategy of one node breaks the tie: the dive does so node after node; branch and bound also keeps the
other side, and so proves.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState

Integers = NDArray[np.int64]

DIVE_ROUNDS = 4
BRANCH_STALL = 1e-6


def _select_node(relaxation: Relaxation) -> int | None:
    """The node to decide next: of those with a choice left, the one with the most edges, then the most strategies."""
    counts = relaxation.counts()
    if counts.max(initial=0) <= 1:
        return None
    degree = np.diff(relaxation.model.graph.first)
    return int(np.argmax((counts > 1) * (degree * 10**6 + counts)))


def _branch_on(relaxation: Relaxation, node: int, strategy: int) -> Relaxation:
    """Take the strategy at the node here; returns the other side, where it is excluded."""
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
    """Decide one node after another, at most so many, until nothing better than the best choice is left."""
    below = relaxation.copy()
    for _ in range(most):
        assignment = below.pass_messages(DIVE_ROUNDS, 0.0)
        node = _select_node(below)
        if assignment is None or node is None or below.model.ledger.is_exhausted:
            return
        _branch_on(below, node, int(assignment[node]))


def run_branch_and_bound(state: SolveState, root: Relaxation, work: float) -> None:
    """Best-first branch and bound for so much work; the ledger learns the bound that it proves."""
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
        if root.is_exact:
            state.raise_lower_bound(min([state.upper_cutoff, *(bound for bound, _, _ in heap)]))
