"""Exact reductions of a choice problem, composed to a fixed point, and the way back.

Each reduction keeps the optimum (its module says why) and leaves a record; the records, read backwards, lead from a
choice of the reduced problem to one of the original with the same cost, usage at every moment that may bind, and
peak, if that is above the limit. Costs of the two are the same numbers: what all choices share stays in the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.ledger import largest_cost
from solvers.parts import IMPOSSIBLE
from solvers.presolve import absorption, arcs, contraction, dominance, elimination, moments, parallel
from solvers.presolve.emission import emit
from solvers.presolve.loading import load
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
    elimination.reduce,
    dominance.reduce,
    moments.reduce,
)


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """The reduced problem; node n of it is node nodes[n] of the original (-1: none), strategies[n] are what is left."""

    problem: Problem
    nodes: Integers
    strategies: tuple[Integers, ...]
    records: tuple[Record, ...]
    size: int

    def lift(self, choice: Sequence[int] | Integers) -> Integers:
        """The original's choice."""
        full = np.zeros(self.size, np.int64)
        for node, strategies, x in zip(self.nodes.tolist(), self.strategies, choice, strict=True):
            if node >= 0:
                full[node] = strategies[x]
        for record in reversed(self.records):
            record.lift(full)
        return full

    def lower(self, choice: Sequence[int] | Integers) -> Integers | None:
        """A choice here that is no worse than a possible one of the original; None for one that was excluded."""
        full = np.array(choice, np.int64)
        for record in self.records:
            record.lower(full)
        places = [0 if node < 0 else int(np.searchsorted(s, full[node])) for node, s in self._pairs()]
        found = all(
            node < 0 or (p < s.size and s[p] == full[node]) for p, (node, s) in zip(places, self._pairs(), strict=True)
        )
        return np.array(places, np.int64) if found else None

    def _pairs(self) -> list[tuple[int, Integers]]:
        return list(zip(self.nodes.tolist(), self.strategies, strict=True))


def _never() -> bool:
    return False


def presolve(
    problem: Problem, reductions: Sequence[Reduction] = REDUCTIONS, stopped: Callable[[], bool] = _never
) -> Reduced | None:
    """The problem reduced until nothing changes; None if no choice is without anything forbidden.

    A problem whose costs could add up to IMPOSSIBLE stays as it is. Once stopped() is true, what has been done stands.
    """
    if largest_cost(problem) >= IMPOSSIBLE:
        return untouched(problem)
    try:
        state = load(problem, len(reductions), stopped)
        while (turn := next(filter(state.waits, range(len(reductions))), None)) is not None and not stopped():
            reductions[turn](state, turn)
    except Impossible:
        return None
    reduced, nodes = emit(state, [node.name for node in problem.nodes])
    strategies = tuple(state.strategies[i] if i >= 0 else np.zeros(1, np.int64) for i in nodes.tolist())
    return Reduced(reduced, nodes, strategies, tuple(state.records), len(problem.nodes))


def untouched(problem: Problem) -> Reduced:
    """The problem as its own reduction."""
    strategies = tuple(np.arange(node.cost.size) for node in problem.nodes)
    return Reduced(problem, np.arange(len(problem.nodes)), strategies, (), len(problem.nodes))
