"""A Lagrangian heuristic: feasible assignments at multipliers that follow the overload.

J. E. Beasley, "Lagrangian relaxation", in: Reeves, Modern heuristic techniques, 1993. The dual's best multipliers
belong to a fractional optimum: the assignment decoded from them usually exceeds the limit a little at some time steps,
and scaling the multipliers does not help where those time steps have none. Raising the multipliers of just these time
steps, and lowering all once an assignment fits, walks along the border of the feasible region; every assignment on the
way is submitted.
"""

from __future__ import annotations

from solvers.evaluation import find_peaks, usage_profile
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState

# An overloaded time step's multiplier rises by RISE_RATE times its relative overload, at most by MAX_RISE, both as
# shares of the sum of all multipliers.
MAX_RISE, RISE_RATE = 0.1, 1.0
# The factor on all multipliers once an assignment fits; message rounds per step; the factor on the dual's multipliers
# at the start.
DECAY, ROUNDS, INITIAL_FACTOR = 0.85, 4, 1.5
# The share of the time left: where message passing is slow, the methods that follow are worth more.
TIME_SHARE = 0.1


def run_lagrangian_heuristic(state: SolveState, relaxation: Relaxation, steps: int) -> None:
    """Submit the assignments decoded at up to `steps` multipliers. The relaxation's own multipliers and bound are
    restored at the end."""
    left = state.seconds_left
    until = None if left is None else (1 - TIME_SHARE) * left
    best, bound, limit = dict(relaxation.multipliers), relaxation.bound, state.problem.limit or 0
    problem = relaxation.model.restriction.problem
    total = sum(best.values()) or (state.cost or state.largest_cost) / max(limit, 1)
    multipliers = {t: INITIAL_FACTOR * multiplier for t, multiplier in best.items() if multiplier > 0}
    for _ in range(steps):
        relaxation.set_multipliers(multipliers)
        assignment = relaxation.pass_messages(ROUNDS, 0.0)
        if assignment is None or state.is_exhausted or (until is not None and (state.seconds_left or 0.0) < until):
            break
        over = usage_profile(problem, assignment) - limit
        for time_step in find_peaks(over):
            rise = min(MAX_RISE, RISE_RATE * int(over[time_step]) / max(limit, 1)) * total
            multipliers[time_step] = multipliers.get(time_step, 0.0) + rise
        if not (over > 0).any():
            multipliers = {t: DECAY * multiplier for t, multiplier in multipliers.items()}
    relaxation.set_multipliers(best)
    relaxation.bound = bound
