"""Tree search: annealing walks, each followed by a polish, with memory tracked on the time steps that matter.

Only time steps with a multiplier, or that a candidate has overloaded, are watched. Every new best is checked on its
full usage profile, and the time step that it overloads is watched from then on. In a walk, a byte over the limit costs
a multiple of its multiplier that oscillates between MIN_PENALTY and MAX_PENALTY. A polish accepts nothing worse and
nothing over the limit: first with the full multiplier on bytes under the limit, then a third of it, then none. Most
improvements come from polishing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import evaluate, usage_profile
from solvers.model import IMPOSSIBLE
from solvers.problem import Problem
from solvers.problem_arrays import ragged_arange
from solvers.tree_lns.annealing import PenaltySlopes, WalkState, anneal, coordinate_descent
from solvers.tree_lns.arc_graph import build_arc_graph, select_intervals
from solvers.tree_lns.tree_dp import allocate_scratch, conditional_costs

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Blocks per batch; batches per oscillation of the penalty.
BATCH, PERIOD = 1000, 8
# Most nodes of a block; the probability that its root must change.
MAX_TREE_NODES, FORCE_PROBABILITY = 60, 0.3
# Multiples of the multipliers over the limit: in a walk, in a polish, and the most for pricing within a block.
MIN_PENALTY, MAX_PENALTY, POLISH_PENALTY, MAX_BLOCK_PENALTY = 1.2, 30.0, 1e4, 3.0
# Shares of the multipliers under the limit, in a walk and in the stages of a polish; the least multiplier over the
# limit as a share of their mean.
UNDER_SHARE, POLISH_SHARES, MIN_SLOPE = 0.75, (1.0, 0.3, 0.0), 0.1
# A polish stage ends after this many batches that each gain less than this share of the cost.
PATIENCE, MIN_GAIN = 2, 1e-7
# Polished assignments that are kept.
MAX_ELITES = 24


class TreeLns:
    """Tree search on one problem: the best assignment and cost so far (None: none feasible), the latest elites, and the
    state of the walk. It returns after the batch in which exhausted() becomes true."""

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
        """Use these multipliers (cost units per byte, by time step) from now on, and watch their time steps."""
        self._multipliers = dict(multipliers)
        self._watch_steps(np.array(sorted(multipliers), np.int64))

    def submit(self, assignment: Integers) -> None:
        """Keep an assignment that is feasible, by its full profile, and cheaper; watch the peak of one that exceeds the
        limit."""
        evaluation = evaluate(self.problem, assignment)
        if evaluation.feasible and (self.cost is None or evaluation.cost < self.cost):
            self.cost, self.assignment = evaluation.cost, assignment.copy()
        elif evaluation.allowed and not evaluation.feasible:
            self._watch_steps(np.array([evaluation.peak_step]))
        self._recompute_cost()

    def run(self, start: Integers, share: float, batches: int) -> None:
        """Walk from an assignment for `batches` batches, then polish and add the result to the elites.

        share: the temperature as a share of the mean cost per node.
        """
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
        """Return flags (flat) of the strategies of the best assignment, the elites and the assignments in `also`, and
        of each node's `cheapest` cheapest ones with all other nodes as in the best assignment."""
        starts = self.problem.arrays.node_start
        best = self._state.assignment if self.assignment is None else self.assignment
        costs = np.zeros(int(starts[-1]))
        multiplier = np.array([self._multipliers.get(int(t), 0.0) for t in self._time_steps])
        conditional_costs(self._graph, self._spans, self._scratch, best, np.append(0.0, np.cumsum(multiplier)), costs)
        rank = np.empty(costs.size, np.int64)
        rank[np.lexsort((costs, self.problem.arrays.node_of))] = ragged_arange(starts)
        flags: NDArray[np.bool_] = rank < cheapest
        for assignment in (best, *self.elites, *also):
            flags[starts[:-1] + assignment] = True
        return flags

    @property
    def time_steps(self) -> list[int]:
        """The watched time steps."""
        return [int(t) for t in self._time_steps]

    def _move_to(self, assignment: Integers, time_steps: Integers) -> None:
        """Restart the walk's state at an assignment and with these watched time steps."""
        self._time_steps, self._spans = time_steps, select_intervals(self.problem.arrays, time_steps)
        load, width = usage_profile(self.problem, assignment)[time_steps], time_steps.size + 1
        change, prefix, cost = np.zeros(width, np.int64), np.zeros(width), np.zeros(2)
        self._state = WalkState(
            assignment.copy(), load, change, prefix, cost, assignment.copy(), self._block, self._random
        )
        self._recompute_cost()

    def _recompute_cost(self) -> None:
        """Set the walk's cost to the exact one, infinite while it contains anything forbidden: costs of that size would
        not add up exactly in float64."""
        evaluation = evaluate(self.problem, self._state.assignment)
        self._typical_cost = max(evaluation.cost if evaluation.allowed else evaluation.cost % IMPOSSIBLE, 1)
        self._state.cost[0] = evaluation.cost if evaluation.allowed else np.inf
        self._state.cost[1] = np.inf if self.cost is None else self.cost

    def _watch_steps(self, time_steps: Integers) -> None:
        more = np.union1d(self._time_steps, time_steps)
        if more.size > self._time_steps.size:
            self._move_to(self._state.assignment, more)

    def _slopes(self, multiple: float, under: float) -> PenaltySlopes:
        """Return slopes of `under` times the multipliers under the limit and `multiple` times over it.

        Over the limit, multipliers near zero are raised: a watched time step without one must cost something as well.
        """
        multiplier = np.array([self._multipliers.get(int(t), 0.0) for t in self._time_steps])
        natural = self._typical_cost / max(self.limit, 1)
        strong = np.maximum(
            multiplier, MIN_SLOPE * multiplier[multiplier > 0].mean() if (multiplier > 0).any() else natural
        )
        # Until a feasible assignment is known, blocks too avoid memory at the full penalty.
        within_blocks = multiple if self.cost is None else min(multiple, MAX_BLOCK_PENALTY)
        return PenaltySlopes(under * multiplier, multiple * strong, within_blocks * strong)

    def _polish(self) -> None:
        """Descend from the present assignment, within the limit, until batches gain nothing, in three stages."""
        for under in POLISH_SHARES:
            idle, least = 0, np.inf
            while idle < PATIENCE and not self._exhausted():
                self._batch(self._slopes(POLISH_PENALTY, under), 0.0)
                cost = float(self._state.cost[0])
                idle = 0 if cost < least * (1 - MIN_GAIN) else idle + 1
                least = min(least, cost)

    def _batch(self, slopes: PenaltySlopes, heat: float) -> None:
        """Run one batch of blocks and a coordinate descent, submit a new best, and watch the worst overload.

        heat: the temperature in cost units; 0 accepts nothing worse.
        """
        graph, walk = self._graph, self._state
        if graph.connected.size:
            # A tiny temperature instead of 0, which the Metropolis rule would divide by.
            spans, scratch, tiny = self._spans, self._scratch, 1e-300
            anneal(
                graph,
                spans,
                scratch,
                walk,
                slopes,
                self.limit,
                BATCH,
                MAX_TREE_NODES,
                FORCE_PROBABILITY,
                max(heat, tiny),
            )
        coordinate_descent(graph, self._spans, walk, slopes, self.limit)
        if walk.cost[1] < (np.inf if self.cost is None else self.cost):
            self.submit(walk.best)
        over = usage_profile(self.problem, walk.assignment) - self.limit
        over[self._time_steps] = 0
        if (over > 0).any():
            self._watch_steps(np.array([int(over.argmax())]))
        self._recompute_cost()
