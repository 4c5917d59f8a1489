"""An exact lower bound from CP-SAT, whose integer reasoning makes it a proof, unlike a floating-point solver's bound.

The model is the problem's local polytope with booleans for strategies and for possible pairs of classes. It has
capacity rows only at the given time steps: a relaxation, so its bound holds for the problem too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from solvers.isolated_process import WorkerFailed
from solvers.model import IMPOSSIBLE
from solvers.problem import Problem

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Integers = NDArray[np.int64]

MAX_INT64 = (1 << 63) - 1
# Threads where a clock runs; otherwise one thread for this much of CP-SAT's deterministic time (roughly seconds).
WORKERS, DETERMINISTIC_TIME = 2, 30.0


def prove_bound(
    problem: Problem, time_steps: Sequence[int], upper_cutoff: int, seconds: float | None, seed: int
) -> tuple[int, Integers | None]:
    """Return a proven lower bound, up to upper_cutoff, of every feasible assignment's cost, and the cheapest assignment
    below upper_cutoff that was found (None if none), which fits the limit at `time_steps`.

    seconds: of wall clock; None runs a reproducible amount of work.
    """
    from ortools.sat.python import cp_model  # here, because it imports pandas: only the worker process needs it

    model, strategies = cp_model.CpModel(), _CpSatModel(problem, min(upper_cutoff, IMPOSSIBLE))
    strategies.add_nodes(model)
    for e in range(problem.arrays.source.size):
        strategies.add_edge(model, e)
    for time_step in time_steps if problem.limit is not None else []:
        model.add(cp_model.LinearExpr.weighted_sum(*strategies.usage_terms(time_step)) <= (problem.limit or 0))
    total = cp_model.LinearExpr.weighted_sum(strategies.objective_variables, strategies.objective_coefficients)
    model.add(total <= min(upper_cutoff - 1, MAX_INT64))
    model.minimize(total)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.random_seed = 1 if seconds is None else WORKERS, seed
    solver.parameters.linearization_level = 2
    if seconds is None:
        solver.parameters.max_deterministic_time = DETERMINISTIC_TIME
    else:
        solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return upper_cutoff, None
    if status == cp_model.MODEL_INVALID:
        raise WorkerFailed(f"prove_bound: CP-SAT refused the model: {model.validate() or 'its integers are too large'}")
    assignment = None if status == cp_model.UNKNOWN else strategies.read_assignment(solver)
    # The bound in integers: best_objective_bound is a double, which rounds costs above 2**53 up as well as down.
    return min(max(solver.response_proto.inner_objective_lower_bound, 0), upper_cutoff), assignment


class _CpSatModel:
    """The boolean variables of a problem and the terms of the objective.

    Strategies and pairs that alone cost `cutoff` or more are excluded: no assignment of interest has them.
    """

    def __init__(self, problem: Problem, cutoff: int) -> None:
        self._arrays, self._cutoff = problem.arrays, cutoff
        self.objective_variables: list[cp_model.IntVar] = []
        self.objective_coefficients: list[int] = []
        self._variables: list[cp_model.IntVar] = []
        self._pairs: list[dict[int, cp_model.IntVar]] = []

    def _add_objective_term(self, variable: cp_model.IntVar, cost: int) -> None:
        if cost:
            self.objective_variables.append(variable)
            self.objective_coefficients.append(cost)

    def read_assignment(self, solver: cp_model.CpSolver) -> Integers:
        """Return the assignment of the solver's solution."""
        chosen = np.array([solver.boolean_value(variable) for variable in self._variables])
        return np.flatnonzero(chosen) - self._arrays.node_start[:-1]

    def add_nodes(self, model: cp_model.CpModel) -> None:
        """Add a boolean per strategy, exactly one of which is true at each node."""
        arrays = self._arrays
        starts = arrays.node_start.tolist()
        for i in range(len(starts) - 1):
            own = [model.new_bool_var("") for _ in range(starts[i], starts[i + 1])]
            model.add_exactly_one(own)
            for variable, cost in zip(own, arrays.cost[starts[i] : starts[i + 1]].tolist(), strict=True):
                if cost >= self._cutoff:
                    model.add(variable == 0)
                else:
                    self._add_objective_term(variable, cost)
            self._variables += own

    def add_edge(self, model: cp_model.CpModel, e: int) -> None:
        """Add a boolean per possible pair of classes of edge e, and tie the pairs of each class to its strategies."""
        arrays = self._arrays
        height, width = int(arrays.height[e]), int(arrays.width[e])
        cells = arrays.pair_cost[arrays.pair_start[e] + arrays.kinds_of(e).astype(np.int64)].tolist()
        pairs = {}
        for s, row in enumerate(cells):
            for t, cost in enumerate(row):
                if cost < self._cutoff:
                    pair = pairs[s * width + t] = model.new_bool_var("")
                    self._add_objective_term(pair, cost)
        sources = arrays.source_class[arrays.source_start[e] : arrays.source_start[e + 1]].tolist()
        targets = arrays.target_class[arrays.target_start[e] : arrays.target_start[e + 1]].tolist()
        for s in range(height):
            own = [self._variables[arrays.node_start[arrays.source[e]] + x] for x, c in enumerate(sources) if c == s]
            model.add(sum(v for p, v in pairs.items() if p // width == s) == sum(own))
        for t in range(width):
            own = [self._variables[arrays.node_start[arrays.target[e]] + x] for x, c in enumerate(targets) if c == t]
            model.add(sum(v for p, v in pairs.items() if p % width == t) == sum(own))
        self._pairs.append(pairs)

    def usage_terms(self, time_step: int) -> tuple[list[cp_model.IntVar], list[int]]:
        """Return the booleans that use memory at a time step, and the bytes of each."""
        arrays = self._arrays
        terms: list[cp_model.IntVar] = []
        weights: list[int] = []
        for q in np.flatnonzero((arrays.span_start <= time_step) & (time_step < arrays.span_stop)):
            first, last = arrays.node_start[arrays.span_node[q] : arrays.span_node[q] + 2].tolist()
            terms += self._variables[first:last]
            weights += arrays.span_usage[arrays.span_at[q] : arrays.span_at[q] + last - first].tolist()
        for u in np.flatnonzero((arrays.edge_usage_start <= time_step) & (time_step < arrays.edge_usage_stop)):
            edge = int(arrays.edge_usage_edge[u])
            kinds = arrays.kinds_of(edge).ravel().tolist()
            for position, variable in self._pairs[edge].items():
                terms.append(variable)
                weights.append(int(arrays.pair_usage[arrays.edge_usage_pair_start[u] + kinds[position]]))
        return terms, weights
