"""The proof tree of a solve: which bounding it has, and when it is planted anew."""

from __future__ import annotations

from collections.abc import Callable

from solvers.ascent_bounding import AscentBounding
from solvers.dual_ascent import DualAscent
from solvers.lp_bounding import LpBounding
from solvers.proof_tree import ProofTree
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState

# Elites whose peaks above the limit are watched from the start.
ELITES = 8


class Branching:
    """Grows a tree whose branches are bounded by dual ascent or, without one and once that gains nothing, by linear
    programs.

    dual: an ascent on the whole problem that has begun (None: there is none, or linear programs have taken its place).
    """

    def __init__(self, state: SolveState, dual: DualAscent | None) -> None:
        self.dual, self._state = dual, state
        self._tree: ProofTree | None = None

    def can_grow(self, root: Relaxation) -> bool:
        """Return whether the tree is open, with this root where it has none yet; a root may be too large for one."""
        bounding = LpBounding if self.dual is None else AscentBounding
        return root.model.arrays.pairs <= bounding.max_pairs and self._find_tree(root).can_grow

    def is_gaining(self, root: Relaxation) -> bool:
        """Return whether the tree can grow and has not stalled."""
        return self.can_grow(root) and not self._find_tree(root).is_stalled

    def grow(self, root: Relaxation, branches: int, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Bound at most so many branches, until interrupted() is true."""
        for _ in range(branches):
            if interrupted() or self._state.is_exhausted or not self.can_grow(root):
                return
            self._find_tree(root).grow()

    def _find_tree(self, root: Relaxation) -> ProofTree:
        """Return the tree, planted when it is first asked for, and again where other methods have come to prove more
        at the root than it has, or where it has stalled and linear programs can take its place."""
        tree = self._tree
        if tree is None or (root.is_exact and root.bound > tree.lower):
            self._tree = tree = self._plant(root)
        elif tree.is_stalled and root.model.arrays.pairs <= LpBounding.max_pairs:
            self.dual = None
            self._tree = tree = self._plant(root)
        return tree

    def _plant(self, root: Relaxation) -> ProofTree:
        if self.dual is None:
            return ProofTree(self._state, root, LpBounding())
        return ProofTree(self._state, root, AscentBounding(root, self.dual, root.peaks_of_elites(ELITES)))
