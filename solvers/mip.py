"""The finisher: a problem (one with few strategies left) as a mixed-integer program, in the local polytope by classes.

A binary per strategy, a continuous column per pair of classes of an edge, and an equality per class of either end:
the pair columns of a class sum to the strategies in it. An edge with one class at an end needs neither: the
strategies at its other end pay for it. Rows for the usage at a moment are added when a solution
breaks them, until none is broken.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import evaluate, usage_profile
from solvers.linear_model import IncrementalLp, LinearModel, MipSolution
from solvers.mir_cuts import expected_usage
from solvers.model import IMPOSSIBLE
from solvers.problem import Problem
from solvers.problem_arrays import compute_offsets, ragged_arange

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Times that rows are added, and most of them at a time; a solution that still breaks the limit is dropped.
MAX_ROUNDS, ROWS_PER_ROUND = 40, 32
# A run of moments is taken apart where it is longer than this part of all.
MIN_RUNS = 64


@dataclass(frozen=True, slots=True, eq=False)
class RestrictedMip:
    """A problem to solve as a program, and how far: a call of it may be sent to another process.

    unit: how many cost units make one of the program's (the total should be around a million of them); hint: a
    choice; moments: limited from the start; seconds: of wall clock in all (None: no clock); nodes: of each
    branch and bound (None: any number); gap: relative.
    """

    problem: Problem
    unit: float
    hint: Integers | None
    time_steps: Sequence[int]
    seconds: float | None
    nodes: int | None
    gap: float
    seed: int

    def __call__(self) -> MipResult:
        """The best choice found that keeps the limit."""
        polytope = LocalPolytope(self.problem, self.unit)
        assignment, finished = polytope.solve(self)
        return MipResult(assignment, finished, polytope.time_steps, polytope.pairs)


@dataclass(frozen=True, slots=True, eq=False)
class MipResult:
    """A program's choice (None: none), whether it came to its own end, the moments that it limited, its pairs."""

    assignment: Integers | None
    is_complete: bool
    time_steps: list[int]
    pairs: int


