"""A problem with few strategies as a mixed-integer program: the local polytope by classes, with lazy capacity rows.

There is a binary column per strategy, a continuous column per pair of classes of an edge, and an equality per class at
either end: the pair columns of the class sum to the strategies in it. An edge with a single class at one end needs
neither: its cost is added to the strategies at its other end. The capacity row of a time step is added when a solution
violates it, until a solution violates none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import evaluate, find_peaks, usage_profile
from solvers.linear_model import IncrementalLp, LinearModel, MipSolution, Numbers
from solvers.mir_cuts import expected_usage
from solvers.model import IMPOSSIBLE
from solvers.problem import Problem
from solvers.problem_arrays import compute_offsets, ragged_arange, segment_positions

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Most rounds of adding rows; a solution that still violates the limit is dropped.
MAX_ROUNDS = 40
# Costs and capacities are cut down to this, far above every sum of usages.
MAX_COST = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class RestrictedMip:
    """A problem to solve as a MIP and the limits of that; calling it solves it, in this or another process.

    unit: cost units per unit of the MIP's objective, which should be about a million in all. hint: an assignment to
    start from (None: none). time_steps: those with a capacity row from the start. seconds: of wall clock in all (None:
    no clock). nodes: of each branch and bound (None: any number). gap: relative.
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
        """Return the best assignment found that keeps the limit."""
        polytope = LocalPolytope(self.problem, self.unit)
        assignment, solution = polytope.solve(self)
        return MipResult(
            assignment, solution.is_complete, polytope.time_steps, polytope.pairs, solution.bound * self.unit
        )


@dataclass(frozen=True, slots=True, eq=False)
class MipResult:
    """A MIP's assignment (None: none found), whether it ran to its own end, the time steps that have capacity rows, the
    number of its pair columns, and the solver's lower bound in cost units, which is no proof: it is floating-point."""

    assignment: Integers | None
    is_complete: bool
    time_steps: list[int]
    pairs: int
    bound: float


