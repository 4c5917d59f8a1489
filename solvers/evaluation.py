"""The exact worth of a choice: the one judge of every answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.parts import IMPOSSIBLE, InvalidProblem
from solvers.problem import Problem

Integers = NDArray[np.int64]
HALF = 30


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Exact cost, peak usage in bytes and the first moment of the peak; feasible: nothing forbidden, within the limit.

    A forbidden strategy or pair counts IMPOSSIBLE in the cost.
    """

    cost: int
    peak: int
    peak_moment: int
    feasible: bool


def _checked(problem: Problem, choice: Sequence[int] | Integers) -> Integers:
    array = np.asarray(choice, np.int64)
    counts = np.diff(problem.layout.node_start)
    if array.shape != counts.shape:
        raise InvalidProblem("length", "choice", array.size, f"one strategy for each of {counts.size} nodes")
    bad = np.flatnonzero((array < 0) | (array >= counts))
    if bad.size:
        i = int(bad[0])
        raise InvalidProblem("strategy", f"node {problem.nodes[i].name!r}", int(array[i]), f"less than {counts[i]}")
    return array


def _summed(at: Integers, values: Integers, size: int) -> Integers:
    """[size]: the sum of the values at each place. Exact: halves of their bits stay below 2**53 (see Problem)."""
    high = np.bincount(at, values >> HALF, size).astype(np.int64)
    low = np.bincount(at, values & ((1 << HALF) - 1), size).astype(np.int64)
    return (high << HALF) + low


def _profile(problem: Problem, choice: Integers) -> Integers:
    layout = problem.layout
    used = layout.span_usage[layout.span_at + choice[layout.span_node]]
    size = layout.moments + 1
    change = _summed(layout.span_start, used, size) - _summed(layout.span_stop, used, size)
    if layout.edge_usage_edge.size:
        on_edges = layout.pair_usage[layout.edge_usage_pair_start + layout.pair(choice)[layout.edge_usage_edge]]
        change += _summed(layout.edge_usage_start, on_edges, size) - _summed(layout.edge_usage_stop, on_edges, size)
    return np.cumsum(change)[: layout.moments]


def usage_profile(problem: Problem, choice: Sequence[int] | Integers) -> Integers:
    """Bytes in use at every moment."""
    return _profile(problem, _checked(problem, choice))


def priced(problem: Problem, choice: Sequence[int] | Integers, cost: int, prices: Mapping[int, float]) -> float:
    """What a choice of this cost is worth at prices of moments: usage above the limit is paid, below it paid back."""
    if not prices:
        return float(cost)
    over = usage_profile(problem, choice) - (problem.limit or 0)
    return cost + sum(price * int(over[moment]) for moment, price in prices.items())


def evaluate(problem: Problem, choice: Sequence[int] | Integers) -> Evaluation:
    """Exact cost and peak of a choice (one strategy index per node)."""
    array = _checked(problem, choice)
    layout = problem.layout
    costs = layout.cost[layout.node_start[:-1] + array].tolist()
    costs += layout.pair_cost[layout.pair_start + layout.pair(array)].tolist()
    profile = _profile(problem, array)
    moment = int(profile.argmax()) if profile.size else 0
    peak = int(profile[moment]) if profile.size else 0
    possible = max(costs, default=0) < IMPOSSIBLE
    return Evaluation(sum(costs), peak, moment, possible and (problem.limit is None or peak <= problem.limit))
