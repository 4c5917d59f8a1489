"""The minimum feasible limit: the peak usage itself, minimised and bounded from below.

For weights w_t >= 0 on the time steps with a sum of at most one, the peak of every assignment is at least
sum_t w_t usage_t, whose minimum message passing bounds in integers as it bounds costs. The assignments found so far are
the rows of a matrix game, whose optimal mixed strategy over time steps gives the next weights (cutting planes: Kelley,
1960). They are drawn halfway to the best weights so far, because the optimum of few rows is unstable (Neame, "Nonsmooth
dual methods in integer programming", 2000). Uniform weights come first: they show where memory is scarce at all, and
their assignment is usually near the best.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import find_peaks, usage_profile
from solvers.linear_model import maximize_lowest
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint, LagrangianCosts
from solvers.solve_state import SolveState, pass_work
from solvers.trws import TrwsMessages

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# The sum of the weights stays this much below one, so that floating-point errors cannot carry it above.
MAX_WEIGHT_SUM = 1 - 1e-9
# The share of the best weights in the next ones; weights below MIN_SHARE of the mean are dropped; the search ends where
# the game's value is within TOLERANCE (relative) of the bound.
DAMPING, MIN_SHARE, TOLERANCE = 0.5, 1e-6, 1e-4
# Only an assignment's time steps above this share of its peak become columns of the game; the most rows of the game.
PEAK_SHARE, MAX_PROFILES = 0.5, 400


class MinPeakDual:
    """Improves the state's min_peak (of assignments without anything forbidden) and min_feasible_limit_bound."""

    def __init__(self, state: SolveState) -> None:
        self._state, arrays = state, state.problem.arrays
        graph = OrientedGraph.of(arrays)
        # "Costs" are bytes here. A small problem has room for every possible sum; in a large one the peak is enough.
        largest = arrays.largest_usage() if arrays.cost.size < 1000 else 0
        scale = FixedPoint.of(graph.degree, max(largest, state.min_peak or 0, 1))
        self._lagrangian = LagrangianCosts(graph, scale, costs_count=False)
        self._messages = TrwsMessages(graph)
        self._profiles: dict[bytes, Integers] = {}
        self._work = 2 * pass_work(arrays)

    def run(self, evaluations: int, rounds: int = 4) -> None:
        """Try at most `evaluations` weights with `rounds` message rounds each.

        Stops early where the minimum peak is known exactly or a feasible assignment is found.
        """
        state, time_steps = self._state, self._state.problem.arrays.time_steps
        weights = best = np.full(time_steps, MAX_WEIGHT_SUM / max(time_steps, 1))
        if not time_steps:
            return
        for _ in range(evaluations):
            before = state.min_feasible_limit_bound
            self._evaluate(weights, rounds)
            if self._is_done() or not self._profiles:
                return
            best = weights if state.min_feasible_limit_bound > before else best
            optimal, value = self._solve_matrix_game()
            if value - state.min_feasible_limit_bound <= TOLERANCE * value:
                return
            weights = DAMPING * best + (1 - DAMPING) * optimal

    def _is_done(self) -> bool:
        state = self._state
        is_exact = state.min_peak is not None and state.min_feasible_limit_bound >= state.min_peak
        return is_exact or state.cost is not None or state.is_stopped

    def _evaluate(self, weights: Floats, rounds: int) -> None:
        state = self._state
        used = np.flatnonzero(weights > MIN_SHARE / weights.size)
        potentials = self._lagrangian.with_multipliers(dict(zip(used.tolist(), weights[used].tolist(), strict=True)))
        for _ in range(rounds):
            for forward in (True, False):
                state.raise_min_peak_bound(potentials.bound(self._messages.sweep(potentials, forward)))
            state.charge(self._work)
            if self._is_done():
                return
        self._add_assignment(self._messages.run_icm(potentials, self._messages.decode(potentials)))

    def _add_assignment(self, assignment: Integers) -> None:
        if self._state.submit(assignment).allowed and len(self._profiles) < MAX_PROFILES:
            self._profiles[assignment.tobytes()] = usage_profile(self._state.problem, assignment)

    def _solve_matrix_game(self) -> tuple[Floats, float]:
        """Return the weights [time steps] at which the least weighted usage of the known assignments is highest, and
        that usage in bytes (infinite where the linear program is not solved)."""
        profiles = np.array(list(self._profiles.values()), np.float64)
        top = max(float(profiles.max()), 1.0)
        time_steps = sorted(
            {t for row in profiles for t in find_peaks((row - PEAK_SHARE * row.max()).astype(np.int64))}
        )
        weights = np.zeros(profiles.shape[1])
        slopes, ones = profiles[:, time_steps] / top, np.ones(len(time_steps))
        best = maximize_lowest(np.zeros(len(profiles)), slopes, ones, most=1.0)
        if best is None:
            return weights, float("inf")
        weights[time_steps] = np.maximum(best[0], 0.0)
        return weights * (MAX_WEIGHT_SUM / max(float(weights.sum()), 1.0)), best[1] * top
