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
from solvers.ilp import peaks
from solvers.ledger import Ledger, pass_work
from solvers.messages import Messages
from solvers.parts import IMPOSSIBLE
from solvers.potentials import Pricing, Scale
from solvers.program import Program
from solvers.topology import Topology

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# Weights are kept this much below a sum of one, so that their rounding cannot carry them above it.
SAFE = 1 - 1e-9
# How far weights are drawn to the best; weights of a share below this are none; the search ends within this of the end.
DRAWN, SOME, NEAR = 0.5, 1e-6, 1e-4
# Of a choice, moments above this part of its peak may matter; choices kept in the game.
HIGH, KEPT = 0.5, 400


class PeakSearch:
    """Improves ledger.least_peak (of choices with nothing forbidden) and ledger.least_limit_bound."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, layout = ledger, ledger.problem.layout
        topology = Topology.of(layout)
        largest = int(layout.span_usage.sum() + layout.pair_usage.sum()) if layout.usage.size < 1000 else 0
        dear = max(largest, ledger.least_peak or 0, 1)
        self._pricing = Pricing(topology, Scale.of(topology.degree, dear), costs_count=False)
        self._messages = Messages(topology)
        self._profiles: dict[bytes, Integers] = {}
        self._work = 2 * pass_work(layout)

    def run(self, evaluations: int, rounds: int = 4) -> None:
        """Until the least peak is known exactly, a feasible choice is found, or so many weightings are tried."""
        ledger, moments = self._ledger, self._ledger.problem.layout.moments
        weights = best = np.full(moments, SAFE / max(moments, 1))
        if not moments:
            return
        for _ in range(evaluations):
            before = ledger.least_limit_bound
            self._evaluate(weights, rounds)
            if self._done() or not self._profiles:
                return
            best = weights if ledger.least_limit_bound > before else best
            answer, value = self._game()
            if value - ledger.least_limit_bound <= NEAR * value:
                return
            weights = DRAWN * best + (1 - DRAWN) * answer

    def _done(self) -> bool:
        ledger = self._ledger
        known = ledger.least_peak is not None and ledger.least_limit_bound >= ledger.least_peak
        return known or ledger.cost is not None or ledger.stopped

    def _evaluate(self, weights: Floats, rounds: int) -> None:
        ledger = self._ledger
        used = np.flatnonzero(weights > SOME / weights.size)
        potentials = self._pricing.at(dict(zip(used.tolist(), weights[used].tolist(), strict=True)))
        for _ in range(rounds):
            for forward in (True, False):
                ledger.prove_least_limit(potentials.bound(self._messages.sweep(potentials, forward)))
            ledger.spend(self._work)
            if self._done():
                return
        self._learn(self._messages.descend(potentials, self._messages.decode(potentials)))

    def _learn(self, choice: Integers) -> None:
        if self._ledger.offer(choice).cost < IMPOSSIBLE and len(self._profiles) < KEPT:
            self._profiles[choice.tobytes()] = usage_profile(self._ledger.problem, choice)

    def _game(self) -> tuple[Floats, float]:
        """The weights at which the least usage of the choices known is highest, and that usage."""
        profiles = np.array(list(self._profiles.values()), np.float64)
        top = max(float(profiles.max()), 1.0)
        moments = sorted({t for row in profiles for t in peaks((row - HIGH * row.max()).astype(np.int64))})
        program = Program()
        least = program.add_columns(np.array([-1.0]), np.inf, lower=-np.inf)
        shares = program.add_columns(np.zeros(len(moments)), 1.0)
        rows = program.add_rows(np.full(len(profiles), -np.inf), np.zeros(len(profiles)))
        program.add_entries(rows, np.repeat(least, rows.size), np.ones(rows.size))
        every = np.repeat(rows, shares.size), np.tile(shares, rows.size)
        program.add_entries(*every, -profiles[:, moments].ravel() / top)
        whole = program.add_rows(np.array([-np.inf]), np.ones(1))
        program.add_entries(np.repeat(whole, shares.size), shares, np.ones(shares.size))
        values, weights = program.solve(integral=False).values, np.zeros(profiles.shape[1])
        if values is None:
            return weights, float("inf")
        weights[moments] = np.maximum(values[1:], 0.0)
        return weights * (SAFE / max(float(weights.sum()), 1.0)), float(values[0]) * top
