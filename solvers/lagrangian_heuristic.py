"""Feasible choices at prices that follow the usage: dearer where a choice overfills, cheaper once it fits.

The dual's best prices are those of a fractional optimum: what decoding makes of them mostly overfills some moments a
little, and would not fit at any multiple of these prices, since they are on other moments. Raising just those
walks along the border of what fits, and every choice on the way is offered (a Lagrangian heuristic; Beasley,
"Lagrangian relaxation", in: Reeves, Modern heuristic techniques, 1993).
"""

from __future__ import annotations

from solvers.evaluation import usage_profile
from solvers.mip import find_peaks
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState

# What is added at an overfilled moment, as a share of all prices: at most, and for each share of the limit it is over.
MAX_RISE, RISE_RATE = 0.1, 1.0
# Once a choice fits, prices fall by this; rounds of messages at each prices; the prices to start from.
DECAY, ROUNDS, INITIAL_FACTOR = 0.85, 4, 1.5
# Of the clock's time left: where messages are slow, what comes after is worth more.
TIME_SHARE = 0.1


def run_lagrangian_heuristic(state: SolveState, relaxation: Relaxation, steps: int) -> None:
    """Offer what so many prices give, at most; the relaxation keeps its own prices and bound."""
    left = state.seconds_left
    until = None if left is None else (1 - TIME_SHARE) * left
    best, bound, limit = dict(relaxation.multipliers), relaxation.bound, state.problem.limit or 0
    problem = relaxation.model.restriction.problem
    every = sum(best.values()) or (state.cost or state.largest_cost) / max(limit, 1)
    multipliers = {moment: INITIAL_FACTOR * price for moment, price in best.items() if price > 0}
    for _ in range(steps):
        relaxation.set_multipliers(multipliers)
        assignment = relaxation.pass_messages(ROUNDS, 0.0)
        if assignment is None or state.is_exhausted or (until is not None and (state.seconds_left or 0.0) < until):
            break
        over = usage_profile(problem, assignment) - limit
        for time_step in find_peaks(over):
            rise = min(MAX_RISE, RISE_RATE * int(over[time_step]) / max(limit, 1)) * every
            multipliers[time_step] = multipliers.get(time_step, 0.0) + rise
        if not (over > 0).any():
            multipliers = {moment: DECAY * price for moment, price in multipliers.items()}
    relaxation.set_multipliers(best)
    relaxation.bound = bound
