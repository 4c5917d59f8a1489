"""Column generation: a linear program of few strategies gives prices, messages over all of them say which it lacks.

Whole choices teach slowly what many equal layers may do (solvers/bound.py): each is one plane, though its layers could
be combined in any way. The linear program of their strategies combines them: the local polytope, limited at the
moments that its optimum overfills. The slopes of those rows are prices. Messages at these prices bound the cost in
integers, over all strategies; and what they find cheapest joins (Dantzig and Wolfe, "Decomposition principle for
linear programs", 1960, with messages for the subproblem): strategies of least marginal, and the choices nearest to the
bound. What the last optimum takes stays.

Where program and messages meet, few nodes take parts of several strategies. The mixed-integer program of what the
optimum takes is small then, and its answer near to the bound. Where it is not, though messages prove nearly what the
program costs, the program itself is too weak: it packs parts of strategies under the limit. Limits that the limit
implies (solvers/cutting.py) become further moments then, which program and messages keep from there on; strategies that
evade them join as any others do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.cutting import cut, likely
from solvers.ilp import LocalPolytope, peaks
from solvers.ledger import Ledger
from solvers.narrow import solved
from solvers.problem import Problem
from solvers.relaxation import Relaxation

Mask = NDArray[np.bool_]

# Programs at most; pairs of one, for each edge of the problem; rounds of messages at its prices.
PROGRAMS, PAIRS, ROUNDS = 30, 4, 32
# A change of less than this share of the gap is none, and so many programs without one end it.
GAIN, PATIENCE = 0.02, 3
# Where messages bound all but this share of the gap of what the program costs, the rest is left to cuts; that is asked
# after so many more rounds, which end where one gains less than this share of the gap.
CLOSE, LONG, SLOW = 0.25, 200, 1e-3
# A round of messages that gains less than this share of the gap asked for ends them.
STALL = 1e-3
# A program with integers: the share of the clock's time left that it is given, its nodes.
SHARE, NODES = 0.5, 20
# More than this of a strategy is some; what breaks a limit by this share of it breaks it.
SOME, TOLERANCE = 1e-6, 1e-7
# Work of a pair in one program; seconds of wall clock of one.
PAIR_WORK, SECONDS = 6e4, 20.0


@dataclass(frozen=True, slots=True, eq=False)
class LinearTask:
    """A problem's linear program, limited at these moments: a call of it may be sent to another process.

    cost: what a good choice costs; timed: whether a clock may end it.
    """

    problem: Problem
    moments: Sequence[int]
    cost: int
    timed: bool

    def __call__(self) -> Optimum | None:
        """The optimum, if there is one and it is found in time."""
        unit, limit = max(self.cost / 1e6, 1e-6), self.problem.limit or 0
        polytope = LocalPolytope(self.problem, unit)
        polytope.limit_at(self.moments)
        vertex = polytope.linear().solve(SECONDS if self.timed else None)
        if vertex is None:
            return None
        over = np.floor(polytope.usage(vertex.values) - limit * (1 + TOLERANCE)).astype(np.int64)
        over[list(self.moments)] = 0
        taken = vertex.values[: self.problem.layout.cost.size] > SOME
        return Optimum(vertex.cost * unit, polytope.prices(vertex.slopes), taken, peaks(over), polytope.pairs)


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """Of a linear program: its cost, prices, flags of the strategies it takes some of, moments it overfills, pairs."""

    cost: float
    prices: dict[int, float]
    taken: Mask
    overfilled: list[int]
    pairs: int


class Columns:
    """The strategies in play: those of the last program (flat flags of the relaxation's), those its optimum took."""

    def __init__(self, ledger: Ledger, relaxation: Relaxation, seed: int) -> None:
        self._ledger, self._relaxation, self._seed = ledger, relaxation, seed
        self._pairs = PAIRS * relaxation.field.layout.source.size
        self._flags = self._taken = np.zeros(relaxation.allowed.size, bool)
        self._moments = list(relaxation.prices)
        self._settled = -np.inf

    def run(self) -> tuple[Relaxation, dict[int, float]]:
        """Programs and messages in turn until neither gains; the relaxation (or what is left of it) at the best
        prices, and the best prices without cuts."""
        ledger, best, best_prices = self._ledger, self._relaxation.bound, self._relaxation.prices
        uncut = best_prices
        last, idle = np.inf, 0
        for _ in range(PROGRAMS):
            optimum = self._optimum()
            if optimum is None or ledger.exhausted:
                break
            cost = ledger.cost or ledger.largest_cost
            some, moved = GAIN * (cost - best), abs(last - optimum.cost)
            self._priced(optimum.prices)
            if self._relaxation.bound > best and not self._relaxation.cut:
                uncut = optimum.prices
            if moved <= some or optimum.cost - best <= ledger.gap_asked / 2 * cost:
                self._settle(optimum.cost)
            bound = self._relaxation.bound
            gained = max(bound - best, moved, cost - (ledger.cost or cost))
            last, idle = optimum.cost, 0 if gained > some else idle + 1
            if bound > best:
                best, best_prices = bound, self._relaxation.prices
            if ledger.exhausted or idle >= PATIENCE:
                break
        self._relaxation.at(best_prices)
        self._relaxation.bound = best
        return self._relaxation, uncut

    def _priced(self, prices: dict[int, float]) -> None:
        """Messages at these prices."""
        self._relaxation.at(prices)
        self._relaxation.tighten(ROUNDS, STALL * self._ledger.gap_asked)

    def _optimum(self) -> Optimum | None:
        """Of the program of what seems cheapest at the present prices."""
        ledger, relaxation, field = self._ledger, self._relaxation, self._relaxation.field
        marginal = relaxation.marginal()
        near, _ = relaxation.nearest(self._pairs // 2)
        self._flags = likely(field.layout, marginal, self._taken | near | relaxation.best(), self._pairs)
        cost, timed = ledger.cost or ledger.largest_cost, ledger.seconds_left is not None
        narrow = field.restricted.narrowed(self._flags)
        optimum = ledger.beside(LinearTask(narrow.problem, self._moments, cost, timed))
        if optimum is None and timed:
            ledger.stopped_by_clock()
        if optimum is not None:
            ledger.spend(PAIR_WORK * (1000 + optimum.pairs))
            self._moments += optimum.overfilled
            self._taken = np.zeros(self._flags.size, bool)
            self._taken[self._flags] = optimum.taken
        return optimum

    def _settle(self, cost: float) -> None:
        """Choose among what the optimum takes. If that is not near enough, cut, as often as that gains and where
        messages bound nearly what the program costs; else choose among all that it might take."""
        gained, self._settled = cost - self._settled, cost
        if gained == np.inf or gained <= GAIN * self._open:
            self._choose(self._taken)
        if not self._near(cost):
            if gained > GAIN * self._open and self._bounded(cost):
                self._relaxation = cut(self._ledger, self._relaxation, self._flags, self._moments)
                self._moments = list(dict.fromkeys([*self._moments, *self._relaxation.prices]))
            else:
                self._choose(self._flags)
                self._settled = -np.inf
                self._pairs *= 2
        self._drop()

    @property
    def _open(self) -> int:
        """What is not proven of the best choice's cost."""
        return (self._ledger.cost or self._ledger.largest_cost) - self._relaxation.bound

    def _bounded(self, cost: float) -> bool:
        """Do messages, given time, bound nearly what the program costs?"""
        self._relaxation.tighten(LONG, SLOW * self._open / max(self._relaxation.bound, 1))
        return cost - self._relaxation.bound <= CLOSE * self._open

    def _near(self, cost: float) -> bool:
        """Is the best choice known as near to the program's cost as is asked?"""
        ledger = self._ledger
        return ledger.exhausted or (ledger.cost is not None and ledger.cost - cost <= ledger.gap_asked / 2 * cost)

    def _choose(self, flags: Mask) -> None:
        """Offer the best choice among these strategies and those of the best one known."""
        relaxation, gap = self._relaxation, self._ledger.gap_asked
        narrow = relaxation.field.restricted.narrowed(flags | relaxation.best())
        solved(self._ledger, narrow, self._moments, SHARE, NODES, gap / 4, self._seed)

    def _drop(self) -> None:
        """Go on without what the best choice excludes."""
        self._relaxation.tighten(1, 0.0)
        if not self._relaxation.done and self._relaxation.sparse:
            self._taken = self._taken[self._relaxation.allowed]
            self._relaxation = self._relaxation.shrunk()
