"""A tree that looks for cheaper assignments among the strategies of the elites, ever more of them.

What good assignments have in common is mostly right, and what they differ in is a small problem (E. Rothberg, "An
evolutionary algorithm for polishing mixed integer programming solutions", 2007). Its branches take a fraction of the
time of those of the whole problem, and a new incumbent makes another one.
"""

from __future__ import annotations

from solvers.ascent_bounding import AscentBounding
from solvers.dual_ascent import DualAscent
from solvers.proof_tree import ProofTree
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState

# The most pairs of an incumbent's first tree, and the message rounds at its root, which end where one gains less than
# this share of the bound.
FIRST_PAIRS, ROUNDS, STALL = 4000, 200, 1e-6


class EliteTree:
    """The tree of the present incumbent, planted anew for the next one and, once it is closed, with twice the pairs.

    count: branches so far.
    """

    def __init__(self, state: SolveState) -> None:
        self._state, self.count = state, 0
        self._tree: ProofTree | None = None
        self._pairs = FIRST_PAIRS
        self._cost: int | None = None

    @property
    def is_outdated(self) -> bool:
        """Whether there is an incumbent that it was not planted for."""
        return self._state.cost != self._cost

    @property
    def can_grow(self) -> bool:
        return self._tree is not None and self._tree.can_grow

    def grow(self) -> None:
        """Bound a branch."""
        if self._tree is not None:
            self._tree.grow()
            self.count += 1

    def plant(self, root: Relaxation, dual: DualAscent) -> None:
        """Plant a tree of the strategies of root's elites nearest to the bound: none where nothing cheaper is left
        there, or hardly fewer pairs than at the root."""
        self._pairs = FIRST_PAIRS if self.is_outdated else 2 * self._pairs
        self._cost, self._tree = self._state.cost, None
        if self._pairs < root.model.arrays.pairs:
            smaller = root.compacted(root.nearest(self._pairs)[0] | root.incumbent_flags())
            smaller.is_exact = False
            smaller, _ = smaller.pass_until_stalled(ROUNDS, STALL)
            if not smaller.is_done:
                self._tree = ProofTree(self._state, smaller, AscentBounding(smaller, dual))
