"""Diving and branching, for what message passing alone leaves open.

Equal choices (equal mesh axes) leave every strategy of an orbit in place, and a decoded choice may mix them. Taking
one strategy of one node breaks the tie: the dive does so node after node; branch and bound also keeps the
other side, and so proves.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from solvers.ledger import Ledger
from solvers.relaxation import Relaxation

Integers = NDArray[np.int64]

DIVE_ROUNDS = 4
BRANCH_STALL = 1e-6


def _node(relaxation: Relaxation) -> int | None:
    """The node to decide next: of those with a choice left, the one with the most edges, then the most strategies."""
    counts = relaxation.counts()
    if counts.max(initial=0) <= 1:
        return None
    degree = np.diff(relaxation.field.topology.first)
    return int(np.argmax((counts > 1) * (degree * 10**6 + counts)))


def _split(relaxation: Relaxation, node: int, strategy: int) -> Relaxation:
    """Take the strategy at the node here; returns the other side, where it is excluded."""
    start, stop = relaxation.field.layout.node_start[node : node + 2]
    at = start + strategy
    if not relaxation.allowed[at]:
        at = start + int(np.flatnonzero(relaxation.allowed[start:stop])[0])
    other = relaxation.copy()
    other.allowed[at] = False
    relaxation.allowed[start:stop] = False
    relaxation.allowed[at] = True
    relaxation.whole = other.whole = False
    return other


def dive(relaxation: Relaxation, most: int) -> None:
    """Decide one node after another, at most so many, until nothing better than the best choice is left."""
    below = relaxation.copy()
    for _ in range(most):
        choice = below.tighten(DIVE_ROUNDS, 0.0)
        node = _node(below)
        if choice is None or node is None or below.field.ledger.exhausted:
            return
        _split(below, node, int(choice[node]))


def branch(ledger: Ledger, root: Relaxation, work: float) -> None:
    """Best-first branch and bound for so much work; the ledger learns the bound that it proves."""
    heap: list[tuple[int, int, Relaxation]] = [(root.bound, 0, root.copy())]
    stop_at, count = ledger.work_done + work, 0
    while heap and ledger.work_done < stop_at and not ledger.exhausted:
        _, _, relaxation = heapq.heappop(heap)
        while True:
            count += 1
            choice = relaxation.tighten(3 * DIVE_ROUNDS, BRANCH_STALL)
            node = _node(relaxation)
            if choice is None or node is None:
                break
            if ledger.exhausted or ledger.work_done >= stop_at:
                heapq.heappush(heap, (relaxation.bound, -count, relaxation))
                break
            other = _split(relaxation, node, int(choice[node]))
            heapq.heappush(heap, (other.bound, -count, other))
        if root.whole:
            ledger.prove(min([ledger.ceiling, *(bound for bound, _, _ in heap)]))
