"""The Lagrangian: prices on the moments that a choice overfills, found as they appear.

For prices p >= 0 the dual f(p) = min_x cost(x) + sum_t p_t (usage_t(x) - limit) bounds the cost from below, and every
choice x bounds f from above by a plane in p (Kelley, 1960). The planes' maximum under a ceiling on the prices
gives the next prices; message passing there, starting from the last messages, gives a bound and further choices.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import usage_profile
from solvers.ledger import Ledger
from solvers.parts import IMPOSSIBLE
from solvers.problem import Problem
from solvers.program import Program
from solvers.relaxation import Relaxation

Integers = NDArray[np.int64]

PRICE_STALL = 1e-5
KNOWN = 40
# Most halvings of the way to the next prices.
LEAPS = 4
# No price is higher than so many times all costs for the whole limit: messages are cut where all is that dear.
DEAREST = 10
# The search ends when so many evaluations gain less than this share of the gap asked for.
SLOW, SLOW_GAIN = 8, 0.01


class Planes:
    """Choices as planes over the prices: cost + sum_t price_t (usage_t - limit)."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._seen: set[bytes] = set()
        self.costs: list[float] = []
        self.profiles: list[Integers] = []

    def add(self, choice: Integers, cost: int) -> None:
        """One more choice (nothing forbidden in it)."""
        key = choice.tobytes()
        if key not in self._seen and cost < IMPOSSIBLE:
            self._seen.add(key)
            self.costs.append(float(cost))
            self.profiles.append(usage_profile(self._problem, choice))

    def highest(self, moments: list[int], limit: int, ceiling: float) -> tuple[dict[int, float], float]:
        """The prices from 0 to the ceiling at which the least plane is highest, and its height."""
        over = np.array([profile[moments] for profile in self.profiles], np.float64) - limit
        unit, size = max(max(self.costs), 1.0), np.maximum(np.abs(over).max(axis=0), 1.0)
        program = Program()
        height = program.add_columns(np.array([-1.0]), np.inf, lower=-np.inf)
        prices = [program.add_columns(np.zeros(1), ceiling * s / unit) for s in size]
        rows = program.add_rows(np.full(len(self.costs), -np.inf), np.array(self.costs) / unit)
        program.add_entries(rows, np.repeat(height, rows.size), np.ones(rows.size))
        for t, price in enumerate(prices):
            program.add_entries(rows, np.repeat(price, rows.size), -over[:, t] / size[t])
        values = program.solve(integral=False).values
        if values is None:
            return dict.fromkeys(moments, 0.0), float("inf")
        return dict(zip(moments, (values[1:] * unit / size).tolist(), strict=True)), float(values[0] * unit)


class PriceSearch:
    """Looks for the prices of one relaxation at which its bound is highest."""

    def __init__(self, ledger: Ledger, relaxation: Relaxation, limit: int) -> None:
        """Starts with what the choices known so far tell."""
        self._ledger, self._relaxation, self._limit = ledger, relaxation, limit
        self._planes = Planes(relaxation.field.restricted.problem)
        self._moments = [moment for moment, price in relaxation.prices.items() if price > 0]
        for choice, cost in relaxation.known(KNOWN):
            self._planes.add(choice, cost)

    def run(self, choice: Integers, evaluations: int, rounds: int) -> None:
        """From a choice, in so many evaluations; leaves the relaxation at the best prices found."""
        relaxation, ledger = self._relaxation, self._ledger
        best, best_prices = relaxation.bound, relaxation.prices
        self._learn(choice)
        if not self._planes.costs or not self._moments:
            return
        ceiling = 2 * max(best_prices.values(), default=0.0) or self._first_ceiling()
        history, leaps = list[int](), 0
        for _ in range(evaluations):
            prices, height = self._planes.highest(self._moments, self._limit, ceiling)
            if max(prices.values()) >= 0.99 * ceiling:
                ceiling = min(4 * ceiling, DEAREST * ledger.largest_cost / max(self._limit, 1))
            if ledger.exhausted:
                break
            if height - best <= 0.3 * ledger.gap_asked * height:
                # At these moments there is no more to gain: only the planes' overfilling at others can raise the bound.
                if self._more_moments(prices, height):
                    continue
                break
            prices = _drawn(prices, best_prices, leaps)
            relaxation.at(prices)
            found = relaxation.tighten(rounds, PRICE_STALL)
            leaps += 1
            if relaxation.bound > best:
                best, best_prices, leaps = relaxation.bound, prices, 0
            if best_prices is prices or history:  # the first planes tell little
                history.append(best)
            slow = len(history) > SLOW and best - history[-SLOW] <= SLOW_GAIN * ledger.gap_asked * best
            if found is None or slow:
                break
            self._learn(found)
        relaxation.at(best_prices)
        relaxation.bound = best

    def _learn(self, choice: Integers) -> None:
        problem = self._relaxation.field.restricted.problem
        lifted = self._relaxation.field.restricted.lift(choice)
        self._planes.add(choice, self._ledger.offer(lifted).cost)
        self._watch(usage_profile(problem, choice))

    def _watch(self, profile: Integers) -> bool:
        """Price the moment that the profile overfills most, of those not priced yet; is there one?"""
        over = profile - self._limit
        over[self._moments] = 0
        overfilled = bool(over.max(initial=0) > 0)
        if overfilled:
            self._moments.append(int(over.argmax()))
        return overfilled

    def _more_moments(self, prices: dict[int, float], height: float) -> bool:
        near = height + self._ledger.gap_asked * abs(height)
        moments, rates = list(prices), np.array(list(prices.values()))
        found = False
        for cost, profile in zip(self._planes.costs, self._planes.profiles, strict=True):
            if cost + float(rates @ (profile[moments] - self._limit)) <= near:
                found |= self._watch(profile)
        return found

    def _first_ceiling(self) -> float:
        over = max(1, self._limit // 1000, int(self._planes.profiles[-1][self._moments].max()) - self._limit)
        return 0.2 * max(self._planes.costs[-1], 1.0) / over


def _drawn(prices: Mapping[int, float], best: Mapping[int, float], leaps: int) -> dict[int, float]:
    """The answer to few planes leaps: it is drawn halfway to the best prices for each that gained nothing."""
    share = 0.5 ** min(leaps, LEAPS)
    return {t: share * prices.get(t, 0.0) + (1 - share) * best.get(t, 0.0) for t in {**prices, **best}}


def overfills(problem: Problem, choice: Integers, limit: int) -> bool:
    """Does the choice break the limit anywhere?"""
    return bool((usage_profile(problem, choice) > limit).any())
