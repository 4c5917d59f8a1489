"""Messages computed on one problem for a solve of a similar one, such as the unfolded form of a folded problem.

Any messages give a valid bound (solvers/trws.py); good initial messages only make it tight sooner. No strategy is
excluded here by its reduced cost: the messages of an excluded strategy would be useless in a problem that keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint, LagrangianCosts
from solvers.problem import Problem
from solvers.solution import DualWarmStart
from solvers.solve_state import WORK_PER_SECOND, bound_largest_cost, pass_work
from solvers.trws import TrwsMessages

# Most rounds (a forward and a backward pass each); the gain of the bound is checked every so many rounds, and they end
# where the gain per round is less than STALL times the gap that is to be proven.
MAX_ROUNDS, CHECK_EVERY, STALL = 400, 4, 1e-3


def compute_warm_start(
    problem: Problem,
    gap: float,
    seconds: float,
    *,
    multipliers: Mapping[int, float] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> DualWarmStart:
    """Pass messages at fixed multipliers until the bound stalls, or for `seconds` seconds' worth of work.

    gap: the relative gap that the later solve is to prove. multipliers: cost units per byte, by time step; None
    relaxes the usage limit entirely. stopped: polled; the messages so far are returned once it returns True. Work is
    counted rather than timed, so that the result is reproducible unless it was stopped.
    """
    graph = OrientedGraph.of(problem.arrays)
    pricing = LagrangianCosts(graph, _choose_scale(problem, graph))
    multipliers = multipliers or {}
    messages, potentials = TrwsMessages(graph), pricing.with_multipliers(multipliers, problem.limit or 0)
    rounds = int(seconds * WORK_PER_SECOND / (2 * pass_work(problem.arrays)))
    last = bound = 0
    for step in range(min(rounds, MAX_ROUNDS)):
        if stopped():
            break
        for forward in (True, False):
            # Full and half shares in turn, as in the rounds of the solve itself (Relaxation.pass_messages).
            bound = potentials.bound(messages.sweep(potentials, forward, 1 + step % 2))
        if step % CHECK_EVERY == CHECK_EVERY - 1:
            if step > CHECK_EVERY and bound - last <= CHECK_EVERY * STALL * gap * bound:
                break
            last = bound
    return DualWarmStart(multipliers, messages.values / pricing.scale.factor)


def _choose_scale(problem: Problem, graph: OrientedGraph) -> FixedPoint:
    """Return a scale in which what is forbidden costs no more than in any later solve.

    Messages that exceed what the solve lets the forbidden cost would make its first bounds negative. No assignment
    costs less than the bound of a first pass, and the scale of a solve is for costs of what its assignments cost.
    """
    rough = FixedPoint.of(graph.degree, bound_largest_cost(problem))
    potentials = LagrangianCosts(graph, rough).with_multipliers({})
    bound = potentials.bound(TrwsMessages(graph).sweep(potentials, True, 1))
    return FixedPoint.of(graph.degree, bound // 2) if bound > 0 else rough
