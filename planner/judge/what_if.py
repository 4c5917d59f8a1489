"""What forcing an option costs in all: the choice problem again, with one variable held.

A problem of up to WHOLE variables is solved anew as a whole, from the plan as its start: exact where the solver ends,
else between what it found and what it proved. Of a larger one only the variables around the held one are free, as
many as NEAR; what is found so is what forcing costs at most, and the plan's own bound is what it costs at least.
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
    """The best plan with an option takes at least `bound_ps`, and no more than `cost_ps` (None: none is known);
    `exact`: proven to be that plan, to the gap asked for; `infeasible`: proven that none fits."""

    cost_ps: int | None
    bound_ps: int
    exact: bool
    infeasible: bool = False


@dataclass(frozen=True)
class WhatIf:
    """A question with a known choice; nothing better than `bound_ps` exists. `whole`: so many variables are solved as a
    whole, of more only `near`."""

    question: Formulation
    strategies: Sequence[int]
    bound_ps: int
    gap: float = 1e-6
    deterministic: bool = False
    exact_variables: int = EXACT_VARIABLES
    neighbourhood: int = NEIGHBOURHOOD

    def force_options(self, node: int, strategies: Sequence[int], seconds: float) -> dict[int, ForcedOptionCost]:
        """Strategy of a variable -> what it costs in all. When the time is up, the rest is not solved but priced
        with all else as it is."""
        whole = len(self.question.variables) <= self.exact_variables
        free = np.ones(len(self.question.variables), bool) if whole else self._near_variables(node)
        found, ends = dict[int, ForcedOptionCost](), time.monotonic() + seconds
        for done, strategy in enumerate(strategies):
            left = seconds - done * seconds / len(strategies) if self.deterministic else ends - time.monotonic()
            share = left / (len(strategies) - done)
            known = self._plan_cost(node, strategy)
            found[strategy] = (
                known
                if share < MIN_SOLVE_S / 10
                else self._solve_restricted(node, strategy, free, whole=whole, seconds=share, known=known)
            )
        return found

    def _plan_cost(self, node: int, strategy: int) -> ForcedOptionCost:
        changed = list(self.strategies)
        changed[node] = strategy
        worth = solvers.evaluate(self.question.problem, changed)
        return ForcedOptionCost(worth.cost if worth.feasible else None, self.bound_ps, exact=False)

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
        """A flag per strategy, flat: all of the free variables, the plan's of the others, the held one's."""
        starts = self.question.problem.arrays.node_start
        allowed = np.repeat(free, np.diff(starts))
        allowed[starts[:-1] + np.array(self.strategies)] = True
        allowed[starts[node] : starts[node + 1]] = False
        allowed[starts[node] + strategy] = True
        return allowed

    def _near_variables(self, node: int) -> NDArray[np.bool_]:
        """The `near` variables that are the fewest edges away, the earlier first."""
        layout = self.question.problem.arrays
        joined = defaultdict[int, list[int]](list)
        for source, target in zip(layout.source.tolist(), layout.target.tolist(), strict=True):
            joined[source].append(target)
            joined[target].append(source)
        seen = [node]
        known = {node}
        for at in seen:
            for other in sorted(set(joined[at]) - known):
                known.add(other)
                seen.append(other)
            if len(seen) > self.neighbourhood:
                break
        flags = np.zeros(len(self.question.variables), bool)
        flags[seen[: self.neighbourhood]] = True
        return flags
