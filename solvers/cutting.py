"""Cuts: limits implied by the limit, where the linear bound is weak because it packs parts of strategies.

The linear program of the strategies that a good choice may take is solved again and again; what its optimum breaks
is added: limits at moments, and where it keeps those, roundings of them (solvers/rounding.py). Its slopes are
prices, and message passing at these prices over all strategies, not only those of the program, bounds in
integers what the program says in floating point. So neither the program's strategies nor its arithmetic matter for
the proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.ilp import LocalPolytope
from solvers.layout import Layout
from solvers.ledger import Ledger
from solvers.problem import Problem
from solvers.relaxation import Relaxation
from solvers.restrict import Restricted
from solvers.rounding import Rounding, expected_usage, strengthened, violated

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Programs, roundings and moments added to each; a gain of less than this share of the gap (of this much of
# the cost where that is less) is none, so many end it.
ROUNDS, CUTS, PEAKS = 40, 40, 16
SLOW, FAR, PATIENCE = 0.02, 0.02, 4
TIGHTEN, STALL = 200, 1e-7
# What breaks a limit by this share of it breaks it; work of a pair in one program.
TOLERANCE, PAIR_WORK = 1e-7, 2e4
# Seconds of wall clock of one program.
SECONDS = 20.0


def cut(ledger: Ledger, relaxation: Relaxation, flags: Mask, moments: Sequence[int]) -> Relaxation:
    """The relaxation under the limits that a program of these strategies finds, which is limited at these moments from
    the start; at its prices, tightened."""
    own = relaxation.field.restricted.problem
    narrow = Restricted.nothing(own).narrowed(flags).problem
    cost, timed = ledger.cost or ledger.largest_cost, ledger.seconds_left is not None
    task = CutTask(narrow, ledger.problem.layout.moments, moments, cost, ledger.gap_asked, timed)
    cuts = ledger.beside(task)
    if cuts is None:
        return relaxation
    ledger.spend(cuts.work)
    stronger, places = strengthened(own, list(cuts.roundings))
    further = {t: price for t, price in zip(places, cuts.roundings.values(), strict=True) if t >= 0}
    under = relaxation.under(stronger, cuts.prices | further)
    under.tighten(TIGHTEN, STALL)
    return under


def likely(layout: Layout, marginal: Integers, known: Mask, pairs: int) -> Mask:
    """Flags of the strategies that choices near to the bound may take: those known to and each node's least
    marginals, as many as keep the number of pairs on edges at most so large."""
    first = layout.node_start[:-1]
    node = np.repeat(np.arange(first.size), np.diff(layout.node_start))
    flags: Mask = known.copy()
    flags[np.lexsort((marginal, node))[first]] = True
    levels = np.unique(marginal[marginal < np.iinfo(np.int64).max])
    low, high = 0, levels.size
    while low < high:
        middle = (low + high) // 2
        counts = np.add.reduceat(flags | (marginal <= levels[middle]), first, dtype=np.int64)
        fits = (counts[layout.source] * counts[layout.target]).sum() <= pairs
        low, high = (middle + 1, high) if fits else (low, middle)
    return flags | (marginal <= levels[low - 1]) if low else flags


@dataclass(frozen=True, slots=True, eq=False)
class CutTask:
    """A problem to find implied limits for: a call of it may be sent to another process.

    own: how many of its moments are the usage limit's own, of which roundings are taken; moments: limited from the
    start; cost: what a good choice costs; timed: whether a clock may end a program.
    """

    problem: Problem
    own: int
    moments: Sequence[int]
    cost: int
    gap: float
    timed: bool

    def __call__(self) -> Cuts:
        """Solve and cut until that gains no more."""
        cutting, idle, work = Cutting(self), 0, 0.0
        cutting.limit_at(self.moments)
        for _ in range(ROUNDS):
            before = cutting.cost
            more = cutting.round()
            work += PAIR_WORK * cutting.pairs
            left = self.cost - cutting.cost
            gained = cutting.cost - before >= SLOW * min(left, FAR * cutting.cost)
            idle = 0 if gained or not cutting.settled else idle + 1
            if not more or idle >= PATIENCE or left <= self.gap * cutting.cost:
                break
        return Cuts(*cutting.roundings(), work)


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """Roundings that are worth something and their prices, the prices of the problem's own moments, the work."""

    roundings: dict[Rounding, float]
    prices: dict[int, float]
    work: float


class Cutting:
    """A linear program and the limits it has got."""

    def __init__(self, task: CutTask) -> None:
        self._problem, self._own = task.problem, task.own
        self._unit, self._seconds = max(task.cost / 1e6, 1e-6), SECONDS if task.timed else None
        self._polytope = LocalPolytope(task.problem, self._unit)
        self._linear, self._first = self._polytope.linear(), task.problem.layout.moments
        self._roundings, self._prices = list[Rounding](), dict[int, float]()
        self.settled = False
        self.cost, self.pairs, self.point = 0.0, self._polytope.pairs, np.zeros(task.problem.layout.cost.size)

    def limit_at(self, moments: Iterable[int]) -> None:
        """Limit these moments from the start."""
        self._polytope.limit_at(moments)

    def round(self) -> bool:
        """Solve, and add what the optimum breaks; was there anything?"""
        vertex = self._linear.solve(self._seconds)
        if vertex is None:
            return False
        self._prices, self.cost = self._polytope.prices(vertex.slopes), vertex.cost * self._unit
        self.point = vertex.values[: self._problem.layout.cost.size]
        self.settled = not self._add_moments(self.point)
        return not self.settled or self._add_roundings(self.point)

    def roundings(self) -> tuple[dict[Rounding, float], dict[int, float]]:
        """Those that are worth something and their prices, and the prices of the moments known before."""
        own = {moment: price for moment, price in self._prices.items() if moment < self._first}
        further = {t - self._first: price for t, price in self._prices.items() if t >= self._first}
        return {self._roundings[k]: price for k, price in further.items()}, own

    def _add_moments(self, point: Floats) -> bool:
        limit = self._problem.limit or 0
        over = expected_usage(self._problem.layout, point) - limit * (1 + TOLERANCE)
        over[self._polytope.moments] = 0
        worst = np.argsort(-over, kind="stable")[:PEAKS]
        new = worst[over[worst] > 0].tolist()
        self._polytope.limit_at(new)
        return bool(new)

    def _add_roundings(self, point: Floats) -> bool:
        moments = self._problem.layout.moments
        found = violated(self._problem, point, CUTS, self._own)
        self._problem, places = strengthened(self._problem, found)
        self._roundings += [rounding for rounding, place in zip(found, places, strict=True) if place >= 0]
        self._polytope.extend(self._problem)
        self._polytope.limit_at(range(moments, self._problem.layout.moments))
        return self._problem.layout.moments > moments