class LocalPolytope:
    """The mixed-integer program of a problem."""

    def __init__(self, problem: Problem, unit: float) -> None:
        """unit: see Task."""
        self._problem, self._arrays, self._unit = problem, problem.arrays, unit
        self._program = LinearModel()
        self._row_of: dict[int, int] = {}
        self._row_at: dict[int, int] = {}
        arrays = self._arrays
        self._strategies = (
            ragged_arange(arrays.source_start)
            + np.repeat(arrays.node_start[arrays.source], np.diff(arrays.source_start)),
            ragged_arange(arrays.target_start)
            + np.repeat(arrays.node_start[arrays.target], np.diff(arrays.target_start)),
        )
        self._wide = (arrays.height > 1) & (arrays.width > 1)
        self._add_strategies()
        self._pair_at, self._pair_column = self._add_pairs()

    def _add_strategies(self) -> None:
        """A column each, which also pays for the edges with one class at the other end."""
        arrays, cost = self._arrays, self._arrays.cost.copy()
        for edges, strategies, pairs in self._edges_without_pairs():
            np.add.at(cost, strategies, arrays.pair_cost[np.repeat(arrays.pair_start, edges) + pairs])
        self._program.add_columns(np.where(cost < IMPOSSIBLE, cost, 0) / self._unit, 1.0, integer=True)
        self._program.upper[-1][cost >= IMPOSSIBLE] = 0.0
        counts = np.diff(arrays.node_start)
        rows = self._program.add_rows(np.ones(counts.size), np.ones(counts.size))
        self._program.add_entries(np.repeat(rows, counts), np.arange(cost.size), np.ones(cost.size))

    def _edges_without_pairs(self) -> Iterator[tuple[Integers, Integers, Integers]]:
        """For both ends: how many strategies each edge without pair columns has there, which, and their pairs."""
        arrays = self._arrays
        ends = (
            (self._strategies[0], arrays.source_start, arrays.source_class, arrays.width == 1),
            (self._strategies[1], arrays.target_start, arrays.target_class, (arrays.height == 1) & (arrays.width > 1)),
        )
        for strategies, starts, classes, here in ends:
            mine = np.repeat(here, np.diff(starts))
            yield np.where(here, np.diff(starts), 0), strategies[mine], classes[mine]

    def _add_pairs(self) -> tuple[Integers, Integers]:
        """A column for each possible pair of classes of a wide edge, and their rows.

        Returns where the pairs of each edge begin in the second array, which has their columns (-1: forbidden).
        """
        arrays, program = self._arrays, self._program
        sizes = np.where(self._wide, arrays.height * arrays.width, 0)
        begin = compute_offsets(sizes)
        pair, edge = ragged_arange(begin), np.repeat(np.arange(sizes.size), sizes)
        cost = arrays.pair_cost[arrays.pair_start[edge] + pair]
        possible = cost < IMPOSSIBLE
        column = np.full(pair.size, -1, np.int64)
        column[possible] = program.add_columns(cost[possible] / self._unit, 1.0)
        pair, edge = pair[possible], edge[possible]
        ends = (
            (arrays.height, pair // arrays.width[edge], arrays.source_start, arrays.source_class, self._strategies[0]),
            (arrays.width, pair % arrays.width[edge], arrays.target_start, arrays.target_class, self._strategies[1]),
        )
        for count, of_pair, starts, classes, strategies in ends:
            first = program.rows + compute_offsets(np.where(self._wide, count, 0))
            zeros = np.zeros(int(first[-1]) - program.rows)
            program.add_rows(zeros, zeros)
            program.add_entries(first[edge] + of_pair, column[possible], np.ones(pair.size))
            mine = np.repeat(self._wide, np.diff(starts))
            rows = np.repeat(first[:-1], np.diff(starts)) + classes
            program.add_entries(rows[mine], strategies[mine], -np.ones(int(mine.sum())))
        return begin, column

    def _add_capacity_row(self, time_step: int, upper_cutoff: float) -> None:
        arrays, program = self._arrays, self._program
        size = float(max(self._problem.limit or 1, 1))
        if time_step in self._row_of:
            program.row_upper[self._row_of[time_step]][0] = upper_cutoff / size
            return
        row = program.add_rows(np.array([-np.inf]), np.array([upper_cutoff / size]))
        self._row_of[time_step], self._row_at[time_step] = len(program.row_upper) - 1, int(row[0])
        spans = np.flatnonzero((arrays.span_start <= time_step) & (time_step < arrays.span_stop))
        counts = np.diff(arrays.node_start)[arrays.span_node[spans]]
        used = arrays.span_usage[_segment_positions(arrays.span_at[spans], counts)]
        self._add_usage_entries(
            row, _segment_positions(arrays.node_start[arrays.span_node[spans]], counts), used / size
        )
        for columns, on_edges in self._edge_usage_columns(time_step):
            self._add_usage_entries(row, columns, on_edges / size)

    def _add_usage_entries(self, row: Integers, columns: Integers, used: Floats) -> None:
        at = np.flatnonzero(used)
        self._program.add_entries(np.repeat(row, at.size), columns[at], used[at])

    def _edge_usage_columns(self, time_step: int) -> Iterator[tuple[Integers, Integers]]:
        """Columns and what they use at the moment."""
        arrays = self._arrays
        live = np.flatnonzero((arrays.edge_usage_start <= time_step) & (time_step < arrays.edge_usage_stop))
        return ((columns, used) for _, columns, used in self._iter_edge_usage(live))

    def _iter_edge_usage(self, which: Integers) -> Iterator[tuple[Integers, Integers, Integers]]:
        """Of these usages on edges: their numbers, columns (pairs of wide edges, strategies at an end of the others)
        and what these use."""
        arrays = self._arrays
        edges, places = arrays.edge_usage_edge[which], arrays.edge_usage_pair_start[which]
        wide, low = self._wide[edges], arrays.width[edges] == 1
        sizes = np.diff(self._pair_at)[edges[wide]]
        columns = self._pair_column[_segment_positions(self._pair_at[edges[wide]], sizes)]
        used, possible = arrays.pair_usage[_segment_positions(places[wide], sizes)], columns >= 0
        yield np.repeat(which[wide], sizes)[possible], columns[possible], used[possible]
        ends = ((arrays.source_start, arrays.source_class, low), (arrays.target_start, arrays.target_class, ~low))
        for (starts, classes, here), strategies in zip(ends, self._strategies, strict=True):
            mine = here & ~wide
            sizes = np.diff(starts)[edges[mine]]
            at = _segment_positions(starts[edges[mine]], sizes)
            yield (
                np.repeat(which[mine], sizes),
                strategies[at],
                arrays.pair_usage[np.repeat(places[mine], sizes) + classes[at]],
            )

    def usage(self, values: Floats) -> Floats:
        """What these values of the columns use at every moment, on nodes and on edges."""
        arrays = self._arrays
        profile, change = expected_usage(arrays, values[: arrays.cost.size]), np.zeros(arrays.time_steps + 1)
        for which, columns, used in self._iter_edge_usage(np.arange(arrays.edge_usage_edge.size)):
            np.add.at(change, arrays.edge_usage_start[which], values[columns] * used)
            np.add.at(change, arrays.edge_usage_stop[which], -values[columns] * used)
        return profile + np.cumsum(change)[:-1]

    def set_problem(self, problem: Problem) -> None:
        """Go on with the same problem under more limits, at further moments."""
        self._problem, self._arrays = problem, problem.arrays

    def to_lp(self) -> IncrementalLp:
        """The relaxation, whose columns are the strategies (flat), then the pairs."""
        return IncrementalLp(self._program)

    def add_capacity_rows(self, time_steps: Iterable[int]) -> None:
        """Rows for these moments."""
        for time_step in time_steps:
            self._add_capacity_row(time_step, float(self._problem.limit or 0))

    def multipliers(self, slopes: Floats) -> dict[int, float]:
        """What a byte more at each moment limited saves, by the slopes of the relaxation's rows, if anything."""
        worth = self._unit / max(self._problem.limit or 1, 1)
        found = {t: -float(slopes[row]) * worth for t, row in self._row_at.items()}
        return {moment: price for moment, price in found.items() if price > 0}

    @property
    def pairs(self) -> int:
        """How many columns stand for pairs."""
        return self._pair_column.size

    @property
    def time_steps(self) -> list[int]:
        """The moments that have got rows."""
        return list(self._row_of)

    def _hint(self, assignment: Integers) -> Floats:
        arrays = self._arrays
        values = np.zeros(self._program.columns)
        values[arrays.node_start[:-1] + assignment] = 1.0
        taken = self._pair_column[(self._pair_at[:-1] + arrays.pair(assignment))[self._wide]]
        values[taken[taken >= 0]] = 1.0
        return values

    def _choice(self, values: Floats) -> Integers:
        starts = self._arrays.node_start
        best = [int(values[a:b].argmax()) for a, b in pairwise(starts)]
        return np.array(best, np.int64)

    def solve(self, task: RestrictedMip) -> tuple[Integers | None, bool]:
        """The best choice found that keeps the limit, if any, and whether the program came to its own end."""
        limit, until = self._problem.limit, None if task.seconds is None else time.monotonic() + task.seconds
        if limit is not None:
            self.add_capacity_rows(task.time_steps)
        answer = MipSolution(None, 0.0, True, False)
        for _ in range(MAX_ROUNDS):
            start, left = None if task.hint is None else self._hint(task.hint), None
            if until is not None:
                left = until - time.monotonic()
            answer = self._program.solve(start, left, task.nodes, task.gap, seed=task.seed)
            if answer.values is None:
                break
            assignment = self._choice(answer.values)
            found = evaluate(self._problem, assignment)
            if found.feasible or limit is None or found.cost >= IMPOSSIBLE:
                return assignment, answer.is_complete
            over = usage_profile(self._problem, assignment) - limit
            for time_step in find_peaks(over):
                # A row that holds only within the solver's tolerance is drawn tighter by what it let through.
                slip = 2 * int(over[time_step]) if time_step in self._row_of else 0
                self._add_capacity_row(time_step, float(limit - slip))
        return None, answer.is_complete


def _segment_positions(starts: Integers, sizes: Integers) -> Integers:
    """The positions of parts that begin at `starts` and have these sizes, one part after another."""
    return np.repeat(starts, sizes) + ragged_arange(compute_offsets(sizes))


def find_peaks(over: Integers) -> list[int]:
    """The highest moment of each run of moments over the limit (of each part of a long run), the highest of them."""
    at, part = np.flatnonzero(over > 0), -(-over.size // MIN_RUNS)
    cuts = np.flatnonzero((np.diff(at) > 1) | (np.diff(at // max(part, 1)) > 0)) + 1
    runs = np.split(at, cuts) if at.size else []
    highest = [int(run[np.argmax(over[run])]) for run in runs]
    return sorted(highest, key=lambda moment: -int(over[moment]))[:ROWS_PER_ROUND]
