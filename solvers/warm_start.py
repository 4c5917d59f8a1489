"""Messages that others start from: those of a part of a problem, or of its folded form, nearly fit the whole.

Any messages are valid (solvers/trws.py), so what they start from changes only how soon a bound is good. Nothing is
excluded here: what a strategy that is excluded sends is of no use where it is not.
"""

from __future__ import annotations

from collections.abc import Mapping

from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint, LagrangianCosts
from solvers.problem import Problem
from solvers.solution import DualWarmStart
from solvers.solve_state import WORK_PER_SECOND, bound_largest_cost, pass_work
from solvers.trws import TrwsMessages

# Rounds at most; they end where one gains less of the bound than this share of the gap that is to be proven.
MAX_ROUNDS, CHECK_EVERY, STALL = 400, 4, 1e-3


def compute_warm_start(
    problem: Problem, gap: float, seconds: float, *, multipliers: Mapping[int, float] | None = None
) -> DualWarmStart:
    """Messages at these prices after so many seconds' worth of work, or where the bound hardly rises any more. Without
    prices, no limit of memory counts."""
    graph = OrientedGraph.of(problem.arrays)
    pricing = LagrangianCosts(graph, FixedPoint.of(graph.degree, bound_largest_cost(problem)))
    multipliers = multipliers or {}
    messages, potentials = TrwsMessages(graph), pricing.with_multipliers(multipliers, problem.limit or 0)
    rounds = int(seconds * WORK_PER_SECOND / (2 * pass_work(problem.arrays)))
    last = bound = 0
    for step in range(min(rounds, MAX_ROUNDS)):
        for forward in (True, False):
            bound = potentials.bound(messages.sweep(potentials, forward, 1 + step % 2))
        if step % CHECK_EVERY == CHECK_EVERY - 1:
            if step > CHECK_EVERY and bound - last <= CHECK_EVERY * STALL * gap * bound:
                break
            last = bound
    return DualWarmStart(multipliers, messages.values / pricing.scale.factor)
