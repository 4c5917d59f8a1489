"""Cuts: limits implied by the limit, where the linear bound is weak because it packs parts of strategies.

The linear program of the strategies that a good choice may take is solved again and again; what its optimum breaks
is added: limits at moments, and where it keeps those, roundings of them (solvers/rounding.py). Its slopes are
prices, and message passing at these prices over all strategies, not only those of the program, bounds in
integers what the program says in floating point. So neither the program's strategies nor its arithmetic matter for
the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from solvers.awaiting import awaited
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


def cut(ledger: Ledger, relaxation: Relaxation, pairs: int) -> Relaxation:
    """The relaxation under the limits that a program of at most so many pairs finds, at its prices, tightened."""
    own, marginal = relaxation.field.restricted.problem, relaxation.marginal()
    best = None if ledger.choice is None else relaxation.field.restricted.lower(ledger.choice)
    flags = likely(own.layout, np.where(relaxation.allowed, marginal, np.iinfo(np.int64).max), best, pairs)
    problem, prices, _ = limits(ledger, own, flags, relaxation.prices)
    stronger = relaxation.under(problem, prices)
    stronger.tighten(TIGHTEN, STALL)
    return stronger


def limits(
    ledger: Ledger, problem: Problem, flags: Mask, moments: Iterable[int], stopped: Callable[[], bool] = lambda: False
) -> tuple[Problem, dict[int, float], Mask]:
    """The problem under the implied limits that a program of these strategies finds, its prices, and flags of the
    strategies in its optimum. moments: limited from the start."""
    narrow = Restricted.nothing(problem).narrowed(flags).problem
    cutting = Cutting(ledger, narrow, max((ledger.cost or ledger.largest_cost) / 1e6, 1e-6), stopped)
    cutting.limit_at(moments)
    _run(ledger, cutting)
    found, prices = cutting.roundings()
    stronger, places = strengthened(problem, list(found))
    prices |= {place: price for place, price in zip(places, found.values(), strict=True) if place >= 0}
    taken = np.zeros(flags.size, bool)
    taken[np.flatnonzero(flags)[cutting.point > 0]] = True
    return stronger, prices, taken


def likely(layout: Layout, marginal: Integers, best: Integers | None, pairs: int) -> Mask:
    """Flags of the strategies that choices near to the bound may take: those of the best choice and each node's least
    marginals, as many as keep the number of pairs on edges at most so large."""
    first = layout.node_start[:-1]
    flags: Mask = marginal == np.repeat(np.minimum.reduceat(marginal, first), np.diff(layout.node_start))
    if best is not None:
        flags[first + best] = True
    levels = np.unique(marginal[marginal < np.iinfo(np.int64).max])
    low, high = 0, levels.size
    while low < high:
        middle = (low + high) // 2
        counts = np.add.reduceat(flags | (marginal <= levels[middle]), first, dtype=np.int64)
        fits = (counts[layout.source] * counts[layout.target]).sum() <= pairs
        low, high = (middle + 1, high) if fits else (low, middle)
    return flags | (marginal <= levels[low - 1]) if low else flags


def _run(ledger: Ledger, cutting: Cutting) -> None:
    """Until it gains no more."""
    idle = 0
    for _ in range(ROUNDS):
        before = cutting.cost
        more = cutting.round()
        ledger.spend(PAIR_WORK * cutting.pairs)
        left = (ledger.cost or ledger.largest_cost) - cutting.cost
        gained = cutting.cost - before >= SLOW * min(left, FAR * cutting.cost)
        idle = 0 if gained or not cutting.settled else idle + 1
        if not more or ledger.exhausted or idle >= PATIENCE or left <= ledger.gap_asked * cutting.cost:
            break


class Cutting:
    """A linear program and the limits it has got."""

    def __init__(self, ledger: Ledger, problem: Problem, unit: float, stopped: Callable[[], bool]) -> None:
        """unit: see LocalPolytope; stopped: a further reason not to wait for a program."""
        self._ledger, self._problem, self._stopped = ledger, problem, stopped
        self._polytope, self._unit = LocalPolytope(problem, unit), unit
        self._linear, self._first = self._polytope.linear(), problem.layout.moments
        self._roundings, self._prices = list[Rounding](), dict[int, float]()
        self.settled = False
        self.cost, self.pairs, self.point = 0.0, self._polytope.pairs, np.zeros(problem.layout.cost.size)

    def limit_at(self, moments: Iterable[int]) -> None:
        """Limit these moments from the start."""
        self._polytope.limit_at(moments)

    def round(self) -> bool:
        """Solve, and add what the optimum breaks; was there anything?"""
        left = None if self._ledger.seconds_left is None else min(self._ledger.seconds_left, SECONDS)
        vertex = awaited(lambda: self._linear.solve(left), self._unwanted)
        if vertex is None:
            return False
        self._prices, self.cost = self._polytope.prices(vertex.slopes), vertex.cost * self._unit
        self.point = vertex.values[: self._problem.layout.cost.size]
        self.settled = not self._add_moments(self.point)
        return not self.settled or self._add_roundings(self.point)

    def roundings(self) -> tuple[dict[Rounding, float], dict[int, float]]:
        """Those that are worth something and their prices, and the prices of the problem's own moments."""
        own = {moment: price for moment, price in self._prices.items() if moment < self._first}
        further = {t - self._first: price for t, price in self._prices.items() if t >= self._first}
        return {self._roundings[k]: price for k, price in further.items()}, own

    def _unwanted(self) -> bool:
        return self._stopped() or self._ledger.exhausted

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
        found = violated(self._problem, point, CUTS, self._ledger.problem.layout.moments)
        self._problem, places = strengthened(self._problem, found)
        self._roundings += [rounding for rounding, place in zip(found, places, strict=True) if place >= 0]
        self._polytope.extend(self._problem)
        self._polytope.limit_at(range(moments, self._problem.layout.moments))
        return self._problem.layout.moments > moments
