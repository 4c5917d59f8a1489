"""Proof trees, for what message passing alone leaves open.

With a usage limit the relaxation packs fractions of strategies, and multipliers that are right for the whole problem
are wrong for its branches. A proof tree solves the linear program of each branch, separates its cuts, and turns its
duals into a bound in integers (solvers/cut_separation.py). It branches where the linear programs of both branches, of
which some steps are done for a few nodes, cost most.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from solvers.cut_separation import separate_cuts
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState

Mask = NDArray[np.bool_]

# Rounds of cuts per branch of a proof tree; most pairs at its root, and most open branches (each is a problem).
CUT_ROUNDS, MAX_TREE_PAIRS, MAX_OPEN = 4, 20_000, 2000
# Nodes compared before a branch is split.
PROBES = 6
# A branch whose linear program has no optimum is tried at multipliers raised so many times by this factor.
RAISES, RAISE_FACTOR = 6, 8.0
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
            branch, cuts = separate_cuts(state, smaller, every, time_steps=time_steps, rounds=CUT_ROUNDS, probes=PROBES)
            if cuts is not None:
                arrays = smaller.model.arrays
                first = arrays.node_start[:-1]
                rounded = np.lexsort((-cuts.point, arrays.node_of))[first] - first
                state.submit(smaller.model.restriction.postsolve(rounded))
            elif not state.is_exhausted:
                _raise_multipliers(branch)
            split = None if cuts is None else cuts.split
            for part in [] if branch.is_done else [branch] if state.is_exhausted else self._split(branch, split):
                self._count += 1
                heapq.heappush(self._open, (max(bound, branch.bound), -self._count, part))
            if self._is_exact:
                state.raise_lower_bound(min([state.upper_cutoff, *(bound for bound, _, _ in self._open)]))

    def _split(self, branch: Relaxation, split: tuple[int, Mask] | None) -> list[Relaxation]:
        """Return the two halves of a branch; nothing where it is a single assignment, which is submitted.

        split: a node, and flags of those of its strategies to keep in one half.
        """
        restriction, counts, first = branch.model.restriction, branch.counts(), branch.model.arrays.node_start
        if counts.max() == 1:
            left = np.flatnonzero(branch.allowed) - first[:-1]
            self._state.submit(restriction.postsolve(left))
            return []
        node, kept = split or (int(counts.argmax()), np.zeros(0, bool))
        allowed = branch.allowed[first[node] : first[node + 1]]
        if split is None or not (kept & allowed).any() or not (~kept & allowed).any():
            node = int(counts.argmax())
            kept = np.arange(first[node + 1] - first[node]) == branch.allowed[first[node] : first[node + 1]].argmax()
        return [branch, _split(branch, node, kept)]


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
