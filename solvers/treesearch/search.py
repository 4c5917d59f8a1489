"""The search: walks at a ladder of temperatures, each polished, on the moments that matter.

Only moments that are priced, or that some record overfilled, are watched; every record is judged by its full profile,
and what it overfills is watched from then on. In a walk a byte over the limit costs a multiple of its price that
swings between MILD and HARSH; a polish takes nothing that is worse and nothing over the limit, first at the full
price of what lies under it, then at a third, then at none: most records come from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import evaluate, usage_profile
from solvers.parts import IMPOSSIBLE
from solvers.problem import Problem
from solvers.treesearch.block import conditional, scratch_of
from solvers.treesearch.graph import graph_of, spans_over
from solvers.treesearch.walk import Position, Slopes, sweep, walk

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Blocks between looks at the whole, batches from one harsh price to the next; nodes of a block, chance to force a root.
BATCH, PERIOD = 1000, 8
MOST, FORCE = 60, 0.3
MILD, HARSH, HARD, ASKED = 1.2, 30.0, 1e4, 3.0
# Of a price: what counts under the limit in a walk, in each stage of a polish, and the least over it (of the mean).
UNDER, POLISH, LEAST = 0.75, (1.0, 0.3, 0.0), 0.1
# A polish stage ends when this many batches gain less than this share.
PATIENCE, PROGRESS = 2, 1e-7
POOL = 24


class TreeSearch:
    """The best choice found so far, and where the walk stands. The search stops at the batch after exhausted()."""

    def __init__(self, problem: Problem, choice: Integers, seed: int, exhausted: Callable[[], bool]) -> None:
        self.problem, self.limit = problem, problem.limit if problem.limit is not None else 1 << 60
        self.cost: int | None = None
        self.choice: Integers | None = None
        self.pool: list[Integers] = []
        self._graph, self._exhausted = graph_of(problem.layout), exhausted
        self._scratch = scratch_of(self._graph, MOST)
        self._random, self._block = np.array([seed], np.uint64), np.zeros(1, np.int64)
        self._prices: dict[int, float] = {}
        self._stand_at(choice, np.zeros(0, np.int64))
        self.offer(choice)

    def price(self, prices: Mapping[int, float]) -> None:
        """Other prices from now on."""
        self._prices = dict(prices)
        self._watch(np.array(sorted(prices), np.int64))

    def offer(self, choice: Integers) -> None:
        """Keep a choice that is better, by exact cost and full profile; else watch what it overfills."""
        found = evaluate(self.problem, choice)
        if found.feasible and (self.cost is None or found.cost < self.cost):
            self.cost, self.choice = found.cost, choice.copy()
        elif found.cost < IMPOSSIBLE and not found.feasible:
            self._watch(np.array([found.peak_moment]))
        self._count()

    def run(self, start: Integers, share: float, batches: int) -> None:
        """From a choice a walk of so many batches at a temperature of this share of a node's mean cost; a polish."""
        self._stand_at(start, self._moments)
        nodes = self._graph.joined.size + self._graph.alone.size
        heat = share * self._typical / max(nodes, 1)
        for turn in range(batches):
            swing = abs((turn % PERIOD) / (PERIOD / 2) - 1)
            self._batch(self._slopes(MILD * (HARSH / MILD) ** swing, UNDER), heat)
            if self._exhausted():
                return
        self._polish()
        self.pool = [*self.pool[1 - POOL :], self._at.choice.copy()]

    def near(self, cheapest: int, also: Sequence[Integers] = ()) -> NDArray[np.bool_]:
        """Flags (flat) of the strategies of the pool, of the best choice, of those given, and of each node's so many
        cheapest with all others as in the best choice."""
        starts = self.problem.layout.node_start
        best = self._at.choice if self.choice is None else self.choice
        worth = np.zeros(int(starts[-1]))
        price = np.array([self._prices.get(int(t), 0.0) for t in self._moments])
        conditional(self._graph, self._spans, self._scratch, best, np.append(0.0, np.cumsum(price)), worth)
        node = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        rank = np.empty(worth.size, np.int64)
        rank[np.lexsort((worth, node))] = np.arange(worth.size) - np.repeat(starts[:-1], np.diff(starts))
        flags: NDArray[np.bool_] = rank < cheapest
        for choice in (best, *self.pool, *also):
            flags[starts[:-1] + choice] = True
        return flags

    @property
    def moments(self) -> list[int]:
        """Those watched."""
        return [int(t) for t in self._moments]

    def _stand_at(self, choice: Integers, moments: Integers) -> None:
        self._moments, self._spans = moments, spans_over(self.problem.layout, moments)
        load, width = usage_profile(self.problem, choice)[moments], moments.size + 1
        change, prefix, cost = np.zeros(width, np.int64), np.zeros(width), np.zeros(2)
        self._at = Position(choice.copy(), load, change, prefix, cost, choice.copy(), self._block, self._random)
        self._count()

    def _count(self) -> None:
        """The exact cost of where it stands: infinite while anything forbidden is in it (floats would not add up)."""
        found = evaluate(self.problem, self._at.choice)
        self._typical = max(found.cost % IMPOSSIBLE, 1)
        self._at.cost[0] = found.cost if found.cost < IMPOSSIBLE else np.inf
        self._at.cost[1] = np.inf if self.cost is None else self.cost

    def _watch(self, moments: Integers) -> None:
        more = np.union1d(self._moments, moments)
        if more.size > self._moments.size:
            self._stand_at(self._at.choice, more)

    def _slopes(self, multiple: float, under: float) -> Slopes:
        price = np.array([self._prices.get(int(t), 0.0) for t in self._moments])
        natural = self._typical / max(self.limit, 1)
        strong = np.maximum(price, LEAST * price[price > 0].mean() if (price > 0).any() else natural)
        # Until a choice is known that keeps the limit, nothing else counts as much.
        asked = multiple if self.cost is None else min(multiple, ASKED)
        return Slopes(under * price, multiple * strong, asked * strong)

    def _polish(self) -> None:
        """Downhill from where it stands, within the limit, until batches gain nothing."""
        for under in POLISH:
            idle, least = 0, np.inf
            while idle < PATIENCE and not self._exhausted():
                self._batch(self._slopes(HARD, under), 0.0)
                cost = float(self._at.cost[0])
                idle = 0 if cost < least * (1 - PROGRESS) else idle + 1
                least = min(least, cost)

    def _batch(self, slopes: Slopes, heat: float) -> None:
        graph, at = self._graph, self._at
        if graph.joined.size:
            spans, scratch, tiny = self._spans, self._scratch, 1e-300
            walk(graph, spans, scratch, at, slopes, self.limit, BATCH, MOST, FORCE, max(heat, tiny))
        sweep(graph, self._spans, at, slopes, self.limit)
        if at.cost[1] < (np.inf if self.cost is None else self.cost):
            self.offer(at.best)
        over = usage_profile(self.problem, at.choice) - self.limit
        over[self._moments] = 0
        if (over > 0).any():
            self._watch(np.array([int(over.argmax())]))
        self._count()
