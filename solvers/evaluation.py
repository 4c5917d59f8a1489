"""The exact cost and usage of an assignment, in integers. Every solution is evaluated here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.model import IMPOSSIBLE, InvalidProblem
from solvers.problem import Problem

Integers = NDArray[np.int64]
# Values are summed as two halves of at most this many low bits each; see _sum_exactly.
HALF_BITS = 30
# Most peaks of a profile; a run of time steps is split where it is longer than 1/MIN_RUNS of all time steps.
MAX_PEAKS, MIN_RUNS = 32, 64


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Exact cost in cost units, peak usage in bytes and the first time step of the peak.

    allowed: nothing forbidden is chosen. feasible: that, and the peak is within the limit. Each forbidden strategy or
    pair adds IMPOSSIBLE to the cost, but the cost does not tell whether there is one: permitted costs may add up to
    more.
    """

    cost: int
    peak: int
    peak_step: int
    allowed: bool
    feasible: bool


def check_assignment(problem: Problem, assignment: Sequence[int] | Integers) -> Integers:
    """Return the assignment as an array. Raises InvalidProblem where its length or an index is wrong."""
    array = np.asarray(assignment)
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidProblem("strategies", "assignment", array.dtype, "integers")
    array = array.astype(np.int64, copy=False)
    counts = problem.arrays.counts
    if array.shape != counts.shape:
        raise InvalidProblem("length", "assignment", array.size, f"one strategy for each of {counts.size} nodes")
    bad = np.flatnonzero((array < 0) | (array >= counts))
    if bad.size:
        i = int(bad[0])
        name = problem.nodes[i].name if problem.nodes else str(i)
        raise InvalidProblem("strategy", f"node {name!r}", int(array[i]), f"less than {counts[i]}")
    return array


def _sum_exactly(at: Integers, values: Integers, size: int) -> Integers:
    """Return an array [size] with the sum of the values at each index of `at`.

    numpy's bincount adds in float64. The sums of the high and of the low halves of the bits each stay below 2**53
    (Problem bounds the total usage), so both are exact.
    """
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
    """Return the bytes in use at each time step. Raises InvalidProblem where the assignment does not fit."""
    return _compute_profile(problem, check_assignment(problem, assignment))


def lagrangian_value(
    problem: Problem, assignment: Sequence[int] | Integers, cost: int, *, multipliers: Mapping[int, float]
) -> float:
    """Return cost + sum_t p_t (usage_t - limit) for an assignment of this cost and Lagrange multipliers p_t (cost units
    per byte, by time step)."""
    if not multipliers:
        return float(cost)
    over = usage_profile(problem, assignment) - (problem.limit or 0)
    return cost + sum(multiplier * int(over[t]) for t, multiplier in multipliers.items())


def evaluate(problem: Problem, assignment: Sequence[int] | Integers) -> Evaluation:
    """Return the exact cost and peak of an assignment (one strategy index per node).

    Raises InvalidProblem where it has the wrong length or an index out of range.
    """
    array = check_assignment(problem, assignment)
    arrays = problem.arrays
    costs = arrays.cost[arrays.node_start[:-1] + array].tolist()
    costs += arrays.pair_cost[arrays.pair_start + arrays.pair(array)].tolist()
    profile = _compute_profile(problem, array)
    time_step = int(profile.argmax()) if profile.size else 0
    peak = int(profile[time_step]) if profile.size else 0
    allowed = max(costs, default=0) < IMPOSSIBLE
    fits = problem.limit is None or peak <= problem.limit
    # Python integers cannot overflow, however many costs near IMPOSSIBLE are added.
    return Evaluation(sum(costs), peak, time_step, allowed=allowed, feasible=allowed and fits)


def find_peaks(over: Integers) -> list[int]:
    """Return the peak of each run of time steps with over > 0, the highest MAX_PEAKS of them, highest first.

    Long runs are split: neighbouring capacity rows are nearly the same, those at the ends of a long run are not.
    """
    positive, longest = np.flatnonzero(over > 0), -(-over.size // MIN_RUNS)
    ends = np.flatnonzero((np.diff(positive) > 1) | (np.diff(positive // max(longest, 1)) > 0)) + 1
    runs = np.split(positive, ends) if positive.size else []
    peaks = [int(run[np.argmax(over[run])]) for run in runs]
    return sorted(peaks, key=lambda time_step: -int(over[time_step]))[:MAX_PEAKS]
