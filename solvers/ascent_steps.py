"""The compiled part of the dual ascent (solvers/dual_ascent.py): many steps in one call that needs no interpreter.

A step moves the multipliers against the expected overload (D. P. Kingma and J. Ba, "Adam: a method for stochastic
optimization", 2015), prices usage at them, passes messages in both directions, and excludes strategies by their reduced
costs. Costs, messages and bounds are integers; only multipliers and probabilities are not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.mir_cuts import add_usage
from solvers.oriented_graph import OrientedGraph, SweepArrays
from solvers.potentials import add_prices, round_multipliers
from solvers.problem_arrays import ProblemArrays
from solvers.trws import run_sweep

Integers = NDArray[np.int64]

# Adam's decay rates of the mean and of the mean square of the gradient.
BETA1, BETA2 = 0.9, 0.98
# Probabilities below exp(-MAX_EXPONENT) count as zero.
MAX_EXPONENT = 30.0
# Bounds are cut down to this in scaled units. Where assignments of interest may cost more, nothing is excluded: no
# bound reaches NO_CEILING, and no reduced cost exceeds what is left up to it.
REACH = 1 << 61
NO_CEILING = 2 * REACH - 1


class MessageArrays(NamedTuple):
    """What messages are passed along, for numba: see OrientedGraph."""

    forward: SweepArrays
    backward: SweepArrays
    first: Integers
    ends: Integers
    classes_of: NDArray[np.int32]
    largest: int
    classes: int

    @staticmethod
    def of(graph: OrientedGraph) -> MessageArrays:
        shape = graph.largest, graph.classes
        return MessageArrays(graph.forward, graph.backward, graph.first, graph.ends, graph.classes_of, *shape)


class WatchedUsage(NamedTuple):
    """What strategies use at watched time steps, for numba: see ProblemArrays."""

    node_start: Integers
    span_node: Integers
    span_start: Integers
    span_stop: Integers
    span_at: Integers
    span_usage: Integers

    @staticmethod
    def of(arrays: ProblemArrays) -> WatchedUsage:
        usage = arrays.span_at, arrays.span_usage
        return WatchedUsage(arrays.node_start, arrays.span_node, arrays.span_start, arrays.span_stop, *usage)


class CostArrays(NamedTuple):
    """Scaled costs, for numba: see Potentials and FixedPoint; most: as in round_multipliers."""

    theta: Integers
    pair: Integers
    pair_at: Integers
    factor: int
    forbidden: int
    cap: int
    limit: int
    most: int


@cached_njit(nogil=True, error_model="numpy")
def softmin(node_start, min_marginals, heat):  # type: ignore[no-untyped-def]
    """Return the probability of each strategy (flat); heat: the temperature in the unit of min_marginals."""
    share = np.empty(min_marginals.size)
    for i in range(node_start.size - 1):
        begin, end = node_start[i], node_start[i + 1]
        least, total = min_marginals[begin], 0.0
        for x in range(begin + 1, end):
            least = min(least, min_marginals[x])
        for x in range(begin, end):
            # Relative to the least, so that at least one weight is 1 and the total cannot underflow.
            away = (min_marginals[x] - least) / heat
            share[x] = np.exp(-away) if away < MAX_EXPONENT else 0.0
            total += share[x]
        for x in range(begin, end):
            share[x] /= total
    return share


@cached_njit(nogil=True, error_model="numpy")
def step_multipliers(values, mean, square, count, overload, step):  # type: ignore[no-untyped-def]
    """Take Adam's step number `count` along the overload (bytes over the limit, one per multiplier); no value falls
    below zero. mean, square: Adam's averages. step: the step size in cost units per byte."""
    for t in range(values.size):
        mean[t] = BETA1 * mean[t] + (1 - BETA1) * overload[t]
        square[t] = BETA2 * square[t] + (1 - BETA2) * overload[t] ** 2
        deviation = max(np.sqrt(square[t] / (1 - BETA2**count)), 1e-12)
        values[t] = max(values[t] + step * mean[t] / (1 - BETA1**count) / deviation, 0.0)
        # A multiplier at zero must not gather momentum downwards: it would not rise when its time step overloads.
        if values[t] == 0 and mean[t] < 0:
            mean[t] = 0.0


