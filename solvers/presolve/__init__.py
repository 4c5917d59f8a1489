"""Presolve: exact reductions of a problem, repeated to a fixed point, and postsolve.

Each reduction preserves the optimum (its module says why), works in place on flat arrays, on the nodes that changed
since it last ran, and appends records. Postsolve reads the records backwards: it turns an assignment of the reduced
problem into one of the original with the same cost and the same usage at every time step that may bind (and so the same
peak, where that exceeds the limit). Costs need no conversion: what all assignments have in common stays in the reduced
problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.model import IMPOSSIBLE
from solvers.presolve import (
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

# Cheapest first: each runs once none before it has any changed nodes left.
REDUCTIONS: tuple[Reduction, ...] = (
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
    """The reduced problem and its correspondence with the original.

    Node n here is node nodes[n] of the original (-1: it stands for none), and flat strategy y here is strategy[y] of
    that node. node_start: the original's flat offsets. records: for postsolve, in the order of the reductions.
    """

    problem: Problem
    nodes: Integers
    strategy: Integers
    node_start: Integers
    records: tuple[PostsolveRecord, ...]

    def postsolve(self, assignment: Sequence[int] | Integers) -> Integers:
        """Return the assignment of the original that corresponds to one of the reduced problem."""
        original, is_real = np.zeros(self.node_start.size - 1, np.int64), self.nodes >= 0
        strategies = self.strategy[self.problem.arrays.node_start[:-1] + np.asarray(assignment, np.int64)]
        original[self.nodes[is_real]] = strategies[is_real]
        for record in reversed(self.records):
            record.postsolve(original)
        return original

    def crush(self, assignment: Sequence[int] | Integers) -> Integers | None:
        """Return an assignment of the reduced problem that is no worse than this one of the original.

        None if the original one contains something forbidden and was excluded for that.
        """
        original, is_real = np.array(assignment, np.int64), self.nodes >= 0
        for record in self.records:
            record.crush(original)
        node, x = ragged_indices(self.problem.arrays.counts)
        reduced_strategy = np.full(self.node_start[-1], -1)
        selected = is_real[node]
        reduced_strategy[self.node_start[self.nodes[node[selected]]] + self.strategy[selected]] = x[selected]
        crushed = np.zeros(is_real.size, np.int64)
        crushed[is_real] = reduced_strategy[self.node_start[self.nodes[is_real]] + original[self.nodes[is_real]]]
        return crushed if (crushed >= 0).all() else None


def _never_stop() -> bool:
    return False


def presolve(
    problem: Problem, reductions: Sequence[Reduction] = REDUCTIONS, stopped: Callable[[], bool] = _never_stop
) -> PresolvedProblem | None:
    """Reduce a problem until nothing changes; return None if every assignment contains something forbidden.

    A problem whose permitted costs could add up to IMPOSSIBLE is left unchanged, because sums are cut there, and so is
    one with usage on edges, where hardly any reduction applies. Once stopped() is true, the reductions done so far
    stand.
    """
    arrays = problem.arrays
    is_empty, has_edge_usage = arrays.node_start.size == 1, arrays.edge_usage_edge.size > 0
    if is_empty or has_edge_usage or bound_largest_cost(problem) >= IMPOSSIBLE:
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
    """Return the problem unchanged, as its own reduction."""
    start = problem.arrays.node_start
    return PresolvedProblem(problem, np.arange(start.size - 1), ragged_arange(start), start, ())
