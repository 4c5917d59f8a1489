"""Messages that others start from: those of a part of a problem, or of its folded form, nearly fit the whole.

Any messages are valid (solvers/messages.py), so what they start from changes only how soon a bound is good. Nothing is
excluded here: what a strategy that is excluded sends is of no use where it is not.
"""

from __future__ import annotations

from collections.abc import Mapping

from solvers.ledger import WORK_PER_SECOND, largest_cost, pass_work
from solvers.messages import Messages
from solvers.potentials import Pricing, Scale
from solvers.problem import Problem
from solvers.solution import Start
from solvers.topology import Topology

# Rounds at most; they end where one gains less of the bound than this share of the gap that is to be proven.
ROUNDS, CHECKED, STALL = 400, 4, 1e-3


def converged(problem: Problem, gap: float, seconds: float, prices: Mapping[int, float] | None = None) -> Start:
    """Messages at these prices after so many seconds' worth of work, or where the bound hardly rises any more. Without
    prices, no limit of memory counts."""
    topology = Topology.of(problem.layout)
    pricing = Pricing(topology, Scale.of(topology.degree, largest_cost(problem)))
    prices = prices or {}
    messages, potentials = Messages(topology), pricing.at(prices, problem.limit or 0)
    rounds = int(seconds * WORK_PER_SECOND / (2 * pass_work(problem.layout)))
    last = bound = 0
    for step in range(min(rounds, ROUNDS)):
        for forward in (True, False):
            bound = potentials.bound(messages.sweep(potentials, forward, 1 + step % 2))
        if step % CHECKED == CHECKED - 1:
            if step > CHECKED and bound - last <= CHECKED * STALL * gap * bound:
                break
            last = bound
    return Start(prices, messages.values / pricing.scale.factor)
