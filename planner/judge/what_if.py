"""Price a forced option: solve the assignment problem again with one variable fixed.

A problem of up to EXACT_VARIABLES variables is solved as a whole, starting from the plan: the cost is exact where the
solver closes the gap, else it lies between the solution and the bound. In a larger problem only the NEIGHBOURHOOD
variables nearest to the fixed one are free: the solution is an upper bound of the cost, and the plan's own bound is the
lower bound.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import solvers
from planner.choose.formulate import Formulation
from solvers.restriction import Restriction

EXACT_VARIABLES, NEIGHBOURHOOD = 1000, 300
MIN_SOLVE_S = 0.2


@dataclass(frozen=True, slots=True)
class ForcedOptionCost:
    """Cost of the best plan with an option.

    cost_ps     of the best such plan found; None: none is known
    bound_ps    no such plan is faster
    exact       whether the plan found is optimal, within the requested gap
    infeasible  whether it is proven that no such plan fits
    """

    cost_ps: int | None
    bound_ps: int
    exact: bool
    infeasible: bool = False


@dataclass(frozen=True)
class WhatIf:
    """A problem with the plan's assignment and bound: no assignment costs less than `bound_ps`.

    Problems of up to `exact_variables` variables are solved as a whole, larger ones in a `neighbourhood` of as many
    variables.
    """

    question: Formulation
    strategies: Sequence[int]
    bound_ps: int
    # Smaller than a plan's gap: differences between options are small parts of a step.
    gap: float = 1e-6
    deterministic: bool = False
    exact_variables: int = EXACT_VARIABLES
    neighbourhood: int = NEIGHBOURHOOD

    def force_options(self, node: int, strategies: Sequence[int], seconds: float) -> dict[int, ForcedOptionCost]:
        """Return what each strategy of a variable costs, by strategy.

        When the time is up, the remaining strategies are priced with all other decisions unchanged.
        """
        whole = len(self.question.variables) <= self.exact_variables
        free = np.ones(len(self.question.variables), bool) if whole else self._near_variables(node)
        costs, ends = dict[int, ForcedOptionCost](), time.monotonic() + seconds
        for done, strategy in enumerate(strategies):
            left = seconds - done * seconds / len(strategies) if self.deterministic else ends - time.monotonic()
            share = left / (len(strategies) - done)
            known = self._plan_cost(node, strategy)
            costs[strategy] = (
                known
                if share < MIN_SOLVE_S / 10
                else self._solve_restricted(node, strategy, free, whole=whole, seconds=share, known=known)
            )
        return costs

    def _plan_cost(self, node: int, strategy: int) -> ForcedOptionCost:
        changed = list(self.strategies)
        changed[node] = strategy
        evaluation = solvers.evaluate(self.question.problem, changed)
        return ForcedOptionCost(evaluation.cost if evaluation.feasible else None, self.bound_ps, exact=False)

    def _solve_restricted(
        self, node: int, strategy: int, free: NDArray[np.bool_], *, whole: bool, seconds: float, known: ForcedOptionCost
    ) -> ForcedOptionCost:
        restricted = Restriction.identity(self.question.problem).restricted_to(
            self._allowed_strategies(node, strategy, free)
        )
        changed = np.array(self.strategies, np.int64)
        changed[node] = strategy
        start = restricted.crush(changed)
        solution = solvers.solve(
            restricted.problem,
            time_limit=max(seconds, MIN_SOLVE_S),
            gap=self.gap,
            deterministic=self.deterministic,
            processes=1,
            starts=[] if start is None else [start.tolist()],
        )
        costs = [cost for cost in (solution.cost, known.cost_ps) if cost is not None]
        best = min(costs, default=None)
        if not whole:
            return ForcedOptionCost(best, self.bound_ps, exact=best is not None and best <= self.bound_ps)
        impossible = solution.status == "infeasible"
        return ForcedOptionCost(best, max(self.bound_ps, solution.bound), solution.status == "optimal", impossible)

    def _allowed_strategies(self, node: int, strategy: int, free: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which strategies are allowed, as a flat array of flags.

        These are all strategies of the free variables, the plan's of the others, and the forced one.
        """
        starts = self.question.problem.arrays.node_start
        allowed = np.repeat(free, np.diff(starts))
        allowed[starts[:-1] + np.array(self.strategies)] = True
        # Last, so that neither the plan's own strategy nor a free variable allows another one here.
        allowed[starts[node] : starts[node + 1]] = False
        allowed[starts[node] + strategy] = True
        return allowed

    def _near_variables(self, node: int) -> NDArray[np.bool_]:
        """Return flags of the variables that are the fewest edges away, of equally near ones the earlier."""
        layout = self.question.problem.arrays
        joined = defaultdict[int, list[int]](list)
        for source, target in zip(layout.source.tolist(), layout.target.tolist(), strict=True):
            joined[source].append(target)
            joined[target].append(source)
        # Breadth first: what a forced option changes fades with the distance.
        queue = [node]
        seen = {node}
        for current in queue:
            for other in sorted(set(joined[current]) - seen):
                seen.add(other)
                queue.append(other)
            if len(queue) > self.neighbourhood:
                break
        flags = np.zeros(len(self.question.variables), bool)
        flags[queue[: self.neighbourhood]] = True
        return flags
