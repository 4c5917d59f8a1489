"""Bounds of branches by linear programs with cuts, turned into integers (solvers/cut_separation.py).

A branch is split where the linear programs of both halves, of which some steps are done for a few nodes, cost most.
"""

from __future__ import annotations

import numpy as np

from solvers.cut_separation import separate_cuts
from solvers.proof_tree import Split
from solvers.relaxation import Relaxation

# Rounds of cuts per branch; nodes compared before a branch is split.
CUT_ROUNDS, PROBES = 4, 6
# A branch whose linear program has no optimum is tried at multipliers raised so many times by this factor.
RAISES, RAISE_FACTOR = 6, 8.0
# Message rounds at raised multipliers.
RAISED_ROUNDS = 4


class LpBounding:
    """Bounding by linear programs (a proof_tree.Bounding)."""

    plunge, patience, max_pairs, max_bytes = 0.0, 1 << 62, 20_000, 1 << 26

    def bound(self, branch: Relaxation) -> tuple[Relaxation, Split | None]:
        """Separate cuts of the branch, and submit the assignment that its linear program is nearest to."""
        smaller, state = branch.compacted(), branch.model.state
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
        return branch, None if cuts is None else cuts.split


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
