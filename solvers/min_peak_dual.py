"""The least limit that would be feasible: the peak itself, minimised and bounded from below.

With weights w_t >= 0 on moments that sum to (at most) one, the peak of any choice is at least sum_t w_t usage_t, whose
least value message passing bounds exactly as it bounds costs. The choices found at some weights are a matrix game's
rows, whose best mixed answer gives the next weights (Kelley, 1960), drawn halfway to the best weights so far,
for the answer to few rows leaps (Neame, "Nonsmooth dual methods in integer programming", 2000). All moments alike come
first: they show where room is short at all, and their choice is mostly near to the best.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import usage_profile
from solvers.linear_model import LinearModel
from solvers.mip import find_peaks
from solvers.model import IMPOSSIBLE
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint, LagrangianCosts
from solvers.solve_state import SolveState, pass_work
from solvers.trws import TrwsMessages

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# Weights are kept this much below a sum of one, so that their rounding cannot carry them above it.
MAX_WEIGHT_SUM = 1 - 1e-9
# How far weights are drawn to the best; weights of a share below this are none; the search ends within this of the end.
DAMPING, MIN_SHARE, TOLERANCE = 0.5, 1e-6, 1e-4
# Of a choice, moments above this part of its peak may matter; choices kept in the game.
PEAK_SHARE, MAX_PROFILES = 0.5, 400


class MinPeakDual:
    """Improves ledger.least_peak (of choices with nothing forbidden) and ledger.least_limit_bound."""

    def __init__(self, state: SolveState) -> None:
        self._ledger, arrays = state, state.problem.arrays
        graph = OrientedGraph.of(arrays)
        largest = int(arrays.span_usage.sum() + arrays.pair_usage.sum()) if arrays.usage.size < 1000 else 0
        dear = max(largest, state.min_peak or 0, 1)
        self._lagrangian = LagrangianCosts(graph, FixedPoint.of(graph.degree, dear), costs_count=False)
        self._messages = TrwsMessages(graph)
        self._profiles: dict[bytes, Integers] = {}
        self._work = 2 * pass_work(arrays)

    def run(self, evaluations: int, rounds: int = 4) -> None:
        """Until the least peak is known exactly, a feasible choice is found, or so many weightings are tried."""
        state, time_steps = self._ledger, self._ledger.problem.arrays.time_steps
        weights = best = np.full(time_steps, MAX_WEIGHT_SUM / max(time_steps, 1))
        if not time_steps:
            return
        for _ in range(evaluations):
            before = state.min_feasible_limit_bound
            self._evaluate(weights, rounds)
            if self._is_done() or not self._profiles:
                return
            best = weights if state.min_feasible_limit_bound > before else best
            answer, value = self._solve_matrix_game()
            if value - state.min_feasible_limit_bound <= TOLERANCE * value:
                return
            weights = DAMPING * best + (1 - DAMPING) * answer

    def _is_done(self) -> bool:
        state = self._ledger
        known = state.min_peak is not None and state.min_feasible_limit_bound >= state.min_peak
        return known or state.cost is not None or state.is_stopped

    def _evaluate(self, weights: Floats, rounds: int) -> None:
        state = self._ledger
        used = np.flatnonzero(weights > MIN_SHARE / weights.size)
        potentials = self._lagrangian.with_multipliers(dict(zip(used.tolist(), weights[used].tolist(), strict=True)))
        for _ in range(rounds):
            for forward in (True, False):
                state.raise_min_peak_bound(potentials.bound(self._messages.sweep(potentials, forward)))
            state.charge(self._work)
            if self._is_done():
                return
        self._add_choice(self._messages.run_icm(potentials, self._messages.decode(potentials)))

    def _add_choice(self, assignment: Integers) -> None:
        if self._ledger.submit(assignment).cost < IMPOSSIBLE and len(self._profiles) < MAX_PROFILES:
            self._profiles[assignment.tobytes()] = usage_profile(self._ledger.problem, assignment)

    def _solve_matrix_game(self) -> tuple[Floats, float]:
        """The weights at which the least usage of the choices known is highest, and that usage."""
        profiles = np.array(list(self._profiles.values()), np.float64)
        top = max(float(profiles.max()), 1.0)
        time_steps = sorted(
            {t for row in profiles for t in find_peaks((row - PEAK_SHARE * row.max()).astype(np.int64))}
        )
        program = LinearModel()
        least = program.add_columns(np.array([-1.0]), np.inf, lower=-np.inf)
        shares = program.add_columns(np.zeros(len(time_steps)), 1.0)
        rows = program.add_rows(np.full(len(profiles), -np.inf), np.zeros(len(profiles)))
        program.add_entries(rows, np.repeat(least, rows.size), np.ones(rows.size))
        every = np.repeat(rows, shares.size), np.tile(shares, rows.size)
        program.add_entries(*every, -profiles[:, time_steps].ravel() / top)
        whole = program.add_rows(np.array([-np.inf]), np.ones(1))
        program.add_entries(np.repeat(whole, shares.size), shares, np.ones(shares.size))
        values, weights = program.solve(integral=False).values, np.zeros(profiles.shape[1])
        if values is None:
            return weights, float("inf")
        weights[time_steps] = np.maximum(values[1:], 0.0)
        return weights * (MAX_WEIGHT_SUM / max(float(weights.sum()), 1.0)), float(values[0]) * top
