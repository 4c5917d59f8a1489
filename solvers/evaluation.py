"""The exact worth of a choice: the one judge of every answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.model import IMPOSSIBLE, InvalidProblem
from solvers.problem import Problem

Integers = NDArray[np.int64]
HALF_BITS = 30


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Exact cost, peak usage in bytes and the first moment of the peak; feasible: nothing forbidden, within the limit.

    A forbidden strategy or pair counts IMPOSSIBLE in the cost.
    """

    cost: int
    peak: int
    peak_step: int
    feasible: bool


def _check_assignment(problem: Problem, assignment: Sequence[int] | Integers) -> Integers:
    array = np.asarray(assignment, np.int64)
    counts = np.diff(problem.arrays.node_start)
    if array.shape != counts.shape:
        raise InvalidProblem("length", "choice", array.size, f"one strategy for each of {counts.size} nodes")
    bad = np.flatnonzero((array < 0) | (array >= counts))
    if bad.size:
        i = int(bad[0])
        raise InvalidProblem("strategy", f"node {problem.nodes[i].name!r}", int(array[i]), f"less than {counts[i]}")
    return array


def _sum_exactly(at: Integers, values: Integers, size: int) -> Integers:
    """[size]: the sum of the values at each place. Exact: halves of their bits stay below 2**53 (see Problem)."""
    high = np.bincount(at, values >> HALF_BITS, size).astype(np.int64)
    low = np.bincount(at, values & ((1 << HALF_BITS) - 1), size).astype(np.int64)
    return (high << HALF_BITS) + low


def _compute_profile(problem: Problem, assignment: Integers) -> Integers:
    arrays = problem.arrays
    used = arrays.span_usage[arrays.span_at + assignment[arrays.span_node]]
    size = arrays.time_steps + 1
    change = _sum_exactly(arrays.span_start, used, size) - _sum_exactly(arrays.span_stop, used, size)
    if arrays.edge_usage_edge.size:
        on_edges = arrays.pair_usage[arrays.edge_usage_pair_start + arrays.pair(assignment)[arrays.edge_usage_edge]]
        change += _sum_exactly(arrays.edge_usage_start, on_edges, size) - _sum_exactly(
            arrays.edge_usage_stop, on_edges, size
        )
    return np.cumsum(change)[: arrays.time_steps]


def usage_profile(problem: Problem, assignment: Sequence[int] | Integers) -> Integers:
    """Bytes in use at every moment."""
    return _compute_profile(problem, _check_assignment(problem, assignment))


def lagrangian_value(
    problem: Problem, assignment: Sequence[int] | Integers, cost: int, *, multipliers: Mapping[int, float]
) -> float:
    """What a choice of this cost is worth at prices of moments: usage above the limit is paid, below it paid back."""
    if not multipliers:
        return float(cost)
    over = usage_profile(problem, assignment) - (problem.limit or 0)
    return cost + sum(price * int(over[moment]) for moment, price in multipliers.items())


def evaluate(problem: Problem, assignment: Sequence[int] | Integers) -> Evaluation:
    """Exact cost and peak of a choice (one strategy index per node)."""
    array = _check_assignment(problem, assignment)
    arrays = problem.arrays
    costs = arrays.cost[arrays.node_start[:-1] + array].tolist()
    costs += arrays.pair_cost[arrays.pair_start + arrays.pair(array)].tolist()
    profile = _compute_profile(problem, array)
    time_step = int(profile.argmax()) if profile.size else 0
    peak = int(profile[time_step]) if profile.size else 0
    possible = max(costs, default=0) < IMPOSSIBLE
    return Evaluation(sum(costs), peak, time_step, possible and (problem.limit is None or peak <= problem.limit))
