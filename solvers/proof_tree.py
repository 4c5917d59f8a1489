"""Proof trees, for what message passing alone leaves open.

With a usage limit the relaxation packs fractions of strategies, and multipliers that are right for the whole problem
are wrong for its branches. A proof tree solves the linear program of each branch, separates its cuts, and turns its
duals into a bound in integers (solvers/cut_separation.py). It branches where the fractions of a node differ most in
what their usage costs: between the strategies that use less than the fractions do on average, and the others.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from solvers.cut_separation import separate_cuts
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Rounds of cuts per branch of a proof tree; most pairs at its root, and most open branches (each is a problem).
CUT_ROUNDS, MAX_TREE_PAIRS, MAX_OPEN = 12, 20_000, 2000
# A branch whose linear program has no optimum is tried at multipliers raised so many times by this factor.
RAISES, RAISE_FACTOR = 6, 8.0
# The least fraction of a strategy that counts.
FRACTION = 1e-6
# Message rounds at raised multipliers.
RAISED_ROUNDS = 4


def _split(relaxation: Relaxation, node: int, kept: Mask) -> Relaxation:
    """Keep these of the node's strategies here; return the branch with the others."""
    start, stop = relaxation.model.arrays.node_start[node : node + 2]
    other = relaxation.copy()
    other.allowed[start:stop] &= ~kept
    relaxation.allowed[start:stop] &= kept
    relaxation.is_exact = other.is_exact = False
    return other


class ProofTree:
    """Best-first branch and bound on linear programs with cuts, one branch at a time. can_grow: whether branches are
    open, and not too many or too large."""

    def __init__(self, state: SolveState, root: Relaxation) -> None:
        self._state, self._is_exact, self._pairs = state, root.is_exact, root.model.arrays.pairs
        self._open: list[tuple[int, int, Relaxation]] = [(root.bound, 0, root.copy())]
        self._count = 0

    @property
    def can_grow(self) -> bool:
        return 0 < len(self._open) < MAX_OPEN and self._pairs <= MAX_TREE_PAIRS

    def grow(self) -> None:
        """Bound the open branch of the least bound and, where that does not close it, split it; then raise the state's
        lower bound to the least of the open branches."""
        state = self._state
        with state.operator("proof tree", self._pairs):
            bound, _, branch = heapq.heappop(self._open)
            smaller = branch.compacted()
            every = np.ones(smaller.allowed.size, bool)
            time_steps = list(smaller.multipliers)
            branch, point = separate_cuts(state, smaller, every, time_steps=time_steps, rounds=CUT_ROUNDS)
            if not point.size and not state.is_exhausted:
                _raise_multipliers(branch)
            for part in [] if branch.is_done else [branch] if state.is_exhausted else self._split(branch, point):
                self._count += 1
                heapq.heappush(self._open, (max(bound, branch.bound), -self._count, part))
            if self._is_exact:
                state.raise_lower_bound(min([state.upper_cutoff, *(bound for bound, _, _ in self._open)]))

    def _split(self, branch: Relaxation, point: Floats) -> list[Relaxation]:
        """Return the two halves of a branch; nothing where it is a single assignment, which is submitted."""
        restriction, counts = branch.model.restriction, branch.counts()
        if counts.max() == 1:
            left = np.flatnonzero(branch.allowed) - branch.model.arrays.node_start[:-1]
            self._state.submit(restriction.postsolve(left))
            return []
        node, kept = _select_split(branch, point if point.size else np.zeros(branch.allowed.size))
        return [branch, _split(branch, node, kept)]


def _select_split(branch: Relaxation, point: Floats) -> tuple[int, Mask]:
    """Return the node to branch on, and which of its strategies to keep in one of the branches.

    point: a value for each strategy (flat), those of a node adding up to 1, or all zero where none is known.
    """
    model, counts = branch.model, branch.counts()
    first, sizes = model.arrays.node_start[:-1], model.arrays.counts
    value = np.where(branch.allowed, point, 0.0)
    price = (branch.lagrangian_potentials.theta - model.potentials({}).theta).astype(np.float64)
    mean = np.add.reduceat(value * price, first) / np.maximum(np.add.reduceat(value, first), FRACTION)
    spread = np.add.reduceat(value * np.abs(price - np.repeat(mean, sizes)), first)
    fraction = 1 - np.maximum.reduceat(value, first)
    score = np.where((counts > 1) & (fraction > FRACTION), spread, -1.0)
    if score.max() <= 0:
        score = np.where(counts > 1, 1 + fraction, 0.0)
    node = int(score.argmax())
    own = slice(first[node], first[node] + sizes[node])
    kept = price[own] <= mean[node]
    if not (kept & branch.allowed[own]).any() or not (~kept & branch.allowed[own]).any():
        kept = np.arange(sizes[node]) == np.where(branch.allowed[own], value[own], -1.0).argmax()
    return node, kept


def _raise_multipliers(branch: Relaxation) -> None:
    """Raise all multipliers of a branch until it is done or they have been raised RAISES times: without an assignment
    within the limit its bound rises with them. Its own multipliers are restored where it does not."""
    multipliers, bound, factor = dict(branch.multipliers), branch.bound, 1.0
    for _ in range(RAISES):
        factor *= RAISE_FACTOR
        branch.set_multipliers({t: factor * multiplier for t, multiplier in multipliers.items()})
        branch.pass_messages(RAISED_ROUNDS, 0.0)
        if branch.is_done:
            return
    branch.set_multipliers(multipliers)
    branch.bound = bound