@cached_njit(nogil=True, error_model="numpy")
def _price(usage, costs, allowed, values):  # type: ignore[no-untyped-def]
    """Return the scaled costs at these multipliers, and the limit's term; what is not allowed is forbidden."""
    numerators, shift = round_multipliers(values, costs.factor, costs.most)
    prefix = np.zeros(values.size + 1, np.int64)
    for t in range(values.size):
        prefix[t + 1] = prefix[t] + numerators[t]
    priced = costs.theta.copy()
    add_prices(
        usage.node_start, usage.span_node, usage.span_start, usage.span_stop, usage.span_at, usage.span_usage,
        prefix, shift, priced,
    )  # fmt: skip
    for x in range(priced.size):
        priced[x] = min(priced[x], costs.forbidden) if allowed[x] else costs.forbidden
    return priced, -((-prefix[values.size] * costs.limit) >> shift)


@cached_njit(nogil=True, error_model="numpy")
def _overload(usage, time_steps, min_marginals, heat, limit):  # type: ignore[no-untyped-def]
    """Return by how many bytes each time step is expected to exceed the limit at a temperature."""
    change = np.zeros(time_steps + 1)
    add_usage(
        usage.node_start, usage.span_node, usage.span_start, usage.span_stop, usage.span_at, usage.span_usage,
        softmin(usage.node_start, min_marginals, heat), change,
    )  # fmt: skip
    return np.cumsum(change)[:-1] - limit


@cached_njit(nogil=True, error_model="numpy")
def _exclude(node_start, allowed, reduced_costs, room):  # type: ignore[no-untyped-def]
    """Disallow the strategies whose reduced costs exceed `room`; return whether every node has one left."""
    for i in range(node_start.size - 1):
        left = 0
        for x in range(node_start[i], node_start[i + 1]):
            allowed[x] = allowed[x] and reduced_costs[x] <= room
            left += allowed[x]
        if left == 0:
            return False
    return True


@cached_njit(nogil=True, error_model="numpy")
def ascend(graph, usage, costs, messages, min_marginals, reduced_costs, allowed, adam, count, sizes, heat, ceiling):  # type: ignore[no-untyped-def]
    """Take an ascent step of each size (none where it is 0), each followed by messages in both directions; exclude
    strategies. Returns the best bound in scaled units, the multipliers that gave it, and the last costs.

    adam: multipliers, and Adam's averages. count: steps taken before. ceiling: the most that an assignment of interest
    costs, in scaled units, or NO_CEILING; the ascent ends once nothing below it is left.
    """
    values, mean, square = adam
    best, best_values, priced = -2 * REACH, values.copy(), costs.theta
    for size in sizes:
        if size > 0:
            count += 1
            step_multipliers(
                values, mean, square, count, _overload(usage, values.size, min_marginals, heat, costs.limit), size
            )
        priced, constant = _price(usage, costs, allowed, values)
        for way in (graph.forward, graph.backward):
            high, low = run_sweep(
                way, usage.node_start, graph.first, graph.ends, graph.classes_of, priced, costs.pair, costs.pair_at,
                messages, min_marginals, reduced_costs, costs.cap, 1, graph.largest, graph.classes,
            )  # fmt: skip
            # The high part counts 2**40; a bound is cut down to REACH.
            bound = min(max(high, -(REACH >> 40)), REACH >> 40) * (1 << 40) + low - constant
            if bound > best:
                best, best_values = bound, values.copy()
            if bound > ceiling or not _exclude(usage.node_start, allowed, reduced_costs, ceiling - bound):
                return max(best, ceiling + 1), best_values, priced
    return best, best_values, priced
