"""An exact lower bound from CP-SAT, which reasons in integers throughout: what a floating-point solver cannot give.

The problem's local polytope with booleans for strategies and for possible pairs of classes; of the usage limit only
the rows at the moments given, so that the bound holds a fortiori for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from solvers.parts import IMPOSSIBLE
from solvers.problem import Problem

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Integers = NDArray[np.int64]

# The solver's own measure, roughly seconds.
WORKERS, WORK = 2, 30.0


def proven_bound(
    problem: Problem, moments: Sequence[int], ceiling: int, seconds: float | None, seed: int
) -> tuple[int, Integers | None]:
    """A lower bound, up to the ceiling, of every feasible choice's cost, and a cheaper choice than the ceiling if one
    turned up (feasible at these moments), in so many seconds (None: a reproducible amount of work)."""
    from ortools.sat.python import cp_model  # and pandas with it, which only the process beside has to load

    model, strategies = cp_model.CpModel(), _Strategies(problem)
    strategies.state(model)
    for e in range(problem.layout.source.size):
        strategies.state_edge(model, e)
    for moment in moments if problem.limit is not None else []:
        model.add(cp_model.LinearExpr.weighted_sum(*strategies.usage(moment)) <= (problem.limit or 0))
    total = cp_model.LinearExpr.weighted_sum(strategies.paid, strategies.costs)
    model.add(total <= ceiling - 1)
    model.minimize(total)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.random_seed = 1 if seconds is None else WORKERS, seed
    solver.parameters.linearization_level = 2
    if seconds is None:
        solver.parameters.max_deterministic_time = WORK
    else:
        solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return ceiling, None
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
        return 0, None
    choice = None if status == cp_model.UNKNOWN else strategies.chosen(solver)
    return min(max(int(np.floor(solver.best_objective_bound)), 0), ceiling), choice


class _Strategies:
    """The booleans of a problem, and what has to be paid for."""

    def __init__(self, problem: Problem) -> None:
        self._layout = problem.layout
        self.paid: list[cp_model.IntVar] = []
        self.costs: list[int] = []
        self._of: list[cp_model.IntVar] = []
        self._pairs: list[dict[int, cp_model.IntVar]] = []

    def _pay(self, variable: cp_model.IntVar, cost: int) -> None:
        if cost:
            self.paid.append(variable)
            self.costs.append(cost)

    def chosen(self, solver: cp_model.CpSolver) -> Integers:
        """The choice of the solver's solution."""
        taken = np.array([solver.boolean_value(variable) for variable in self._of])
        return np.flatnonzero(taken) - self._layout.node_start[:-1]

    def state(self, model: cp_model.CpModel) -> None:
        """One strategy of each node."""
        layout = self._layout
        starts = layout.node_start.tolist()
        for i in range(len(starts) - 1):
            own = [model.new_bool_var("") for _ in range(starts[i], starts[i + 1])]
            model.add_exactly_one(own)
            for variable, cost in zip(own, layout.cost[starts[i] : starts[i + 1]].tolist(), strict=True):
                if cost >= IMPOSSIBLE:
                    model.add(variable == 0)
                else:
                    self._pay(variable, cost)
            self._of += own

    def state_edge(self, model: cp_model.CpModel, e: int) -> None:
        """One possible pair of classes, those of the strategies chosen."""
        layout = self._layout
        height, width, start = int(layout.height[e]), int(layout.width[e]), int(layout.pair_start[e])
        cells = layout.pair_cost[start : start + height * width].reshape(height, width).tolist()
        pairs = {}
        for s, row in enumerate(cells):
            for t, cost in enumerate(row):
                if cost < IMPOSSIBLE:
                    pair = pairs[s * width + t] = model.new_bool_var("")
                    self._pay(pair, cost)
        sources = layout.source_class[layout.source_start[e] : layout.source_start[e + 1]].tolist()
        targets = layout.target_class[layout.target_start[e] : layout.target_start[e + 1]].tolist()
        for s in range(height):
            own = [self._of[layout.node_start[layout.source[e]] + x] for x, c in enumerate(sources) if c == s]
            model.add(sum(v for p, v in pairs.items() if p // width == s) == sum(own))
        for t in range(width):
            own = [self._of[layout.node_start[layout.target[e]] + x] for x, c in enumerate(targets) if c == t]
            model.add(sum(v for p, v in pairs.items() if p % width == t) == sum(own))
        self._pairs.append(pairs)

    def usage(self, moment: int) -> tuple[list[cp_model.IntVar], list[int]]:
        """What is used at a moment: booleans, and how much each brings."""
        layout = self._layout
        terms: list[cp_model.IntVar] = []
        weights: list[int] = []
        for q in np.flatnonzero((layout.span_start <= moment) & (moment < layout.span_stop)):
            first, last = layout.node_start[layout.span_node[q] : layout.span_node[q] + 2].tolist()
            terms += self._of[first:last]
            weights += layout.span_usage[layout.span_at[q] : layout.span_at[q] + last - first].tolist()
        for u in np.flatnonzero((layout.edge_usage_start <= moment) & (moment < layout.edge_usage_stop)):
            for position, variable in self._pairs[int(layout.edge_usage_edge[u])].items():
                terms.append(variable)
                weights.append(int(layout.pair_usage[layout.edge_usage_pair_start[u] + position]))
        return terms, weights
