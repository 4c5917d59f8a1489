"""Dual ascent on the Lagrange multipliers of the usage limit: each step is one forward and one backward pass.

For multipliers p >= 0, min_x cost(x) + sum_t p_t (usage_t(x) - limit) bounds the cost of every feasible assignment, and
a message pass bounds that minimum from below in integers. So the bound of every step is a proof, whatever the
multipliers and however far the messages are from convergence.

The ascent direction is the expected overload usage_t - limit if each node took strategy x with probability proportional
to exp(-m(x) / T), where m are the min-marginals after the pass: a softmin, because the plain subgradient jumps from
vertex to vertex. Steps are Adam's (Kingma and Ba, "Adam: a method for stochastic optimization", 2015), per multiplier;
step size and temperature T fall geometrically within a cycle. Both scales come from the instance: T from the
min-marginals, the step size from the multiplier at which the first overload vanishes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from solvers.ascent_steps import NO_CEILING, REACH, CostArrays, MessageArrays, WatchedUsage, ascend, softmin
from solvers.mir_cuts import expected_usage
from solvers.potentials import FixedPointMultipliers, Potentials
from solvers.relaxation import Relaxation

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Passes before the scales are chosen, doublings of the first multiplier, time steps added at once.
WARM_UP_PASSES, MAX_DOUBLINGS, STEPS_PER_LOOK = 4, 40, 8
# The initial temperature as a share of the median min-marginal, and what is left of it at the end of a cycle.
INITIAL_TEMPERATURE, FINAL_TEMPERATURE = 0.1, 1 / 100
# The initial step as a share of the first multiplier, and what is left of it at the end of a cycle.
INITIAL_STEP, FINAL_STEP = 0.1, 1 / 300
# Steps between searches for more overloaded time steps.
LOOK_EVERY = 8


class DualAscent:
    """Dual ascent on a relaxation: the best bound so far, the multipliers that gave it, and the current messages.

    It continues with the relaxation's messages, and excludes strategies there. Call begin() once, then
    advance(progress) with progress rising from 0 to 1 in the first cycle, and restart() between cycles; resume() goes
    on with a branch. Usage on edges is left out, which is valid because it is never negative.
    """

    def __init__(self, relaxation: Relaxation) -> None:
        self._relaxation, model = relaxation, relaxation.model
        self._limit = model.restriction.problem.limit
        self._time_steps = np.zeros(0, np.int64) if model.watched is None else model.watched
        # Multipliers of these time steps, in cost units per byte, and Adam's averages of their gradients.
        self._adam, self._count = tuple(np.zeros(self._time_steps.size) for _ in range(3)), 0
        self._arrays = model.arrays if model.watched is not None else model.arrays.at_time_steps(self._time_steps)
        self._graph, self._usage = MessageArrays.of(model.graph), WatchedUsage.of(self._arrays)
        pair, pair_at = model.lagrangian.pairs(FixedPointMultipliers({}, 0))
        self._potentials = Potentials(model.lagrangian.theta, pair, pair_at, model.lagrangian.scale, 0)
        self.bound, self.multipliers = 0, dict[int, float]()
        self._step, self._temperature = 0.0, 1.0

    def resume(self, branch: Relaxation) -> DualAscent:
        """Return an ascent on a branch (with watched time steps) from its multipliers, with the scales of this one."""
        ascent = DualAscent(branch)
        ascent._step, ascent._temperature, ascent.multipliers = self._step, self._temperature, branch.multipliers
        ascent._return_to_best()
        ascent._take(np.zeros(1), 1.0)
        return ascent

    def take(self, progress: float, steps: int) -> None:
        """Take so many steps; progress sets their size and temperature."""
        self._take(np.full(steps, self._size(progress)), self._heat(progress))

    def begin(self) -> None:
        """Compute the first messages and choose the scales of temperature and step."""
        self._take(np.zeros(WARM_UP_PASSES), 1.0)
        min_marginals = self._relaxation.messages.min_marginals
        forbidden = self._relaxation.model.lagrangian.scale.forbidden
        positive = min_marginals[(min_marginals > 0) & (min_marginals < forbidden // 2)]
        self._temperature = INITIAL_TEMPERATURE * float(np.median(positive)) if positive.size else 1.0
        self._find_step()

    def _find_step(self) -> None:
        """Double the multiplier of the most overloaded time step until its expected overload is gone; that multiplier
        becomes the scale of the steps."""
        overload = np.zeros(0) if self._limit is None else self._find_overload(self._temperature)
        worst, least = int(overload.argmax()) if overload.size else 0, max(self.bound, 1) / max(self._limit or 0, 1)
        for turn in range(MAX_DOUBLINGS):
            if not overload.size or overload[worst] <= 0:
                break
            self._watch(np.array([worst]))
            self._step = self._adam[0][np.searchsorted(self._time_steps, worst)] = least * 1e-6 * 2.0**turn
            self._take(np.zeros(1), 1.0)
            overload = self._find_overload(self._temperature)

    def advance(self, progress: float) -> int:
        """Take one ascent step and return the bound there; progress sets step size and temperature."""
        if self._step and self._count % LOOK_EVERY == 0:
            self._watch(_find_peaks(self._find_overload(self._heat(progress)), self._time_steps))
        return self._take(np.full(1, self._size(progress)), self._heat(progress))

    def restart(self) -> None:
        """Return to the best multipliers, with Adam's averages at zero."""
        if not self._step:
            self._find_step()
        self._return_to_best()

    def _return_to_best(self) -> None:
        values = np.array([self.multipliers.get(t, 0.0) for t in self._time_steps.tolist()])
        self._adam, self._count = (values, np.zeros(values.size), np.zeros(values.size)), 0

    def share(self, progress: float) -> Floats:
        """Return the probability of each strategy (flat)."""
        return self._share(self._heat(progress))

    @property
    def prices(self) -> Integers:
        """What the usage of each strategy (flat) that is allowed costs now, in scaled units."""
        return self._potentials.theta - self._relaxation.model.lagrangian.theta

    def decode(self) -> Integers:
        """Decode an assignment from the messages and improve it node by node at the current multipliers."""
        messages = self._relaxation.messages
        return messages.run_icm(self._potentials, messages.decode(self._potentials))

    def _size(self, progress: float) -> float:
        return float(INITIAL_STEP * self._step * FINAL_STEP**progress)

    def _heat(self, progress: float) -> float:
        # Min-marginals are integers in scaled units: a temperature below one unit would not mean anything.
        return float(max(self._temperature * FINAL_TEMPERATURE**progress, 1.0))

    def _watch(self, time_steps: Integers) -> None:
        """Give these time steps a multiplier, zero at first."""
        watched = np.union1d(self._time_steps, time_steps)
        if watched.size > self._time_steps.size:
            at = np.searchsorted(watched, self._time_steps)
            self._adam = tuple(_spread(values, at, watched.size) for values in self._adam)
            self._time_steps, self._arrays = watched, self._relaxation.model.arrays.at_time_steps(watched)
            self._usage = WatchedUsage.of(self._arrays)

    def _take(self, sizes: Floats, heat: float) -> int:
        """Take steps of these sizes, and return the best bound of them, up to the upper cutoff."""
        relaxation, state, scale = self._relaxation, self._relaxation.model.state, self._potentials.scale
        messages, limit, cutoff = relaxation.messages, self._limit or 0, state.upper_cutoff
        # The sum of all numerators times the limit, or the usage in one span, stays far below REACH.
        most = max(int(self._arrays.span_usage.max(initial=0)), limit // 2)
        pairs = self._potentials.pair, self._potentials.pair_at
        scales, ceiling = (scale.factor, scale.forbidden, scale.cap, limit, most), (cutoff - 1) * scale.factor
        best, values, theta = ascend(
            self._graph, self._usage, CostArrays(relaxation.model.lagrangian.theta, *pairs, *scales),
            messages.values, messages.min_marginals, messages.reduced_costs, relaxation.allowed,
            self._adam, self._count, sizes, heat, ceiling if ceiling < REACH else NO_CEILING,
        )  # fmt: skip
        self._count += int(np.count_nonzero(sizes))
        state.charge(2 * sizes.size * relaxation.model.work)
        self._potentials = replace(self._potentials, theta=theta)
        bound = min(-(-int(best) // scale.factor), cutoff)
        if bound > self.bound:
            positive = np.flatnonzero(values)
            self.bound = bound
            self.multipliers = dict(zip(self._time_steps[positive].tolist(), values[positive].tolist(), strict=True))
        return bound

    def _share(self, heat: float) -> Floats:
        relaxation = self._relaxation
        shares: Floats = softmin(relaxation.model.arrays.node_start, relaxation.messages.min_marginals, heat)
        return shares

    def _find_overload(self, heat: float) -> Floats:
        """Return by how many bytes each time step of the problem is expected to exceed the limit."""
        return expected_usage(self._relaxation.model.arrays, self._share(heat)) - (self._limit or 0)


def _spread(values: Floats, at: Integers, size: int) -> Floats:
    wider = np.zeros(size)
    wider[at] = values
    return wider


def _find_peaks(overload: Floats, known: Integers) -> Integers:
    """Return the peak of each run of overloaded time steps: the STEPS_PER_LOOK highest that are not in `known`.

    Neighbouring time steps overload together; one multiplier per run is enough to begin with.
    """
    overloaded = np.flatnonzero(overload > 0)
    runs = np.split(overloaded, np.flatnonzero(np.diff(overloaded) > 1) + 1) if overloaded.size else []
    peaks = np.setdiff1d(np.array([run[np.argmax(overload[run])] for run in runs], np.int64), known)
    return peaks[np.argsort(-overload[peaks], kind="stable")][:STEPS_PER_LOOK]