class LocalPolytope:
    """The local polytope of a problem as a linear model: strategies (flat) are the first columns, then pairs."""

    def __init__(self, problem: Problem, unit: float = 1.0, cutoff: int = MAX_COST) -> None:
        """unit: cost units per unit of a floating-point objective (see RestrictedMip). cutoff: what alone costs so much
        is left out: no assignment of interest has it."""
        self._problem, self._arrays, self._unit, self._cutoff = problem, problem.arrays, unit, cutoff
        self.program = LinearModel(unit)
        # For each time step with a capacity row: its position in the list row_upper, and the index of the row.
        self._row_of: dict[int, int] = {}
        self._row_at: dict[int, int] = {}
        arrays = self._arrays
        self._strategies = (arrays.strategies_at(arrays.source), arrays.strategies_at(arrays.target))
        self._wide = (arrays.height > 1) & (arrays.width > 1)
        self._add_strategies()
        self._pair_at, self._pair_column = self._add_pairs()

    def _add_strategies(self) -> None:
        """Add a column per strategy, whose cost includes the edges with a single class at the other end, and a row per
        node: exactly one strategy."""
        arrays, forbidden = self._arrays, self._arrays.cost >= IMPOSSIBLE
        cost, total = arrays.cost.copy(), arrays.cost.astype(np.float64)
        for edges, strategies, pairs in self._edges_without_pairs():
            more = arrays.pair_cost[np.repeat(arrays.pair_start, edges) + pairs]
            np.logical_or.at(forbidden, strategies, more >= IMPOSSIBLE)
            np.add.at(cost, strategies, more)
            np.add.at(total, strategies, more)
        # Sums are cut down to MAX_COST instead of wrapping around: a lower cost only weakens a bound.
        cost = np.where(forbidden, 0, np.where(total < MAX_COST, cost, MAX_COST))
        self.program.add_columns(cost, np.where(forbidden | (cost >= self._cutoff), 0.0, 1.0), integer=True)
        ones = np.ones(arrays.node_start.size - 1)
        rows = self.program.add_rows(ones, ones)
        self.program.add_entries(rows[arrays.node_of], np.arange(cost.size), np.ones_like(cost))

    def _edges_without_pairs(self) -> Iterator[tuple[Integers, Integers, Integers]]:
        """Yield, for the sources and then the targets of edges without pair columns, the number of strategies per edge,
        the flat strategies, and the kinds of their pairs.

        Each such edge appears at one end only: at its source if its targets have a single class, else at its target.
        """
        arrays = self._arrays
        ends = (
            (self._strategies[0], arrays.source_start, arrays.source_class, arrays.width == 1),
            (self._strategies[1], arrays.target_start, arrays.target_class, (arrays.height == 1) & (arrays.width > 1)),
        )
        for strategies, starts, classes, edges in ends:
            selected = np.repeat(edges, np.diff(starts))
            counts = np.where(edges, np.diff(starts), 0)
            kinds = arrays.kinds_at(np.repeat(np.arange(counts.size), counts), classes[selected])
            yield counts, strategies[selected], kinds

    def _add_pairs(self) -> tuple[Integers, Integers]:
        """Add a column for each permitted pair of classes of a wide edge (more than one class at both ends), and a row
        for each class.

        Returns offsets by edge into a second array, which holds the columns of its pairs (-1: forbidden).
        """
        arrays, program = self._arrays, self.program
        sizes = np.where(self._wide, arrays.height * arrays.width, 0)
        begin = compute_offsets(sizes)
        pair, edge = ragged_arange(begin), np.repeat(np.arange(sizes.size), sizes)
        cost = arrays.pair_cost[arrays.pair_start[edge] + arrays.kinds_at(edge, pair)]
        possible = cost < min(self._cutoff, IMPOSSIBLE)
        column = np.full(pair.size, -1, np.int64)
        column[possible] = program.add_columns(cost[possible], 1.0)
        pair, edge = pair[possible], edge[possible]
        self._class_rows = list[Integers]()
        ends = (
            (arrays.height, pair // arrays.width[edge], arrays.source_start, arrays.source_class, self._strategies[0]),
            (arrays.width, pair % arrays.width[edge], arrays.target_start, arrays.target_class, self._strategies[1]),
        )
        for count, of_pair, starts, classes, strategies in ends:
            first = program.rows + compute_offsets(np.where(self._wide, count, 0))
            self._class_rows.append(first[:-1])
            zeros = np.zeros(int(first[-1]) - program.rows)
            program.add_rows(zeros, zeros)
            program.add_entries(first[edge] + of_pair, column[possible], np.ones_like(pair))
            selected = np.repeat(self._wide, np.diff(starts))
            rows = np.repeat(first[:-1], np.diff(starts)) + classes
            program.add_entries(rows[selected], strategies[selected], np.full(int(selected.sum()), -1))
        return begin, column

    def _add_capacity_row(self, time_step: int, capacity: int) -> None:
        """Limit the usage at a time step to `capacity` bytes, or change the capacity of the row that is there."""
        arrays, program, capacity = self._arrays, self.program, min(capacity, MAX_COST)
        if time_step in self._row_of:
            program.row_upper[self._row_of[time_step]][0] = capacity
            return
        # Rows are scaled to a capacity of about 1.
        row = program.add_rows(np.array([-np.inf]), np.array([capacity]), size=float(max(self._problem.limit or 1, 1)))
        self._row_of[time_step], self._row_at[time_step] = len(program.row_upper) - 1, int(row[0])
        spans = np.flatnonzero((arrays.span_start <= time_step) & (time_step < arrays.span_stop))
        nodes = arrays.span_node[spans]
        used = arrays.span_usage[segment_positions(arrays.span_at[spans], arrays.counts[nodes])]
        self._add_usage_entries(row, arrays.strategies_at(nodes), used)
        live = np.flatnonzero((arrays.edge_usage_start <= time_step) & (time_step < arrays.edge_usage_stop))
        for _, columns, used in self._iter_edge_usage(live):
            self._add_usage_entries(row, columns, used)

    def _add_usage_entries(self, row: Integers, columns: Integers, used: Integers) -> None:
        nonzero = np.flatnonzero(used)
        self.program.add_entries(np.repeat(row, nonzero.size), columns[nonzero], used[nonzero])

    def _iter_edge_usage(self, which: Integers) -> Iterator[tuple[Integers, Integers, Integers]]:
        """Yield, for these usages on edges, the number of the usage, the column and the column's bytes.

        The columns are pairs for wide edges, and strategies at one end for the others.
        """
        arrays = self._arrays
        edges, pair_start = arrays.edge_usage_edge[which], arrays.edge_usage_pair_start[which]
        wide, low = self._wide[edges], arrays.width[edges] == 1
        sizes = np.diff(self._pair_at)[edges[wide]]
        columns = self._pair_column[segment_positions(self._pair_at[edges[wide]], sizes)]
        kinds = arrays.kinds_at(np.repeat(edges[wide], sizes), ragged_arange(compute_offsets(sizes)))
        used, possible = arrays.pair_usage[np.repeat(pair_start[wide], sizes) + kinds], columns >= 0
        yield np.repeat(which[wide], sizes)[possible], columns[possible], used[possible]
        ends = ((arrays.source_start, arrays.source_class, low), (arrays.target_start, arrays.target_class, ~low))
        for (starts, classes, at_this_end), strategies in zip(ends, self._strategies, strict=True):
            selected = at_this_end & ~wide
            sizes = np.diff(starts)[edges[selected]]
            positions = segment_positions(starts[edges[selected]], sizes)
            kinds = arrays.kinds_at(np.repeat(edges[selected], sizes), classes[positions])
            yield (
                np.repeat(which[selected], sizes),
                strategies[positions],
                arrays.pair_usage[np.repeat(pair_start[selected], sizes) + kinds],
            )

    def usage(self, values: Floats) -> Floats:
        """Return the bytes in use at each time step, on nodes and edges, for fractional values of the columns."""
        arrays = self._arrays
        profile, change = expected_usage(arrays, values[: arrays.cost.size]), np.zeros(arrays.time_steps + 1)
        for which, columns, used in self._iter_edge_usage(np.arange(arrays.edge_usage_edge.size)):
            np.add.at(change, arrays.edge_usage_start[which], values[columns] * used)
            np.add.at(change, arrays.edge_usage_stop[which], -values[columns] * used)
        return profile + np.cumsum(change)[:-1]

    def set_problem(self, problem: Problem) -> None:
        """Replace the problem by the same one with further time steps, so that their capacity rows can be added."""
        self._problem, self._arrays = problem, problem.arrays

    def to_lp(self) -> IncrementalLp:
        """Return the LP relaxation."""
        return IncrementalLp(self.program)

    def add_capacity_rows(self, time_steps: Iterable[int]) -> None:
        """Add the capacity rows of these time steps."""
        for time_step in time_steps:
            self._add_capacity_row(time_step, self._problem.limit or 0)

    def allow_overload(self, cost: float) -> None:
        """Let the LP exceed its capacity rows, at this cost (cost units) per limit; no multiplier is larger."""
        rows, limit = np.array(list(self._row_at.values()), np.int64), float(max(self._problem.limit or 1, 1))
        columns = self.program.add_columns(np.full(rows.size, cost), np.inf)
        self.program.add_entries(rows, columns, np.full(rows.size, -limit))

    def multipliers(self, duals: Floats) -> dict[int, float]:
        """Return the positive Lagrange multipliers (cost units per byte, by time step) from the LP's row duals."""
        unit_per_byte = self._unit / max(self._problem.limit or 1, 1)
        multipliers = {t: -float(duals[row]) * unit_per_byte for t, row in self._row_at.items()}
        return {t: multiplier for t, multiplier in multipliers.items() if multiplier > 0}

    def messages(self, duals: Floats) -> Floats:
        """Return the duals of the class rows as messages in cost units, in the order of DualWarmStart.

        Given to the nodes, they leave every edge the reduced costs of its pair columns, so that one pass of messages
        proves the LP's optimum but for the rounding of the duals. An edge without pair columns gives all its cost.
        """
        arrays, ends = self._arrays, list[Floats]()
        sides = ((arrays.source_start, arrays.source_class), (arrays.target_start, arrays.target_class))
        given = self._edges_without_pairs()
        for (starts, classes), first, (counts, _, pairs) in zip(sides, self._class_rows, given, strict=True):
            sizes = np.diff(starts)
            wide, all_given = np.repeat(self._wide, sizes), np.repeat(counts > 0, sizes)
            values = np.zeros(classes.size)
            values[wide] = duals[(np.repeat(first, sizes) + classes)[wide]] * self._unit
            values[all_given] = arrays.pair_cost[np.repeat(arrays.pair_start, counts) + pairs]
            ends.append(values)
        return np.concatenate(ends)

    @property
    def pairs(self) -> int:
        """The number of pairs of wide edges, including forbidden ones, which have no column."""
        return self._pair_column.size

    @property
    def time_steps(self) -> list[int]:
        """The time steps that have a capacity row."""
        return list(self._row_of)

    def _hint(self, assignment: Integers) -> Floats:
        arrays = self._arrays
        values = np.zeros(self.program.columns)
        values[arrays.node_start[:-1] + assignment] = 1.0
        pair_columns = self._pair_column[(self._pair_at[:-1] + arrays.pair_positions(assignment))[self._wide]]
        values[pair_columns[pair_columns >= 0]] = 1.0
        return values

    def to_assignment(self, values: Numbers) -> Integers:
        """Round a solver's nearly integral values: each node's strategy of the largest value."""
        starts = self._arrays.node_start
        best = [int(values[a:b].argmax()) for a, b in pairwise(starts)]
        return np.array(best, np.int64)

    def solve(self, task: RestrictedMip) -> tuple[Integers | None, MipSolution]:
        """Return the best assignment found that keeps the limit, if any, and the solution of the last MIP."""
        limit, until = self._problem.limit, None if task.seconds is None else time.monotonic() + task.seconds
        if limit is not None:
            self.add_capacity_rows(task.time_steps)
        solution = MipSolution(None, 0.0, True)
        for _ in range(MAX_ROUNDS):
            start, left = None if task.hint is None else self._hint(task.hint), None
            if until is not None:
                left = until - time.monotonic()
            solution = self.program.solve(start, seconds=left, nodes=task.nodes, gap=task.gap, seed=task.seed)
            if solution.values is None:
                break
            assignment = self.to_assignment(solution.values)
            evaluation = evaluate(self._problem, assignment)
            if evaluation.feasible or limit is None or not evaluation.allowed:
                return assignment, solution
            over = usage_profile(self._problem, assignment) - limit
            for time_step in find_peaks(over):
                # A row that was kept only within the solver's tolerance is tightened by twice what it let through.
                slip = 2 * int(over[time_step]) if time_step in self._row_of else 0
                self._add_capacity_row(time_step, limit - slip)
        return None, solution
