"""The least limit that would be feasible: the peak itself, minimised and bounded from below.

With weights w_t >= 0 on moments that sum to (at most) one, the peak of any choice is at least sum_t w_t usage_t, whose
least value message passing bounds exactly as it bounds costs. The weights are multiplicative ones (Arora, Hazan, Kale,
"The multiplicative weights update method", 2012).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import usage_profile
from solvers.ledger import Ledger, pass_work
from solvers.messages import Messages
from solvers.parts import IMPOSSIBLE
from solvers.potentials import Pricing, Scale
from solvers.topology import Topology

Integers = NDArray[np.int64]

# Weights are kept this much below a sum of one, so that their rounding cannot carry them above it.
SAFE = 1 - 1e-9
FOCUS, STEP = 30.0, 5.0


class PeakSearch:
    """Improves ledger.least_peak (of choices with nothing forbidden) and ledger.least_limit_bound."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, layout = ledger, ledger.problem.layout
        topology = Topology.of(layout)
        largest = int(layout.span_usage.sum() + layout.pair_usage.sum()) if layout.usage.size < 1000 else 0
        dear = max(largest, ledger.least_peak or 0, 1)
        self._pricing = Pricing(topology, Scale.of(topology.degree, dear), costs_count=False)
        self._messages = Messages(topology)
        self._score: NDArray[np.float64] | None = None
        self._work = 2 * pass_work(layout)

    def run(self, evaluations: int, rounds: int = 8) -> None:
        """Until the least peak is known exactly, a feasible choice is found, or so many weightings are tried."""
        ledger = self._ledger
        weights: dict[int, float] = {}
        for _ in range(evaluations):
            self._evaluate(weights, rounds)
            if ledger.cost is not None or ledger.stop_reason or self._score is None:
                return
            if ledger.least_peak is not None and ledger.least_limit_bound >= ledger.least_peak:
                return
            weights = self._weights()

    def _evaluate(self, weights: dict[int, float], rounds: int) -> None:
        ledger = self._ledger
        potentials = self._pricing.at(weights)
        choice: Integers = self._messages.decode(potentials)
        for step in range(rounds if weights else 4):
            for forward in (True, False):
                bound = potentials.bound(self._messages.sweep(potentials, forward))
                if weights:
                    ledger.prove_least_limit(bound)
            ledger.spend(self._work)
            if step % 4 == 3:
                choice = self._messages.descend(potentials, self._messages.decode(potentials))
                self._learn(choice)
            if ledger.least_peak is not None and ledger.least_limit_bound >= ledger.least_peak:
                return

    def _learn(self, choice: Integers) -> None:
        if self._ledger.offer(choice).cost >= IMPOSSIBLE:
            return
        profile = usage_profile(self._ledger.problem, choice)
        peak = max(int(profile.max(initial=0)), 1)
        if self._score is None:
            # Of a first choice, only the moments near its peak matter.
            self._score = FOCUS * (profile / peak - 1)
        else:
            self._score += STEP * (profile / peak - 1)

    def _weights(self) -> dict[int, float]:
        """Multiplicative weights: a moment gains by how near it has been to the peaks of the choices so far."""
        if self._score is None or not self._score.size:
            return {}
        share = np.exp(self._score - self._score.max())
        share = np.where(share < 1e-4 * share.sum(), 0.0, share)
        share *= SAFE / share.sum()
        return {int(moment): float(share[moment]) for moment in np.flatnonzero(share)}
