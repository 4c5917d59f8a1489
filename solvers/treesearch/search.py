"""The search: walks at a ladder of temperatures, each polished, on the moments that matter.

Only moments that are priced, or that some record overfilled, are watched; every record is judged by its full profile, and
what it overfills is watched from then on. In a walk a byte over the limit costs a multiple of its price that swings
between HARSH and MILD; a polish accepts nothing that is worse and nothing over the limit, first at the full price of
what is under it, then at a third, then at none. A rung of the ladder is a share of the mean cost of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import evaluate, usage_profile
from solvers.parts import IMPOSSIBLE
from solvers.problem import Problem
from solvers.treesearch.block import scratch_of
from solvers.treesearch.graph import graph_of, spans_over
from solvers.treesearch.walk import Position, Slopes, sweep, walk

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LADDER = (0.03, 0.3, 3.0, 0.1, 1.0)
BATCH, PERIOD = 1000, 8
MILD, HARSH, HARD = 1.2, 30.0, 1e4
UNDER = 0.75
POLISH = (1.0, 0.3, 0.0)
MOST, FORCE = 200, 0.3
POOL = 24
PATIENCE, PROGRESS = 2, 1e-7


class TreeSearch:
    """The best choice found so far, and where the walk stands."""

    def __init__(
        self, problem: Problem, choice: Sequence[int] | Integers, seed: int, exhausted: Callable[[], bool]
    ) -> None:
        self.problem, self.limit = problem, problem.limit if problem.limit is not None else 1 << 60
        self._graph, self._exhausted = graph_of(problem.layout), exhausted
        self._scratch = scratch_of(self._graph, MOST)
        self._random, self._blocks = np.array([seed], np.uint64), np.zeros(1, np.int64)
        self._prices = dict[int, float]()
        self.choice: Integers | None = None
        self.cost: int | None = None
        self.pool: list[Integers] = []
        self.blocks = 0
        self._stand_at(np.array(choice, np.int64), np.zeros(0, np.int64))
        self._offer(self._at.choice)

    def price(self, prices: Mapping[int, float]) -> None:
        """Other prices from now on."""
        self._prices = dict(prices)
        self._watch(np.array(sorted(prices), np.int64))

    def stand_at(self, choice):
        self._stand_at(np.array(choice), self._moments)

    def _stand_at(self, choice: Integers, moments: Integers) -> None:
        self._moments, self._spans = moments, spans_over(self.problem.layout, moments)
        load, width = usage_profile(self.problem, choice)[moments], moments.size + 1
        change, prefix, cost = np.zeros(width, np.int64), np.zeros(width), np.zeros(2)
        self._at = Position(choice.copy(), load, change, prefix, cost, choice.copy(), self._blocks, self._random)
        self._count()

    def _count(self) -> None:
        """The exact cost of where it stands: infinite while anything forbidden is in it (floats would not add up)."""
        found = evaluate(self.problem, self._at.choice)
        self._typical = max(found.cost % IMPOSSIBLE, 1)
        self._at.cost[0] = found.cost if found.cost < IMPOSSIBLE else np.inf
        self._at.cost[1] = np.inf if self.cost is None else self.cost

    def _watch(self, moments: Integers) -> bool:
        more = np.setdiff1d(moments, self._moments)
        if more.size:
            self._stand_at(self._at.choice, np.union1d(self._moments, more))
        return more.size > 0

    def _slopes(self, multiple: float, under: float) -> Slopes:
        price = np.array([self._prices.get(int(t), 0.0) for t in self._moments])
        least = 0.1 * price[price > 0].mean() if (price > 0).any() else self._natural
        strong = np.maximum(price, least)
        return Slopes(under * price, multiple * strong, min(multiple, 3.0) * strong)

    @property
    def _natural(self) -> float:
        return self._typical / max(self.limit, 1)

    def run(self, rung: int, batches: int) -> None:
        """A walk of so many batches from where it stands, and a polish."""
        graph = self._graph
        heat = LADDER[rung % len(LADDER)] * self._typical / max(graph.joined.size + graph.alone.size, 1)
        for turn in range(batches):
            swing = abs((turn % PERIOD) / (PERIOD / 2) - 1)
            self._batch(self._slopes(MILD * (HARSH / MILD) ** swing, UNDER), heat)
            if self._exhausted():
                return
        before = self._at.choice.copy()
        self.polish()
        self._stand_at(before, self._moments)

    def polish(self) -> None:
        """Downhill from where it stands, within the limit, until batches gain nothing."""
        for under in POLISH:
            idle, least = 0, np.inf
            while idle < PATIENCE and not self._exhausted():
                self._batch(self._slopes(HARD, under), 0.0)
                cost = float(self._at.cost[0])
                idle = 0 if cost < least * (1 - PROGRESS) else idle + 1
                least = min(least, cost)
        self.pool = [*self.pool[-POOL:], self._at.choice.copy()]

    def _batch(self, slopes: Slopes, heat: float) -> None:
        graph, at = self._graph, self._at
        if graph.joined.size:
            self.taken = walk(
                graph, self._spans, self._scratch, at, slopes, self.limit, BATCH, MOST, FORCE, max(heat, 1e-300)
            )
            self.blocks += BATCH
        sweep(graph, self._spans, at, slopes, self.limit)
        if at.cost[1] < (np.inf if self.cost is None else self.cost):
            self._offer(at.best)
        over = usage_profile(self.problem, at.choice) - self.limit
        over[self._moments] = 0
        if (over > 0).any():
            self._watch(over.argmax(keepdims=True))
        self._count()

    def _offer(self, choice: Integers) -> None:
        """Keep a choice that is better, by exact cost and full profile; else watch what it overfills."""
        found = evaluate(self.problem, choice)
        if found.feasible and (self.cost is None or found.cost < self.cost):
            self.cost, self.choice = found.cost, choice.copy()
        elif found.cost < IMPOSSIBLE and not found.feasible:
            self._watch(np.array([found.peak_moment]))
        self._count()
