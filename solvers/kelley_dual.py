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
from solvers.linear_model import LinearModel
from solvers.model import IMPOSSIBLE
from solvers.problem import Problem
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState

Integers = NDArray[np.int64]

STALL = 1e-5
MAX_INITIAL_PLANES = 40
# Most halvings of the way to the next prices.
MAX_HALVINGS = 4
# No price is higher than so many times all costs for the whole limit: messages are cut where all is that dear.
MAX_MULTIPLIER_RATIO = 10
# The search ends when so many evaluations gain less than this share of the gap asked for.
PATIENCE, MIN_GAIN = 8, 0.01


class KelleyModel:
    """Choices as planes over the prices: cost + sum_t price_t (usage_t - limit)."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._seen: set[bytes] = set()
        self.costs: list[float] = []
        self.profiles: list[Integers] = []

    def add(self, assignment: Integers, cost: int) -> None:
        """One more choice (nothing forbidden in it)."""
        key = assignment.tobytes()
        if key not in self._seen and cost < IMPOSSIBLE:
            self._seen.add(key)
            self.costs.append(float(cost))
            self.profiles.append(usage_profile(self._problem, assignment))

    def maximize(self, time_steps: list[int], limit: int, upper_cutoff: float) -> tuple[dict[int, float], float]:
        """The prices from 0 to the ceiling at which the least plane is highest, and its height."""
        over = np.array([profile[time_steps] for profile in self.profiles], np.float64) - limit
        unit, size = max(max(self.costs), 1.0), np.maximum(np.abs(over).max(axis=0), 1.0)
        program = LinearModel()
        height = program.add_columns(np.array([-1.0]), np.inf, lower=-np.inf)
        multipliers = [program.add_columns(np.zeros(1), upper_cutoff * s / unit) for s in size]
        rows = program.add_rows(np.full(len(self.costs), -np.inf), np.array(self.costs) / unit)
        program.add_entries(rows, np.repeat(height, rows.size), np.ones(rows.size))
        for t, multiplier in enumerate(multipliers):
            program.add_entries(rows, np.repeat(multiplier, rows.size), -over[:, t] / size[t])
        values = program.solve(integral=False).values
        if values is None:
            return dict.fromkeys(time_steps, 0.0), float("inf")
        return dict(zip(time_steps, (values[1:] * unit / size).tolist(), strict=True)), float(values[0] * unit)


class KelleyDual:
    """Looks for the prices of one relaxation at which its bound is highest."""

    def __init__(self, state: SolveState, relaxation: Relaxation, limit: int) -> None:
        """Starts with what the choices known so far tell."""
        self._ledger, self._relaxation, self._limit = state, relaxation, limit
        self._planes = KelleyModel(relaxation.model.restriction.problem)
        self._time_steps = [moment for moment, price in relaxation.multipliers.items() if price > 0]
        for assignment, cost in relaxation.possible_choices(MAX_INITIAL_PLANES):
            self._planes.add(assignment, cost)

    def run(self, assignment: Integers, evaluations: int, rounds: int) -> None:
        """From a choice, in so many evaluations; leaves the relaxation at the best prices found."""
        relaxation, state = self._relaxation, self._ledger
        best, best_prices = relaxation.bound, relaxation.multipliers
        self._add_choice(assignment)
        if not self._planes.costs or not self._time_steps:
            return
        upper_cutoff = 2 * max(best_prices.values(), default=0.0) or self._initial_box()
        history, leaps = list[int](), 0
        for _ in range(evaluations):
            multipliers, height = self._planes.maximize(self._time_steps, self._limit, upper_cutoff)
            if max(multipliers.values()) >= 0.99 * upper_cutoff:
                upper_cutoff = min(4 * upper_cutoff, MAX_MULTIPLIER_RATIO * state.largest_cost / max(self._limit, 1))
            if state.is_exhausted:
                break
            if height - best <= 0.3 * state.target_gap * height:
                # At these moments there is no more to gain: only the planes' overfilling at others can raise the bound.
                if self._track_more_steps(multipliers, height):
                    continue
                break
            multipliers = _damp_multipliers(multipliers, best_prices, leaps)
            relaxation.set_multipliers(multipliers)
            found = relaxation.pass_messages(rounds, STALL)
            leaps += 1
            if relaxation.bound > best:
                best, best_prices, leaps = relaxation.bound, multipliers, 0
            if best_prices is multipliers or history:  # the first planes tell little
                history.append(best)
            slow = len(history) > PATIENCE and best - history[-PATIENCE] <= MIN_GAIN * state.target_gap * best
            if found is None or slow:
                break
            self._add_choice(found)
        relaxation.set_multipliers(best_prices)
        relaxation.bound = best

    def _add_choice(self, assignment: Integers) -> None:
        problem = self._relaxation.model.restriction.problem
        lifted = self._relaxation.model.restriction.postsolve(assignment)
        self._planes.add(assignment, self._ledger.submit(lifted).cost)
        self._track_worst_step(usage_profile(problem, assignment))

    def _track_worst_step(self, profile: Integers) -> bool:
        """Price the moment that the profile overfills most, of those not priced yet; is there one?"""
        over = profile - self._limit
        over[self._time_steps] = 0
        overfilled = bool(over.max(initial=0) > 0)
        if overfilled:
            self._time_steps.append(int(over.argmax()))
        return overfilled

    def _track_more_steps(self, multipliers: dict[int, float], height: float) -> bool:
        near = height + self._ledger.target_gap * abs(height)
        time_steps, rates = list(multipliers), np.array(list(multipliers.values()))
        found = False
        for cost, profile in zip(self._planes.costs, self._planes.profiles, strict=True):
            if cost + float(rates @ (profile[time_steps] - self._limit)) <= near:
                found |= self._track_worst_step(profile)
        return found

    def _initial_box(self) -> float:
        over = max(1, self._limit // 1000, int(self._planes.profiles[-1][self._time_steps].max()) - self._limit)
        return 0.2 * max(self._planes.costs[-1], 1.0) / over


def _damp_multipliers(multipliers: Mapping[int, float], best: Mapping[int, float], leaps: int) -> dict[int, float]:
    """The answer to few planes leaps: it is drawn halfway to the best prices for each that gained nothing."""
    share = 0.5 ** min(leaps, MAX_HALVINGS)
    return {t: share * multipliers.get(t, 0.0) + (1 - share) * best.get(t, 0.0) for t in {**multipliers, **best}}


def exceeds_limit(problem: Problem, assignment: Integers, limit: int) -> bool:
    """Does the choice break the limit anywhere?"""
    return bool((usage_profile(problem, assignment) > limit).any())
