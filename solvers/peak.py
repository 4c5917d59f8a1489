"""The least limit that would be feasible: the peak itself, minimised and bounded from below.

With weights w_t >= 0 on moments that sum to (at most) one, the peak of any choice is at least sum_t w_t usage_t, whose
least value message passing bounds exactly as it bounds costs; the weights follow the choices found, as prices do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import usage_profile
from solvers.layout import IMPOSSIBLE
from solvers.ledger import Ledger
from solvers.messages import Messages, Topology
from solvers.potentials import Pricing, Scale
from solvers.program import Program

Integers = NDArray[np.int64]

# Weights are kept this much below a sum of one, so that their rounding cannot carry them above it.
SAFE = 1 - 1e-9


class PeakSearch:
    """Improves ledger.least_peak (of choices with nothing forbidden) and ledger.least_limit_bound."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, layout = ledger, ledger.problem.layout
        topology = Topology.of(layout)
        largest = int(layout.usage.sum() + layout.pair_usage.sum()) if layout.usage.size < 1000 else 0
        dear = max(largest, ledger.least_peak or 0, 1)
        self._pricing = Pricing(topology, Scale.of(topology.degree, dear), costs_count=False)
        self._messages = Messages(topology)
        self._profiles: list[Integers] = []
        self._moments: list[int] = []
        self._work = float(2 * (layout.height * layout.width).sum() + 40 * layout.node_start[-1] + 1000)

    def run(self, evaluations: int, rounds: int = 24) -> None:
        """Until the least peak is known exactly, a feasible choice is found, or so many weightings are tried."""
        ledger = self._ledger
        weights: dict[int, float] = {}
        for _ in range(evaluations):
            self._evaluate(weights, rounds)
            if ledger.cost is not None or ledger.stop_reason or not self._moments:
                return
            if ledger.least_peak is not None and ledger.least_limit_bound >= ledger.least_peak:
                return
            weights = self._flattest()

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
        self._profiles.append(profile)
        if profile.size and int(profile.argmax()) not in self._moments:
            self._moments.append(int(profile.argmax()))

    def _flattest(self) -> dict[int, float]:
        """The weights under which the least usage of the choices seen is highest."""
        used = np.array([profile[self._moments] for profile in self._profiles], np.float64)
        unit = max(float(used.max()), 1.0)
        program = Program()
        height = program.add_columns(np.array([-1.0]), np.inf)
        weights = program.add_columns(np.zeros(len(self._moments)), 1.0)
        rows = program.add_rows(np.full(len(used), -np.inf), np.zeros(len(used)))
        program.add_entries(rows, np.repeat(height, rows.size), np.ones(rows.size))
        for t, weight in enumerate(weights):
            program.add_entries(rows, np.repeat(weight, rows.size), -used[:, t] / unit)
        total = program.add_rows(np.ones(1), np.ones(1))
        program.add_entries(np.repeat(total, weights.size), weights, np.ones(weights.size))
        values = program.solve(integral=False).values
        found = np.full(len(weights), 1 / len(weights)) if values is None else np.maximum(values[1:], 0)
        share = found / max(found.sum(), 1e-12) * SAFE
        return dict(zip(self._moments, share.tolist(), strict=True))
