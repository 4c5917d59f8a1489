"""The finisher: a problem (one with few strategies left) as a mixed-integer program, in the local polytope by classes.

A binary per strategy, a continuous column per pair of classes of an edge, and an equality per class of either end:
the pair columns of a class sum to the strategies in it. Rows for the usage at a moment are added when a solution
breaks them, until none is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import evaluate, usage_profile
from solvers.parts import IMPOSSIBLE
from solvers.problem import Problem
from solvers.program import Answer, Program

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Times that rows are added; a solution that still breaks the limit is dropped.
ROUNDS = 40


class LocalPolytope:
    """The mixed-integer program of a problem."""

    def __init__(self, problem: Problem, unit: float) -> None:
        """unit: how many cost units make one of the program's (the total should be around a million of them)."""
        self._problem, self._layout, self._unit = problem, problem.layout, unit
        self._program = Program()
        self._pairs: list[tuple[Integers, Integers]] = []
        self._row_of: dict[int, int] = {}
        cost = self._layout.cost
        self._program.add_columns(np.where(cost < IMPOSSIBLE, cost, 0) / unit, 1.0, integer=True)
        self._program.upper[-1][cost >= IMPOSSIBLE] = 0.0
        counts = np.diff(self._layout.node_start)
        rows = self._program.add_rows(np.ones(counts.size), np.ones(counts.size))
        self._program.add_entries(np.repeat(rows, counts), np.arange(cost.size), np.ones(cost.size))
        for e in range(self._layout.source.size):
            self._add_edge(e)

    def _add_edge(self, e: int) -> None:
        layout, program = self._layout, self._program
        height, width = int(layout.height[e]), int(layout.width[e])
        start = int(layout.pair_start[e])
        cost = layout.pair_cost[start : start + height * width]
        positions = np.flatnonzero(cost < IMPOSSIBLE)
        pairs = program.add_columns(cost[positions] / self._unit, 1.0)
        sources = layout.source_class[layout.source_start[e] : layout.source_start[e + 1]]
        targets = layout.target_class[layout.target_start[e] : layout.target_start[e + 1]]
        ends = (
            (layout.source[e], sources, positions // width, height),
            (layout.target[e], targets, positions % width, width),
        )
        for node, classes, of_pair, count in ends:
            rows = program.add_rows(np.zeros(count), np.zeros(count))
            program.add_entries(rows[of_pair], pairs, np.ones(pairs.size))
            strategies = layout.node_start[node] + np.arange(classes.size)
            program.add_entries(rows[classes], strategies, -np.ones(classes.size))
        self._pairs.append((pairs, positions))

    def _limit_moment(self, moment: int, ceiling: float) -> None:
        layout, program = self._layout, self._program
        if moment in self._row_of:
            program.row_upper[self._row_of[moment]][0] = ceiling / max(self._problem.limit or 1, 1)
            return
        size = float(max(self._problem.limit or 1, 1))
        row = program.add_rows(np.array([-np.inf]), np.array([ceiling / size]))
        self._row_of[moment] = len(program.row_upper) - 1
        for q in np.flatnonzero((layout.span_start <= moment) & (moment < layout.span_stop)):
            i = layout.span_node[q]
            at = np.arange(layout.node_start[i], layout.node_start[i + 1])
            used = layout.span_usage[layout.span_at[q] : layout.span_at[q] + at.size]
            program.add_entries(np.repeat(row, at.size), at, used / size)
        for u in np.flatnonzero((layout.edge_usage_start <= moment) & (moment < layout.edge_usage_stop)):
            pairs, positions = self._pairs[int(layout.edge_usage_edge[u])]
            used = layout.pair_usage[layout.edge_usage_pair_start[u] + positions]
            program.add_entries(np.repeat(row, pairs.size), pairs, used / size)

    @property
    def moments(self) -> list[int]:
        """The moments that have got rows."""
        return list(self._row_of)

    def _hint(self, choice: Integers) -> Floats:
        layout = self._layout
        values = np.zeros(self._program.columns)
        values[layout.node_start[:-1] + choice] = 1.0
        for (pairs, positions), pair in zip(self._pairs, layout.pair(choice).tolist(), strict=True):
            values[pairs[positions == pair]] = 1.0
        return values

    def _choice(self, values: Floats) -> Integers:
        starts = self._layout.node_start
        best = [int(values[a:b].argmax()) for a, b in pairwise(starts)]
        return np.array(best, np.int64)

    def solve(
        self,
        hint: Integers | None,
        moments: list[int],
        seconds_left: Callable[[], float | None],
        nodes: int | None,
        gap: float,
        seed: int,
    ) -> tuple[Integers | None, Answer]:
        """The best choice found that keeps the limit; `moments` get their rows at once, others when broken.

        seconds_left: of wall clock (None: no clock); nodes: of each branch and bound.
        """
        limit = self._problem.limit
        for moment in moments if limit is not None else []:
            self._limit_moment(moment, float(limit or 0))
        answer = Answer(None, 0.0, True, False)
        for _ in range(ROUNDS):
            start = None if hint is None else self._hint(hint)
            answer = self._program.solve(start, seconds_left(), nodes, gap, seed=seed)
            if answer.values is None:
                break
            choice = self._choice(answer.values)
            found = evaluate(self._problem, choice)
            if found.feasible or limit is None or found.cost >= IMPOSSIBLE:
                return choice, answer
            over = usage_profile(self._problem, choice) - limit
            for moment in _peaks(over):
                # A row that holds only within the solver's tolerance is drawn tighter by what it let through.
                slip = 2 * int(over[moment]) if moment in self._row_of else 0
                self._limit_moment(moment, float(limit - slip))
        return None, answer


def _peaks(over: Integers) -> list[int]:
    """The highest moment of each run of moments over the limit, the highest eight of them."""
    peaks: list[int] = []
    at = np.flatnonzero(over > 0)
    for run in np.split(at, np.flatnonzero(np.diff(at) > 1) + 1):
        peaks.append(int(run[np.argmax(over[run])]))
    return sorted(peaks, key=lambda moment: -int(over[moment]))[:8]
