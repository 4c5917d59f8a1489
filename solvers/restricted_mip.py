"""The best assignment among few strategies, by a mixed-integer program in a worker process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from solvers.isolated_process import Meanwhile
from solvers.mip import MipResult, RestrictedMip
from solvers.restriction import Restriction
from solvers.solve_state import SolveState

# The share of its time that a solver is given, so that it returns before the deadline.
TIME_MARGIN = 0.95
# A rough estimate of a MIP's units of work per pair of classes, so that deterministic runs count it.
WORK_PER_PAIR = 2e5


def solve_restricted_mip(
    state: SolveState,
    restriction: Restriction,
    time_steps: Sequence[int],
    *,
    share: float = 1.0,
    nodes: int | None,
    gap: float,
    seed: int,
    meanwhile: Meanwhile | None = None,
) -> MipResult | None:
    """Solve the MIP of a restricted problem and submit its assignment; None if the worker had to be killed.

    time_steps: the first capacity rows. share: of the time left, at most. nodes: most branch-and-bound nodes (None: any
    number). gap: relative. meanwhile: what to do until the answer is there, instead of the state's.
    """
    left = state.seconds_left
    hint = None if state.assignment is None else restriction.crush(state.assignment)
    seconds = None if left is None else TIME_MARGIN * share * left
    task = RestrictedMip(restriction.problem, _objective_unit(state), hint, time_steps, seconds, nodes, gap, seed)
    result = state.run_in_worker(task, meanwhile, partial(_take_in, state, restriction))
    if left is not None and (result is None or not result.is_complete):
        state.mark_irreproducible()
    return result


def _take_in(state: SolveState, restriction: Restriction, result: MipResult) -> None:
    state.charge(WORK_PER_PAIR * (1000 + result.pairs))
    if result.assignment is not None:
        state.submit(restriction.postsolve(result.assignment))


def _objective_unit(state: SolveState) -> float:
    """Return the cost units per unit of the MIP's objective: about a million units in all suits HiGHS's tolerances."""
    return max((state.cost or state.largest_cost) / 1e6, 1e-6)
