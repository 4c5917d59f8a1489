"""Exact reductions of a choice problem, composed to a fixed point, and the way back.

Each reduction keeps the optimum (its module says why), works on flat arrays, on all that changed since it last
looked, and leaves records; the records, read backwards, lead from a choice of the reduced problem to one of the
original with the same cost, usage at every moment that may bind, and peak, if that is above the limit. Costs of the two
are the same numbers: what all choices share stays in the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.model import IMPOSSIBLE
from solvers.presolve import (
    arc_consistency,
    cost_projection,
    dead_end_elimination,
    degree2_elimination,
    dominated_rows,
    functional_aggregation,
    parallel_edges,
    usage_normalization,
)
from solvers.presolve.postsolve import PostsolveRecord
from solvers.presolve.reduced_problem import build_reduced
from solvers.presolve.state import Infeasible, PresolveState
from solvers.presolve.working_arrays import ragged_indices
from solvers.problem import Problem
from solvers.problem_arrays import ragged_arange
from solvers.solve_state import bound_largest_cost

Integers = NDArray[np.int64]
Reduction = Callable[[PresolveState, int], None]

__all__ = ["REDUCTIONS", "PresolvedProblem", "identity_presolve", "presolve"]

# The cheapest first: each runs when none before it has anything to look at.
REDUCTIONS: tuple[Reduction, ...] = (
    arc_consistency.enforce_arc_consistency,
    cost_projection.project_costs,
    parallel_edges.merge_parallel_edges,
    functional_aggregation.aggregate_functional,
    usage_normalization.normalize_usage,
    degree2_elimination.eliminate_degree2,
    dead_end_elimination.eliminate_dominated,
    dominated_rows.drop_dominated_rows,
)


@dataclass(frozen=True, slots=True, eq=False)
class PresolvedProblem:
    """The reduced problem; node n of it is node nodes[n] of the original (-1: none), whose strategies began at
    node_start, and its strategies, laid end to end as in its layout, are `strategy` of that node's."""

    problem: Problem
    nodes: Integers
    strategy: Integers
    node_start: Integers
    records: tuple[PostsolveRecord, ...]

    def postsolve(self, assignment: Sequence[int] | Integers) -> Integers:
        """The original's choice."""
        full, real = np.zeros(self.node_start.size - 1, np.int64), self.nodes >= 0
        taken = self.strategy[self.problem.arrays.node_start[:-1] + np.asarray(assignment, np.int64)]
        full[self.nodes[real]] = taken[real]
        for record in reversed(self.records):
            record.postsolve(full)
        return full

    def crush(self, assignment: Sequence[int] | Integers) -> Integers | None:
        """A choice here that is no worse than a possible one of the original; None for one that was excluded."""
        full, real = np.array(assignment, np.int64), self.nodes >= 0
        for record in self.records:
            record.crush(full)
        node, x = ragged_indices(np.diff(self.problem.arrays.node_start))
        place = np.full(self.node_start[-1], -1)
        ours = real[node]
        place[self.node_start[self.nodes[node[ours]]] + self.strategy[ours]] = x[ours]
        lowered = np.zeros(real.size, np.int64)
        lowered[real] = place[self.node_start[self.nodes[real]] + full[self.nodes[real]]]
        return lowered if (lowered >= 0).all() else None


def _never_stop() -> bool:
    return False


def presolve(
    problem: Problem, reductions: Sequence[Reduction] = REDUCTIONS, stopped: Callable[[], bool] = _never_stop
) -> PresolvedProblem | None:
    """The problem reduced until nothing changes; None if no choice is without anything forbidden.

    A problem whose costs could add up to IMPOSSIBLE stays as it is. Once stopped() is true, what has been done stands.
    """
    arrays = problem.arrays
    if arrays.node_start.size == 1 or bound_largest_cost(problem) >= IMPOSSIBLE:
        return identity_presolve(problem)
    state = PresolveState(problem, len(reductions), stopped)
    try:
        state.require_feasible()
        while (turn := next(filter(state.has_dirty, range(len(reductions))), None)) is not None and not stopped():
            reductions[turn](state, turn)
        state.require_feasible()
    except Infeasible:
        return None
    usage_normalization.sort_intervals(state, state.alive)
    reduced, nodes, strategy = build_reduced(state)
    return PresolvedProblem(reduced, nodes, strategy, arrays.node_start, tuple(state.records))


def identity_presolve(problem: Problem) -> PresolvedProblem:
    """The problem as its own reduction."""
    start = problem.arrays.node_start
    return PresolvedProblem(problem, np.arange(start.size - 1), ragged_arange(start), start, ())
