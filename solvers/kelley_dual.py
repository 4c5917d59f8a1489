"""The Lagrangian dual by cutting planes, with multipliers on the time steps that overload, added as they appear.

For multipliers p >= 0, f(p) = min_x cost(x) + sum_t p_t (usage_t(x) - limit) bounds the cost from below and is concave;
every assignment x bounds f from above by a plane in p (J. E. Kelley, "The cutting-plane method for solving convex
programs", 1960). The maximum of the planes' minimum, within a box, gives the next multipliers; message passing there,
from the last messages on, gives a bound and further assignments.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import usage_profile
from solvers.linear_model import maximize_lowest
from solvers.problem import Problem
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState

Integers = NDArray[np.int64]

# Message passing stops where a round gains less than this share of the bound.
STALL = 1e-5
# Elites whose planes are there from the start.
MAX_INITIAL_PLANES = 40
# Most halvings of the step from the best multipliers to the next.
MAX_HALVINGS = 4
# Multipliers stay below this times the largest cost per limit: beyond it, potentials would be cut at their cap.
MAX_MULTIPLIER_RATIO = 10
# The ascent ends when so many evaluations gain less than this share of the target gap.
PATIENCE, MIN_GAIN = 8, 0.01


class KelleyModel:
    """Assignments as planes over the multipliers p: cost + sum_t p_t (usage_t - limit)."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._seen: set[bytes] = set()
        self.costs: list[float] = []
        self.profiles: list[Integers] = []

    def add(self, assignment: Integers, cost: int) -> None:
        """Add the plane of an assignment of this cost that contains nothing forbidden, unless it is known."""
        key = assignment.tobytes()
        if key not in self._seen:
            self._seen.add(key)
            self.costs.append(float(cost))
            self.profiles.append(usage_profile(self._problem, assignment))

    def maximize(self, time_steps: list[int], limit: int, box: float) -> tuple[dict[int, float], float]:
        """Return the multipliers in [0, upper_cutoff] at which the lowest plane is highest, and its height there.

        time_steps: those that have a multiplier. The height is infinite where the linear program is not solved.
        """
        # Costs and overloads are scaled to about 1: in cost units and bytes they are too large for GLOP's tolerances.
        over = np.array([profile[time_steps] for profile in self.profiles], np.float64) - limit
        unit, size = max(max(self.costs), 1.0), np.maximum(np.abs(over).max(axis=0), 1.0)
        best = maximize_lowest(np.array(self.costs) / unit, over / size, box * size / unit)
        if best is None:
            return dict.fromkeys(time_steps, 0.0), float("inf")
        return dict(zip(time_steps, (best[0] * unit / size).tolist(), strict=True)), best[1] * unit


class KelleyDual:
    """Searches for the multipliers at which the bound of one relaxation is highest."""

    def __init__(self, state: SolveState, relaxation: Relaxation, limit: int) -> None:
        """Start with the planes of the elites and the time steps whose multiplier is positive; limit in bytes."""
        self._state, self._relaxation, self._limit = state, relaxation, limit
        self._planes = KelleyModel(relaxation.model.restriction.problem)
        self._time_steps = [t for t, multiplier in relaxation.multipliers.items() if multiplier > 0]
        for assignment, cost in relaxation.possible_elites(MAX_INITIAL_PLANES):
            self._planes.add(assignment, cost)

    def run(self, assignment: Integers, evaluations: int, rounds: int) -> None:
        """Ascend for at most `evaluations` evaluations of at most `rounds` message rounds each.

        assignment: one more plane to start with. Leaves the relaxation at the best multipliers found.
        """
        relaxation, state = self._relaxation, self._state
        best, best_multipliers = relaxation.bound, relaxation.multipliers
        self._add_assignment(assignment)
        if not self._planes.costs or not self._time_steps:
            return
        # Few planes are unbounded above; the box keeps their maximum near what is known, and grows where it binds.
        box = 2 * max(best_multipliers.values(), default=0.0) or self._initial_box()
        history, failures = list[int](), 0
        for _ in range(evaluations):
            multipliers, height = self._planes.maximize(self._time_steps, self._limit, box)
            if max(multipliers.values()) >= 0.99 * box:
                box = min(4 * box, MAX_MULTIPLIER_RATIO * state.largest_cost / max(self._limit, 1))
            if state.is_exhausted:
                break
            if height - best <= 0.3 * state.target_gap * height:
                # The planes prove that these time steps gain no more; only multipliers on others can raise the bound.
                if self._track_more_steps(multipliers, height):
                    continue
                break
            multipliers = _damp_multipliers(multipliers, best_multipliers, failures)
            relaxation.set_multipliers(multipliers)
            decoded = relaxation.pass_messages(rounds, STALL)
            failures += 1
            if relaxation.bound > best:
                best, best_multipliers, failures = relaxation.bound, multipliers, 0
            if best_multipliers is multipliers or history:  # not before the first gain: few planes say little
                history.append(best)
            slow = len(history) > PATIENCE and best - history[-PATIENCE] <= MIN_GAIN * state.target_gap * best
            if decoded is None or slow:
                break
            self._add_assignment(decoded)
        relaxation.set_multipliers(best_multipliers)
        relaxation.bound = best

    def _add_assignment(self, assignment: Integers) -> None:
        restriction = self._relaxation.model.restriction
        original = restriction.postsolve(assignment)
        evaluation = self._state.submit(original)
        if evaluation.allowed:
            self._planes.add(assignment, evaluation.cost)
        self._track_worst_step(usage_profile(restriction.problem, assignment))

    def _track_worst_step(self, profile: Integers) -> bool:
        """Give the most overloaded time step without a multiplier one; return whether there is such a time step."""
        over = profile - self._limit
        over[self._time_steps] = 0
        is_overloaded = bool(over.max(initial=0) > 0)
        if is_overloaded:
            self._time_steps.append(int(over.argmax()))
        return is_overloaded

    def _track_more_steps(self, multipliers: dict[int, float], height: float) -> bool:
        """Track the worst time step of each plane that is (nearly) active at the maximum; return whether any is new."""
        near = height + self._state.target_gap * abs(height)
        time_steps, rates = list(multipliers), np.array(list(multipliers.values()))
        any_new = False
        for cost, profile in zip(self._planes.costs, self._planes.profiles, strict=True):
            if cost + float(rates @ (profile[time_steps] - self._limit)) <= near:
                any_new |= self._track_worst_step(profile)
        return any_new

    def _initial_box(self) -> float:
        """Return a first bound for multipliers: where the last plane's overload costs a fifth of its cost."""
        over = max(1, self._limit // 1000, int(self._planes.profiles[-1][self._time_steps].max()) - self._limit)
        return 0.2 * max(self._planes.costs[-1], 1.0) / over


def _damp_multipliers(multipliers: Mapping[int, float], best: Mapping[int, float], failures: int) -> dict[int, float]:
    """Move the planes' maximum halfway to the best multipliers for each failure (a step without gain) so far: the
    maximum of few planes is far from the dual's."""
    share = 0.5 ** min(failures, MAX_HALVINGS)
    return {t: share * multipliers.get(t, 0.0) + (1 - share) * best.get(t, 0.0) for t in {**multipliers, **best}}
