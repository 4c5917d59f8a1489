"""Proof trees, for what message passing alone leaves open: best-first branch and bound with plunges.

With a usage limit the relaxation packs fractions of strategies, and multipliers that are right for the whole problem
are wrong for its branches. How a branch is bounded, in integers, and where it is split is a parameter: by linear
programs with cuts (solvers/lp_bounding.py) or by steps of the dual ascent (solvers/ascent_bounding.py).

A branch that has been split is followed by its likelier half as long as the bound of that is near the tree's least one
(a plunge, which finds assignments; T. Achterberg, "Constraint integer programming", 2007), and else by the open branch
of the least bound.
"""

from __future__ import annotations

import heapq
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState

Mask = NDArray[np.bool_]
# A rise of the least bound by less than this share of the gap is no gain.
MIN_GAIN = 1e-3
# A tree has stalled where the last branches without a gain are at least so many for each that was put aside.
IDLE_SHARE = 0.9

Split = tuple[int, Mask]
"""A node, and flags of those of its strategies to keep in the likelier half of a branch."""


class Bounding(Protocol):
    """How a tree bounds its branches. plunge: how far above the tree's least bound plunges go, as a share of the gap.
    patience: branches without a gain after which the tree has stalled. max_bytes: of the messages of all open
    branches."""

    plunge: float
    patience: int
    max_bytes: int

    def bound(self, branch: Relaxation) -> tuple[Relaxation, Split | None]:
        """Raise the branch's bound and exclude strategies; return what stands for it, and how best to split it."""


class ProofTree:
    """Branch and bound, one branch at a time. can_grow: whether branches are open, and not too many."""

    def __init__(self, state: SolveState, root: Relaxation, bounding: Bounding) -> None:
        self._state, self._is_exact, self._pairs = state, root.is_exact, root.model.arrays.pairs
        self._bounding = bounding
        self._open: list[tuple[int, int, Relaxation]] = []
        self._next: tuple[int, Relaxation] | None = None
        self._count = self._bytes = self._idle = 0
        # The least bound and the cost at the last gain.
        self._last = root.bound, state.cost
        self._push(root.bound, root.copy())

    @property
    def can_grow(self) -> bool:
        return self._bytes < self._bounding.max_bytes and (self._next is not None or bool(self._open))

    @property
    def is_stalled(self) -> bool:
        """Whether most branches, the last ones, have neither raised the least bound nor found a cheaper assignment. A
        plunge does neither for long, so a tree that has gained is given time."""
        return self._idle >= self._bounding.patience and self._idle >= IDLE_SHARE * self._count

    @property
    def lower(self) -> int:
        """The least bound of the open branches, at most the upper cutoff."""
        following = [] if self._next is None else [self._next[0]]
        return min([self._state.upper_cutoff, *following, *(bound for bound, _, _ in self._open[:1])])

    def grow(self) -> None:
        """Bound a branch and, where that does not close it, split it; then raise the state's lower bound to the least
        of the open branches."""
        state = self._state
        with state.operator("proof tree", self._pairs):
            before, branch = self._take()
            if before < state.upper_cutoff:
                branch, split = self._bounding.bound(branch)
                bound = max(before, branch.bound)
                halves = [] if branch.is_done else [branch] if state.is_exhausted else self._split(branch, split)
                for half in halves[1:]:
                    self._push(bound, half)
                least = min(bound, self.lower)
                if halves and bound - least <= self._bounding.plunge * (state.upper_cutoff - least):
                    self._next = bound, halves[0]
                elif halves:
                    # The copy is without what the last pass has left.
                    halves[0].messages = halves[0].messages.copy()
                    self._push(bound, halves[0])
            if self._is_exact:
                state.raise_lower_bound(self.lower)
        lower, cost = self._last
        gained = self.lower - lower > MIN_GAIN * (state.upper_cutoff - lower) or state.cost != cost
        self._last = (self.lower, state.cost) if gained else self._last
        self._idle = 0 if gained else self._idle + 1

    def _take(self) -> tuple[int, Relaxation]:
        """Take the half that a plunge goes on with, or else the open branch of the least bound."""
        following, self._next = self._next, None
        if following is not None:
            return following
        bound, _, branch = heapq.heappop(self._open)
        self._bytes -= branch.messages.values.nbytes
        return bound, branch

    def _push(self, bound: int, branch: Relaxation) -> None:
        self._count += 1
        self._bytes += branch.messages.values.nbytes
        branch.free_potentials()
        heapq.heappush(self._open, (bound, -self._count, branch))

    def _split(self, branch: Relaxation, split: Split | None) -> list[Relaxation]:
        """Return the two halves of a branch, the likelier one first; nothing where it is a single assignment, which is
        submitted."""
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
        return [branch, _split_at(branch, node, kept)]


def _split_at(branch: Relaxation, node: int, kept: Mask) -> Relaxation:
    """Keep these of the node's strategies here; return the branch with the others."""
    start, stop = branch.model.arrays.node_start[node : node + 2]
    other = branch.copy()
    other.allowed[start:stop] &= ~kept
    branch.allowed[start:stop] &= kept
    branch.is_exact = other.is_exact = False
    return other
