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
from solvers.restrict import Restricted

WHOLE, NEAR = 1000, 300
LEAST_S = 0.2


@dataclass(frozen=True, slots=True)
class Forced:
    """The best plan with an option takes at least `bound_ps`, and no more than `cost_ps` (None: none is known);
    `exact`: proven to be that plan, to the gap asked for; `infeasible`: proven that none fits."""

    cost_ps: int | None
    bound_ps: int
    exact: bool
    infeasible: bool = False


@dataclass(frozen=True)
class Forcing:
    """A question with a known choice; nothing better than `bound_ps` exists. `whole`: so many variables are solved as a
    whole, of more only `near`."""

    question: Formulation
    strategies: Sequence[int]
    bound_ps: int
    gap: float = 1e-6
    deterministic: bool = False
    whole: int = WHOLE
    near: int = NEAR

    def forced(self, node: int, strategies: Sequence[int], seconds: float) -> dict[int, Forced]:
        """Strategy of a variable -> what it costs in all. When the time is up, the rest is not solved but priced
        with all else as it is."""
        whole = len(self.question.variables) <= self.whole
        free = np.ones(len(self.question.variables), bool) if whole else self._near(node)
        found, ends = dict[int, Forced](), time.monotonic() + seconds
        for done, strategy in enumerate(strategies):
            left = seconds - done * seconds / len(strategies) if self.deterministic else ends - time.monotonic()
            share = left / (len(strategies) - done)
            known = self._kept(node, strategy)
            found[strategy] = known if share < LEAST_S / 10 else self._solved(node, strategy, free, whole, share, known)
        return found

    def _kept(self, node: int, strategy: int) -> Forced:
        changed = list(self.strategies)
        changed[node] = strategy
        worth = solvers.evaluate(self.question.problem, changed)
        return Forced(worth.cost if worth.feasible else None, self.bound_ps, exact=False)

    def _solved(
        self, node: int, strategy: int, free: NDArray[np.bool_], whole: bool, seconds: float, known: Forced
    ) -> Forced:
        restricted = Restricted.nothing(self.question.problem).narrowed(self._allowed(node, strategy, free))
        changed = np.array(self.strategies, np.int64)
        changed[node] = strategy
        start = restricted.lower(changed)
        solution = solvers.solve(
            restricted.problem,
            time_limit=max(seconds, LEAST_S),
            gap=self.gap,
            deterministic=self.deterministic,
            processes=1,
            starts=[] if start is None else [start.tolist()],
        )
        costs = [cost for cost in (solution.cost, known.cost_ps) if cost is not None]
        best = min(costs, default=None)
        if not whole:
            return Forced(best, self.bound_ps, exact=best is not None and best <= self.bound_ps)
        impossible = solution.status == "infeasible"
        return Forced(best, max(self.bound_ps, solution.bound), solution.status == "optimal", impossible)

    def _allowed(self, node: int, strategy: int, free: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """A flag per strategy, flat: all of the free variables, the plan's of the others, the held one's."""
        starts = self.question.problem.layout.node_start
        allowed = np.repeat(free, np.diff(starts))
        allowed[starts[:-1] + np.array(self.strategies)] = True
        allowed[starts[node] : starts[node + 1]] = False
        allowed[starts[node] + strategy] = True
        return allowed

    def _near(self, node: int) -> NDArray[np.bool_]:
        """The `near` variables that are the fewest edges away, the earlier first."""
        layout = self.question.problem.layout
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
            if len(seen) > self.near:
                break
        flags = np.zeros(len(self.question.variables), bool)
        flags[seen[: self.near]] = True
        return flags
