"""The trees of a solve: which bounding they have, when they are planted, and whose turn it is.

A tree proves what is left, and another one (solvers/elite_tree.py) looks for cheaper assignments. Where a tree was
split, and which time steps it watches, suits the incumbent that it was planted with. So the proof begins anew once
incumbents have left much less of the root's gap (a restart; T. Achterberg, "Constraint integer programming", 2007).
"""

from __future__ import annotations

from collections.abc import Callable

from solvers.ascent_bounding import AscentBounding
from solvers.dual_ascent import DualAscent
from solvers.elite_tree import EliteTree
from solvers.lp_bounding import LpBounding
from solvers.proof_tree import ProofTree
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState

# The tree is planted anew where incumbents have left less than this share of the root's gap. Message rounds at the root
# before, and the gain per round (of the bound) that ends them.
GAP_SHARE, ROUNDS, STALL = 0.8, 200, 1e-7
# Branches per turn, and how many the elites' tree has for each of the proof's where it finds nothing.
TURN, ELITES_SHARE = 300, 0.25


class Branching:
    """Grows trees whose branches are bounded by dual ascent or, without one and once that gains nothing, by linear
    programs.

    dual: an ascent on the whole problem that has begun (None: there is none, or linear programs have taken its place).
    """

    def __init__(self, state: SolveState, dual: DualAscent | None) -> None:
        self.dual, self._state = dual, state
        self._tree: ProofTree | None = None
        # What the tree was planted on, and how much in cost units that left open.
        self._root: Relaxation | None = None
        self._gap = 0
        # Branches of proofs so far, those of this tree, and how many it had at the last incumbent.
        self._count = self._grown = self._grown_before = 0
        self._cutoff = state.upper_cutoff
        self._elites, self._is_elites_turn, self._left = EliteTree(state), False, TURN

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
            if not self._left:
                self._begin_turn()
            self._left -= 1
            if self._is_elites_turn and self._elites.can_grow:
                self._elites.grow()
            else:
                self._find_tree(root).grow()
                self._count, self._grown = self._count + 1, self._grown + 1

    def _begin_turn(self) -> None:
        """Give the next branches to the elites' tree where the incumbent is new or that has had few, else to the
        proof."""
        self._left, elites = TURN, self._elites
        self._is_elites_turn = elites.is_outdated or elites.count < ELITES_SHARE * self._count
        if self.dual is None or self._root is None:
            self._is_elites_turn = False
        elif self._is_elites_turn and (elites.is_outdated or not elites.can_grow):
            elites.plant(self._root, self.dual)

    def _find_tree(self, root: Relaxation) -> ProofTree:
        """Return the tree, planted when it is first asked for, and again where other methods have come to prove more
        at the root than it has, where incumbents have left it behind, or where it has stalled and linear programs can
        take its place."""
        tree, cutoff = self._tree, self._state.upper_cutoff
        if cutoff < self._cutoff:
            self._cutoff, self._grown_before = cutoff, self._grown
        if tree is None or (root.is_exact and root.bound > tree.lower) or self._is_left_behind:
            self._tree = tree = self._plant(root)
        elif tree.is_stalled and root.model.arrays.pairs <= LpBounding.max_pairs:
            self.dual = None
            self._tree = tree = self._plant(root)
        return tree

    @property
    def _is_left_behind(self) -> bool:
        """Whether incumbents have left much less of the root's gap, and the tree has since grown by as much again."""
        left = self._state.upper_cutoff - (0 if self._root is None else self._root.bound)
        return left < GAP_SHARE * self._gap and self._grown >= 2 * self._grown_before

    def _plant(self, root: Relaxation) -> ProofTree:
        self._gap = self._grown = self._grown_before = 0
        if self.dual is None:
            return ProofTree(self._state, root, LpBounding())
        if self._root is None or self._root.bound < root.bound:
            self._root = root.copy()
        self._root, _ = self._root.pass_until_stalled(ROUNDS, STALL)
        self._gap = self._state.upper_cutoff - self._root.bound
        return ProofTree(self._state, self._root, AscentBounding(self._root, self.dual))
