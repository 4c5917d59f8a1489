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
from solvers.model import IMPOSSIBLE
from solvers.problem import Problem
from solvers.tree_lns.annealing import PenaltySlopes, WalkState, anneal, coordinate_descent
from solvers.tree_lns.arc_graph import build_arc_graph, select_intervals
from solvers.tree_lns.tree_dp import allocate_scratch, conditional_costs

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Blocks between looks at the whole, batches from one harsh price to the next; nodes of a block, chance to force a root.
BATCH, PERIOD = 1000, 8
MAX_TREE_NODES, FORCE_PROBABILITY = 60, 0.3
MIN_PENALTY, MAX_PENALTY, POLISH_PENALTY, MAX_BLOCK_PENALTY = 1.2, 30.0, 1e4, 3.0
# Of a price: what counts under the limit in a walk, in each stage of a polish, and the least over it (of the mean).
UNDER_SHARE, POLISH_SHARES, MIN_SLOPE = 0.75, (1.0, 0.3, 0.0), 0.1
# A polish stage ends when this many batches gain less than this share.
PATIENCE, MIN_GAIN = 2, 1e-7
MAX_ELITES = 24


class TreeLns:
    """The best choice found so far, and where the walk stands. The search stops at the batch after exhausted()."""

    def __init__(self, problem: Problem, assignment: Integers, seed: int, exhausted: Callable[[], bool]) -> None:
        self.problem, self.limit = problem, problem.limit if problem.limit is not None else 1 << 60
        self.cost: int | None = None
        self.assignment: Integers | None = None
        self.elites: list[Integers] = []
        self._graph, self._exhausted = build_arc_graph(problem.arrays), exhausted
        self._scratch = allocate_scratch(self._graph, MAX_TREE_NODES)
        self._random, self._block = np.array([seed], np.uint64), np.zeros(1, np.int64)
        self._multipliers: dict[int, float] = {}
        self._move_to(assignment, np.zeros(0, np.int64))
        self.submit(assignment)

    def set_multipliers(self, multipliers: Mapping[int, float]) -> None:
        """Other prices from now on."""
        self._multipliers = dict(multipliers)
        self._watch_steps(np.array(sorted(multipliers), np.int64))

    def submit(self, assignment: Integers) -> None:
        """Keep a choice that is better, by exact cost and full profile; else watch what it overfills."""
        found = evaluate(self.problem, assignment)
        if found.feasible and (self.cost is None or found.cost < self.cost):
            self.cost, self.assignment = found.cost, assignment.copy()
        elif found.cost < IMPOSSIBLE and not found.feasible:
            self._watch_steps(np.array([found.peak_step]))
        self._recompute_cost()

    def run(self, start: Integers, share: float, batches: int) -> None:
        """From a choice a walk of so many batches at a temperature of this share of a node's mean cost; a polish."""
        self._move_to(start, self._time_steps)
        nodes = self._graph.connected.size + self._graph.isolated.size
        heat = share * self._typical_cost / max(nodes, 1)
        for turn in range(batches):
            swing = abs((turn % PERIOD) / (PERIOD / 2) - 1)
            self._batch(self._slopes(MIN_PENALTY * (MAX_PENALTY / MIN_PENALTY) ** swing, UNDER_SHARE), heat)
            if self._exhausted():
                return
        self._polish()
        self.elites = [*self.elites[1 - MAX_ELITES :], self._state.assignment.copy()]

    def select_strategies(self, cheapest: int, also: Sequence[Integers] = ()) -> NDArray[np.bool_]:
        """Flags (flat) of the strategies of the pool, of the best choice, of those given, and of each node's so many
        cheapest with all others as in the best choice."""
        starts = self.problem.arrays.node_start
        best = self._state.assignment if self.assignment is None else self.assignment
        worth = np.zeros(int(starts[-1]))
        multiplier = np.array([self._multipliers.get(int(t), 0.0) for t in self._time_steps])
        conditional_costs(self._graph, self._spans, self._scratch, best, np.append(0.0, np.cumsum(multiplier)), worth)
        node = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        rank = np.empty(worth.size, np.int64)
        rank[np.lexsort((worth, node))] = np.arange(worth.size) - np.repeat(starts[:-1], np.diff(starts))
        flags: NDArray[np.bool_] = rank < cheapest
        for assignment in (best, *self.elites, *also):
            flags[starts[:-1] + assignment] = True
        return flags

    @property
    def time_steps(self) -> list[int]:
        """Those watched."""
        return [int(t) for t in self._time_steps]

    def _move_to(self, assignment: Integers, time_steps: Integers) -> None:
        self._time_steps, self._spans = time_steps, select_intervals(self.problem.arrays, time_steps)
        load, width = usage_profile(self.problem, assignment)[time_steps], time_steps.size + 1
        change, prefix, cost = np.zeros(width, np.int64), np.zeros(width), np.zeros(2)
        self._state = WalkState(
            assignment.copy(), load, change, prefix, cost, assignment.copy(), self._block, self._random
        )
        self._recompute_cost()

    def _recompute_cost(self) -> None:
        """The exact cost of where it stands: infinite while anything forbidden is in it (floats would not add up)."""
        found = evaluate(self.problem, self._state.assignment)
        self._typical_cost = max(found.cost % IMPOSSIBLE, 1)
        self._state.cost[0] = found.cost if found.cost < IMPOSSIBLE else np.inf
        self._state.cost[1] = np.inf if self.cost is None else self.cost

    def _watch_steps(self, time_steps: Integers) -> None:
        more = np.union1d(self._time_steps, time_steps)
        if more.size > self._time_steps.size:
            self._move_to(self._state.assignment, more)

    def _slopes(self, multiple: float, under: float) -> PenaltySlopes:
        multiplier = np.array([self._multipliers.get(int(t), 0.0) for t in self._time_steps])
        natural = self._typical_cost / max(self.limit, 1)
        strong = np.maximum(
            multiplier, MIN_SLOPE * multiplier[multiplier > 0].mean() if (multiplier > 0).any() else natural
        )
        # Until a choice is known that keeps the limit, nothing else counts as much.
        asked = multiple if self.cost is None else min(multiple, MAX_BLOCK_PENALTY)
        return PenaltySlopes(under * multiplier, multiple * strong, asked * strong)

    def _polish(self) -> None:
        """Downhill from where it stands, within the limit, until batches gain nothing."""
        for under in POLISH_SHARES:
            idle, least = 0, np.inf
            while idle < PATIENCE and not self._exhausted():
                self._batch(self._slopes(POLISH_PENALTY, under), 0.0)
                cost = float(self._state.cost[0])
                idle = 0 if cost < least * (1 - MIN_GAIN) else idle + 1
                least = min(least, cost)

    def _batch(self, slopes: PenaltySlopes, heat: float) -> None:
        graph, at = self._graph, self._state
        if graph.connected.size:
            spans, scratch, tiny = self._spans, self._scratch, 1e-300
            anneal(
                graph, spans, scratch, at, slopes, self.limit, BATCH, MAX_TREE_NODES, FORCE_PROBABILITY, max(heat, tiny)
            )
        coordinate_descent(graph, self._spans, at, slopes, self.limit)
        if at.cost[1] < (np.inf if self.cost is None else self.cost):
            self.submit(at.best)
        over = usage_profile(self.problem, at.assignment) - self.limit
        over[self._time_steps] = 0
        if (over > 0).any():
            self._watch_steps(np.array([int(over.argmax())]))
        self._recompute_cost()
