"""A dual solution of a problem in integers, as a certificate that others can check in one pass.

Messages are turned into potentials by a last forward pass: node i gives each edge that leads on its share, and the far
end receives what the edge can pass on (solvers/trws.py). Any potentials give a valid bound, so this pass decides only
how good the bound is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.kelley_dual import KelleyDual
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint, FixedPointMultipliers, LagrangianCosts, Potentials
from solvers.problem import Problem
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState
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


def compute_exact_dual(problem: Problem, assignment: Sequence[int], *, seconds: float) -> ExactDual:
    """Return a dual solution; `assignment` is a good feasible one, and `seconds` are worth of work, not of a clock."""
    state = SolveState(problem, GAP, seconds, True, None, None)
    state.submit(assignment)
    graph = OrientedGraph.of(problem.arrays)
    # The scale of compute_warm_start: messages around what is forbidden fit the size that it has there only.
    scale = FixedPoint.of(graph.degree, state.largest_cost)
    multipliers = _find_multipliers(state, scale) if problem.limit is not None else {}
    start = compute_warm_start(problem, GAP, seconds, multipliers=multipliers)
    lagrangian = LagrangianCosts(graph, scale)
    exact = FixedPointMultipliers.of(multipliers, scale, lagrangian.largest_usage)
    messages = (start.messages * scale.factor).clip(-scale.cap, scale.cap).astype(np.int64)
    potentials = _pass_forward(graph, lagrangian.with_multipliers(multipliers, problem.limit or 0), messages)
    return ExactDual(scale.factor, exact.shift, exact.numerators, potentials)


def _find_multipliers(state: SolveState, scale: FixedPoint) -> Mapping[int, float]:
    relaxation = Relaxation.for_problem(state, scale)
    decoded = relaxation.pass_messages(ROOT_ROUNDS, 0.0)
    if decoded is not None and state.problem.limit is not None:
        KelleyDual(state, relaxation, state.problem.limit).run(decoded, STEPS, ROUNDS)
    return {time_step: price for time_step, price in relaxation.multipliers.items() if price > 0}


def _pass_forward(graph: OrientedGraph, costs: Potentials, messages: Integers) -> Integers:
    """Pass messages once from lower to higher nodes; return the potentials that this leaves."""
    arrays = graph.arrays
    sizes = arrays.height + arrays.width
    begin = np.cumsum(sizes) - sizes
    potentials = np.zeros(int(sizes.sum()), np.int64)
    for i, start in enumerate(arrays.node_start[:-1].tolist()):
        count = int(arrays.node_start[i + 1]) - start
        own = costs.theta[start : start + count].copy()
        for end in graph.ends[graph.first[i] : graph.first[i + 1]]:
            own += messages[end : end + count]
        onward = graph.low_edges[graph.low_first[i] : graph.low_first[i + 1]]
        before = graph.high_first[i + 1] - graph.high_first[i]
        share = (own - own.min()) // max(onward.size, int(before), 1)
        for e in onward:
            given, sent = _send(graph, costs, messages, e=int(e), share=share)
            at, turned = int(begin[e]), bool(graph.turned[e])
            potentials[at : at + sizes[e]] = np.concatenate([sent, -given] if turned else [-given, sent])
    return potentials


def _send(
    graph: OrientedGraph, costs: Potentials, messages: Integers, *, e: int, share: Integers
) -> tuple[Integers, Integers]:
    """Pass the message of one edge on; return what each class at the near end gives and what each at the far gets."""
    near = slice(int(graph.low_start[e]), int(graph.low_start[e]) + share.size)
    given = np.full(int(graph.rows[e]), costs.cap)
    np.minimum.at(given, graph.classes_of[near], share - messages[near])
    np.maximum(given, -costs.cap, out=given)
    at, size = int(costs.pair_at[e]), int(graph.rows[e] * graph.columns[e])
    sent = (given[:, None] + costs.pair[at : at + size].reshape(given.size, -1)).min(axis=0)
    sent = np.minimum(sent - sent.min(), costs.cap)
    node = int(graph.high[e])
    far = slice(
        int(graph.high_start[e]),
        int(graph.high_start[e] + graph.arrays.node_start[node + 1] - graph.arrays.node_start[node]),
    )
    messages[far] = sent[graph.classes_of[far]]
    return given, sent
