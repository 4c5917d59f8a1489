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

from solvers.layout import numbered
from solvers.ledger import largest_cost
from solvers.parts import IMPOSSIBLE
from solvers.presolve import absorption, arcs, contraction, dominance, elimination, moments, parallel, usage
from solvers.presolve.emission import emit
from solvers.presolve.flat import ragged
from solvers.presolve.records import Record
from solvers.presolve.state import Impossible, State
from solvers.problem import Problem

Integers = NDArray[np.int64]
Reduction = Callable[[State, int], None]

__all__ = ["REDUCTIONS", "Reduced", "presolve", "untouched"]

# The cheapest first: each runs when none before it has anything to look at.
REDUCTIONS: tuple[Reduction, ...] = (
    arcs.reduce,
    absorption.reduce,
    parallel.reduce,
    contraction.reduce,
    usage.reduce,
    elimination.reduce,
    dominance.reduce,
    moments.reduce,
)


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """The reduced problem; node n of it is node nodes[n] of the original (-1: none), whose strategies began at
    node_start, and its strategies, laid end to end as in its layout, are `strategy` of that node's."""

    problem: Problem
    nodes: Integers
    strategy: Integers
    node_start: Integers
    records: tuple[Record, ...]

    def lift(self, choice: Sequence[int] | Integers) -> Integers:
        """The original's choice."""
        full, real = np.zeros(self.node_start.size - 1, np.int64), self.nodes >= 0
        taken = self.strategy[self.problem.layout.node_start[:-1] + np.asarray(choice, np.int64)]
        full[self.nodes[real]] = taken[real]
        for record in reversed(self.records):
            record.lift(full)
        return full

    def lower(self, choice: Sequence[int] | Integers) -> Integers | None:
        """A choice here that is no worse than a possible one of the original; None for one that was excluded."""
        full, real = np.array(choice, np.int64), self.nodes >= 0
        for record in self.records:
            record.lower(full)
        node, x = ragged(np.diff(self.problem.layout.node_start))
        place = np.full(self.node_start[-1], -1)
        ours = real[node]
        place[self.node_start[self.nodes[node[ours]]] + self.strategy[ours]] = x[ours]
        lowered = np.zeros(real.size, np.int64)
        lowered[real] = place[self.node_start[self.nodes[real]] + full[self.nodes[real]]]
        return lowered if (lowered >= 0).all() else None


def _never() -> bool:
    return False


def presolve(
    problem: Problem, reductions: Sequence[Reduction] = REDUCTIONS, stopped: Callable[[], bool] = _never
) -> Reduced | None:
    """The problem reduced until nothing changes; None if no choice is without anything forbidden.

    A problem whose costs could add up to IMPOSSIBLE stays as it is. Once stopped() is true, what has been done stands.
    """
    layout = problem.layout
    if layout.node_start.size == 1 or largest_cost(problem) >= IMPOSSIBLE:
        return untouched(problem)
    state = State(problem, len(reductions), stopped)
    try:
        state.require_possible()
        while (turn := next(filter(state.waits, range(len(reductions))), None)) is not None and not stopped():
            reductions[turn](state, turn)
        state.require_possible()
    except Impossible:
        return None
    usage.put_in_order(state, state.here)
    reduced, nodes, strategy = emit(state)
    return Reduced(reduced, nodes, strategy, layout.node_start, tuple(state.records))


def untouched(problem: Problem) -> Reduced:
    """The problem as its own reduction."""
    start = problem.layout.node_start
    return Reduced(problem, np.arange(start.size - 1), numbered(start), start, ())
