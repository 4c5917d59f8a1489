"""The best choice among few strategies, by a mixed-integer program in a process beside."""

from __future__ import annotations

from collections.abc import Sequence

from solvers.mip import MipResult, RestrictedMip
from solvers.restriction import Restriction
from solvers.solve_state import SolveState

# The share of the clock's time that a program is given, so that it answers in time.
TIME_MARGIN = 0.95
# A rough guess for one program, in units of work, so that deterministic runs count it too.
WORK_PER_PAIR = 2e5


def solve_restricted_mip(
    state: SolveState,
    restriction: Restriction,
    time_steps: Sequence[int],
    *,
    share: float,
    nodes: int | None,
    gap: float,
    seed: int,
) -> MipResult | None:
    """Solve a program within a share of the clock's time left, and offer its choice."""
    left = state.seconds_left
    hint = None if state.assignment is None else restriction.crush(state.assignment)
    seconds = None if left is None else TIME_MARGIN * share * left
    found = state.run_in_worker(
        RestrictedMip(restriction.problem, _objective_unit(state), hint, time_steps, seconds, nodes, gap, seed)
    )
    if left is not None and (found is None or not found.is_complete):
        state.mark_irreproducible()
    if found is not None:
        state.charge(WORK_PER_PAIR * (1000 + found.pairs))
        if found.assignment is not None:
            state.submit(restriction.postsolve(found.assignment))
    return found


def _objective_unit(state: SolveState) -> float:
    return max((state.cost or state.largest_cost) / 1e6, 1e-6)
