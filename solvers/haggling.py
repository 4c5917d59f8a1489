"""Feasible choices at prices that follow the usage: dearer where a choice overfills, cheaper once it fits.

The dual's best prices are those of a fractional optimum: what decoding makes of them mostly overfills some moments a
little, and would not fit at any multiple of these prices, since they are on other moments. Raising just those
walks along the border of what fits, and every choice on the way is offered (a Lagrangian heuristic; Beasley,
"Lagrangian relaxation", in: Reeves, Modern heuristic techniques, 1993).
"""

from __future__ import annotations

from solvers.evaluation import usage_profile
from solvers.ilp import peaks
from solvers.ledger import Ledger
from solvers.relaxation import Relaxation

# What is added at an overfilled moment, as a share of all prices: at most, and for each share of the limit it is over.
MOST, RISE = 0.1, 1.0
# Once a choice fits, prices fall by this; rounds of messages at each prices; the prices to start from.
FALL, ROUNDS, START = 0.85, 4, 1.5
# Of the clock's time left: where messages are slow, what comes after is worth more.
SHARE = 0.1


def haggle(ledger: Ledger, relaxation: Relaxation, steps: int) -> None:
    """Offer what so many prices give, at most; the relaxation keeps its own prices and bound."""
    left = ledger.seconds_left
    until = None if left is None else (1 - SHARE) * left
    best, bound, limit = dict(relaxation.prices), relaxation.bound, ledger.problem.limit or 0
    problem = relaxation.field.restricted.problem
    every = sum(best.values()) or (ledger.cost or ledger.largest_cost) / max(limit, 1)
    prices = {moment: START * price for moment, price in best.items() if price > 0}
    for _ in range(steps):
        relaxation.at(prices)
        choice = relaxation.tighten(ROUNDS, 0.0)
        if choice is None or ledger.exhausted or (until is not None and (ledger.seconds_left or 0.0) < until):
            break
        over = usage_profile(problem, choice) - limit
        for moment in peaks(over):
            rise = min(MOST, RISE * int(over[moment]) / max(limit, 1)) * every
            prices[moment] = prices.get(moment, 0.0) + rise
        if not (over > 0).any():
            prices = {moment: FALL * price for moment, price in prices.items()}
    relaxation.at(best)
    relaxation.bound = bound
