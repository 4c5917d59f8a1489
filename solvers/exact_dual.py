"""A dual solution of a problem in integers, as a certificate that others can check in one pass.

Messages are turned into potentials by a last forward pass: node i gives each edge that leads on its share, and the far
end receives what the edge can pass on (solvers/trws.py). Any potentials give a valid bound, so this pass decides only
how good the bound is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.kelley_dual import KelleyDual
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint, FixedPointMultipliers, LagrangianCosts, Potentials
from solvers.problem import Problem
from solvers.problem_arrays import compute_offsets, segment_positions
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState
from solvers.trws import TrwsMessages
from solvers.warm_start import compute_warm_start

Integers = NDArray[np.int64]

# The gap up to which messages are passed, rounds of messages at each step of the multipliers, and such steps.
GAP, ROOT_ROUNDS, ROUNDS, STEPS = 1e-7, 60, 16, 60


@dataclass(frozen=True, slots=True, eq=False)
class ExactDual:
    """scale: units to a cost unit. prices: by time step, in units per byte over 2**shift. potentials: for each edge
    those of the classes at its source, then those at its target."""

    scale: int
    shift: int
    prices: Mapping[int, int]
    potentials: Integers


def compute_exact_dual(
    problem: Problem, assignment: Sequence[int], *, seconds: float, stopped: Callable[[], bool] = lambda: False
) -> ExactDual:
    """Return a dual solution; `assignment` is a good feasible one, and `seconds` are worth of work, not of a clock.

    stopped: polled; once it returns True, what is known by then is made a dual solution.
    """
    state = SolveState(problem, GAP, seconds, True, None, stopped)
    state.submit(assignment)
    graph = OrientedGraph.of(problem.arrays)
    # The scale of compute_warm_start: messages around what is forbidden fit the size that it has there only.
    scale = FixedPoint.of(graph.degree, state.largest_cost)
    multipliers = _find_multipliers(state, scale) if problem.limit is not None else {}
    start = compute_warm_start(problem, GAP, seconds, multipliers=multipliers, stopped=stopped)
    lagrangian = LagrangianCosts(graph, scale)
    # A certificate prices every usage of the problem by itself.
    most = int(max(problem.arrays.span_usage.max(initial=0), problem.arrays.pair_usage.max(initial=0)))
    exact = FixedPointMultipliers.of(multipliers, scale, most)
    values = (start.messages * scale.factor).clip(-scale.cap, scale.cap).astype(np.int64)
    costs = lagrangian.with_multipliers(multipliers, problem.limit or 0)
    potentials = _pass_forward(graph, costs, TrwsMessages(graph, values))
    return ExactDual(scale.factor, exact.shift, exact.numerators, potentials)


def _find_multipliers(state: SolveState, scale: FixedPoint) -> Mapping[int, float]:
    relaxation = Relaxation.for_problem(state, scale)
    decoded = relaxation.pass_messages(ROOT_ROUNDS, 0.0)
    if decoded is not None and state.problem.limit is not None:
        KelleyDual(state, relaxation, state.problem.limit).run(decoded, STEPS, ROUNDS)
    return {time_step: price for time_step, price in relaxation.multipliers.items() if price > 0}


def _pass_forward(graph: OrientedGraph, costs: Potentials, messages: TrwsMessages) -> Integers:
    """Pass messages once from lower to higher nodes; return the potentials that this leaves."""
    arrays, counts = graph.arrays, graph.arrays.counts
    messages.sweep(costs, True)
    parts = np.maximum(np.maximum(np.diff(graph.low_first), np.diff(graph.high_first)), 1)
    share = messages.min_marginals // np.repeat(parts, counts)
    begin = compute_offsets(arrays.height + arrays.width)
    low_at, high_at = begin[:-1] + graph.turned * arrays.height, begin[:-1] + ~graph.turned * arrays.height
    # A class without strategies gives as much as possible, so that its pairs do not count.
    given = np.full(int(begin[-1]), costs.cap)
    near = segment_positions(graph.low_start, counts[graph.low])
    own = arrays.strategies_at(graph.low)
    at = np.repeat(low_at, counts[graph.low]) + graph.classes_of[near]
    np.minimum.at(given, at, share[own] - messages.values[near])
    potentials: Integers = -np.maximum(given, -costs.cap)
    far = segment_positions(graph.high_start, counts[graph.high])
    potentials[np.repeat(high_at, counts[graph.high]) + graph.classes_of[far]] = messages.values[far]
    return potentials
