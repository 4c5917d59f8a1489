"""Cuts: limits implied by the limit, where the linear bound is weak because it packs parts of strategies.

The linear program of the strategies that a good choice may take is solved again and again; what its optimum breaks
is added: limits at moments, and where it keeps those, roundings of them (solvers/mir_cuts.py). Its slopes are
prices, and message passing at these prices over all strategies, not only those of the program, bounds in
integers what the program says in floating point. So neither the program's strategies nor its arithmetic matter for
the proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.mip import LocalPolytope
from solvers.mir_cuts import MirCut, expected_usage, separate_mir, with_cuts
from solvers.problem import Problem
from solvers.problem_arrays import ProblemArrays
from solvers.relaxation import Relaxation
from solvers.restriction import Restriction
from solvers.solve_state import SolveState

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Programs, roundings and moments added to each; a gain of less than this share of the gap (of this much of
# the cost where that is less) is none, so many end it.
MAX_ROUNDS, CUTS_PER_ROUND, STEPS_PER_ROUND = 40, 40, 16
MIN_GAIN, FAR_SHARE, PATIENCE = 0.02, 0.02, 4
PASS_ROUNDS, STALL = 200, 1e-7
# What breaks a limit by this share of it breaks it; work of a pair in one program.
TOLERANCE, PAIR_WORK = 1e-7, 2e4
# Seconds of wall clock of one program.
LP_SECONDS = 20.0


def separate_cuts(state: SolveState, relaxation: Relaxation, flags: Mask, *, time_steps: Sequence[int]) -> Relaxation:
    """The relaxation under the limits that a program of these strategies finds, which is limited at these moments from
    the start; at its prices, tightened."""
    own = relaxation.model.restriction.problem
    restriction = Restriction.identity(own).restricted_to(flags).problem
    cost, timed = state.cost or state.largest_cost, state.seconds_left is not None
    task = SeparationTask(restriction, state.problem.arrays.time_steps, time_steps, cost, state.target_gap, timed)
    cuts = state.run_in_worker(task)
    if cuts is None:
        return relaxation
    state.charge(cuts.work)
    stronger, places = with_cuts(own, list(cuts.cuts))
    further = {t: price for t, price in zip(places, cuts.cuts.values(), strict=True) if t >= 0}
    under = relaxation.with_rows(stronger, cuts.multipliers | further)
    under.pass_messages(PASS_ROUNDS, STALL)
    return under


def select_promising(arrays: ProblemArrays, min_marginals: Integers, known: Mask, *, pairs: int) -> Mask:
    """Flags of the strategies that choices near to the bound may take: those known to and each node's least
    marginals, as many as keep the number of pairs on edges at most so large."""
    first = arrays.node_start[:-1]
    node = np.repeat(np.arange(first.size), np.diff(arrays.node_start))
    flags: Mask = known.copy()
    flags[np.lexsort((min_marginals, node))[first]] = True
    levels = np.unique(min_marginals[min_marginals < np.iinfo(np.int64).max])
    low, high = 0, levels.size
    while low < high:
        middle = (low + high) // 2
        counts = np.add.reduceat(flags | (min_marginals <= levels[middle]), first, dtype=np.int64)
        fits = (counts[arrays.source] * counts[arrays.target]).sum() <= pairs
        low, high = (middle + 1, high) if fits else (low, middle)
    return flags | (min_marginals <= levels[low - 1]) if low else flags


@dataclass(frozen=True, slots=True, eq=False)
class SeparationTask:
    """A problem to find implied limits for: a call of it may be sent to another process.

    own: how many of its moments are the usage limit's own, of which roundings are taken; moments: limited from the
    start; cost: what a good choice costs; timed: whether a clock may end a program.
    """

    problem: Problem
    original_steps: int
    time_steps: Sequence[int]
    cost: int
    gap: float
    has_clock: bool

    def __call__(self) -> SeparatedCuts:
        """Solve and cut until that gains no more."""
        cutting, idle, work = SeparationLoop(self), 0, 0.0
        cutting.add_capacity_rows(self.time_steps)
        for _ in range(MAX_ROUNDS):
            before = cutting.cost
            more = cutting.run_round()
            work += PAIR_WORK * cutting.pairs
            left = self.cost - cutting.cost
            gained = cutting.cost - before >= MIN_GAIN * min(left, FAR_SHARE * cutting.cost)
            idle = 0 if gained or not cutting.has_all_rows else idle + 1
            if not more or idle >= PATIENCE or left <= self.gap * cutting.cost:
                break
        return SeparatedCuts(*cutting.cuts(), work)


@dataclass(frozen=True, slots=True, eq=False)
class SeparatedCuts:
    """Roundings that are worth something and their prices, the prices of the problem's own moments, the work."""

    cuts: dict[MirCut, float]
    multipliers: dict[int, float]
    work: float


class SeparationLoop:
    """A linear program and the limits it has got."""

    def __init__(self, task: SeparationTask) -> None:
        self._problem, self._original_steps = task.problem, task.original_steps
        self._unit, self._seconds = max(task.cost / 1e6, 1e-6), LP_SECONDS if task.has_clock else None
        self._polytope = LocalPolytope(task.problem, self._unit)
        self._lp, self._first = self._polytope.to_lp(), task.problem.arrays.time_steps
        self._cuts, self._multipliers = list[MirCut](), dict[int, float]()
        self.has_all_rows = False
        self.cost, self.pairs, self.point = 0.0, self._polytope.pairs, np.zeros(task.problem.arrays.cost.size)

    def add_capacity_rows(self, time_steps: Iterable[int]) -> None:
        """Limit these moments from the start."""
        self._polytope.add_capacity_rows(time_steps)

    def run_round(self) -> bool:
        """Solve, and add what the optimum breaks; was there anything?"""
        vertex = self._lp.solve(self._seconds)
        if vertex is None:
            return False
        self._multipliers, self.cost = self._polytope.multipliers(vertex.duals), vertex.cost * self._unit
        self.point = vertex.values[: self._problem.arrays.cost.size]
        self.has_all_rows = not self._add_capacity_rows(self.point)
        return not self.has_all_rows or self._add_mir_cuts(self.point)

    def cuts(self) -> tuple[dict[MirCut, float], dict[int, float]]:
        """Those that are worth something and their prices, and the prices of the moments known before."""
        own = {moment: price for moment, price in self._multipliers.items() if moment < self._first}
        further = {t - self._first: price for t, price in self._multipliers.items() if t >= self._first}
        return {self._cuts[k]: price for k, price in further.items()}, own

    def _add_capacity_rows(self, point: Floats) -> bool:
        limit = self._problem.limit or 0
        over = expected_usage(self._problem.arrays, point) - limit * (1 + TOLERANCE)
        over[self._polytope.time_steps] = 0
        worst = np.argsort(-over, kind="stable")[:STEPS_PER_ROUND]
        new = worst[over[worst] > 0].tolist()
        self._polytope.add_capacity_rows(new)
        return bool(new)

    def _add_mir_cuts(self, point: Floats) -> bool:
        time_steps = self._problem.arrays.time_steps
        found = separate_mir(self._problem, point, CUTS_PER_ROUND, time_steps=self._original_steps)
        self._problem, places = with_cuts(self._problem, found)
        self._cuts += [rounding for rounding, place in zip(found, places, strict=True) if place >= 0]
        self._polytope.set_problem(self._problem)
        self._polytope.add_capacity_rows(range(time_steps, self._problem.arrays.time_steps))
        return self._problem.arrays.time_steps > time_steps
