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

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.mir_cuts import expected_usage
from solvers.relaxation import Relaxation

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Passes before the scales are chosen, doublings of the first multiplier, time steps added at once.
WARM_UP_PASSES, MAX_DOUBLINGS, STEPS_PER_LOOK = 4, 40, 8
# The initial temperature as a share of the median min-marginal, and what is left of it at the end of a cycle.
INITIAL_TEMPERATURE, FINAL_TEMPERATURE = 0.1, 1 / 100
# The initial step as a share of the first multiplier, and what is left of it at the end of a cycle.
INITIAL_STEP, FINAL_STEP = 0.1, 1 / 300
# Adam's decay rates of the mean and of the mean square of the gradient.
BETA1, BETA2 = 0.9, 0.98
# Steps between searches for more overloaded time steps; probabilities below exp(-MAX_EXPONENT) count as zero.
LOOK_EVERY, MAX_EXPONENT = 8, 30.0


@cached_njit(nogil=True, error_model="numpy")
def _softmin(node_start, min_marginals, heat):  # type: ignore[no-untyped-def]
    """Return the probability of each strategy (flat); heat: the temperature in the unit of min_marginals."""
    share = np.empty(min_marginals.size)
    for i in range(node_start.size - 1):
        begin, end = node_start[i], node_start[i + 1]
        least, total = min_marginals[begin], 0.0
        for x in range(begin + 1, end):
            least = min(least, min_marginals[x])
        for x in range(begin, end):
            # Relative to the least, so that at least one weight is 1 and the total cannot underflow.
            away = (min_marginals[x] - least) / heat
            share[x] = np.exp(-away) if away < MAX_EXPONENT else 0.0
            total += share[x]
        for x in range(begin, end):
            share[x] /= total
    return share


def _empty_floats() -> Floats:
    return np.zeros(0)


@dataclass(slots=True)
class AdamMultipliers:
    """The Lagrange multipliers of the time steps found so far, and Adam's averages of their gradients.

    values, mean and square run parallel to time_steps; values are in cost units per byte.
    """

    time_steps: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    values: Floats = field(default_factory=_empty_floats)
    mean: Floats = field(default_factory=_empty_floats)
    square: Floats = field(default_factory=_empty_floats)
    count: int = 0

    def add_steps(self, time_steps: Integers) -> None:
        """Add the time steps that are not there yet, with multiplier zero."""
        new = time_steps[~np.isin(time_steps, self.time_steps)]
        self.time_steps = np.concatenate([self.time_steps, new])
        self.values, self.mean, self.square = (
            np.concatenate([values, np.zeros(new.size)]) for values in (self.values, self.mean, self.square)
        )

    def step(self, overload: Floats, step: float) -> None:
        """Take one Adam step along the overload (bytes over the limit, one per multiplier); no value falls below zero.

        step: the step size in cost units per byte.
        """
        self.count += 1
        self.mean = BETA1 * self.mean + (1 - BETA1) * overload
        self.square = BETA2 * self.square + (1 - BETA2) * overload**2
        mean = self.mean / (1 - BETA1**self.count)
        deviation = np.sqrt(self.square / (1 - BETA2**self.count))
        self.values = np.maximum(self.values + step * mean / np.maximum(deviation, 1e-12), 0.0)
        # A multiplier at zero must not gather momentum downwards: it would not rise when its time step overloads.
        self.mean[(self.values == 0) & (self.mean < 0)] = 0.0

    def multipliers(self) -> dict[int, float]:
        """Return the multipliers above zero, by time step."""
        return {int(t): float(p) for t, p in zip(self.time_steps, self.values, strict=True) if p > 0}

    def reset(self, multipliers: dict[int, float]) -> None:
        """Restart from these multipliers with Adam's averages at zero."""
        self.values = np.array([multipliers.get(int(t), 0.0) for t in self.time_steps])
        self.mean, self.square, self.count = np.zeros(self.values.size), np.zeros(self.values.size), 0


class DualAscent:
    """Dual ascent on a relaxation: the best bound so far, the multipliers that gave it, and the current messages.

    It continues with the relaxation's messages, and excludes strategies there. Call begin() once, then
    advance(progress) with progress rising from 0 to 1 in the first cycle, and restart() between cycles; resume() goes
    on with a branch. Usage on edges is part of the Lagrangian but not of the ascent direction.
    """

    def __init__(self, relaxation: Relaxation) -> None:
        self._relaxation, self._lagrangian = relaxation, relaxation.model.lagrangian
        self._potentials = self._lagrangian.with_multipliers({})
        self._adam = AdamMultipliers()
        self.bound, self.multipliers = 0, dict[int, float]()
        self._step, self._temperature = 0.0, 1.0

    def resume(self, branch: Relaxation) -> DualAscent:
        """Return an ascent on a branch, at its multipliers, of its watched time steps and with the scales of this
        one."""
        ascent = DualAscent(branch)
        ascent._step, ascent._temperature, ascent.multipliers = self._step, self._temperature, branch.multipliers
        ascent._adam.add_steps(branch.model.lagrangian.watched)
        ascent._adam.reset(branch.multipliers)
        ascent._pass()
        return ascent

    def begin(self) -> None:
        """Compute the first messages and choose the scales of temperature and step."""
        for _ in range(WARM_UP_PASSES):
            self._pass()
        min_marginals = self._relaxation.messages.min_marginals
        positive = min_marginals[(min_marginals > 0) & (min_marginals < self._lagrangian.scale.forbidden // 2)]
        self._temperature = INITIAL_TEMPERATURE * float(np.median(positive)) if positive.size else 1.0
        self._find_step()

    def _find_step(self) -> None:
        """Double the multiplier of the most overloaded time step until its expected overload is gone; that multiplier
        becomes the scale of the steps."""
        limit = self._relaxation.model.restriction.problem.limit
        overload = np.zeros(0) if limit is None else self._overload(self._temperature)
        worst, least = int(overload.argmax()) if overload.size else 0, max(self.bound, 1) / max(limit or 0, 1) * 1e-6
        for turn in range(MAX_DOUBLINGS):
            if not overload.size or overload[worst] <= 0:
                break
            self._adam.add_steps(np.array([worst]))
            self._step = self._adam.values[0] = least * 2.0**turn
            self._pass()
            overload = self._overload(self._temperature)

    def advance(self, progress: float) -> int:
        """Take one ascent step and return the bound there; progress sets step size and temperature."""
        if self._step:
            adam, heat = self._adam, self.heat(progress)
            if adam.count % LOOK_EVERY == 0 and self._relaxation.model.watched is None:
                adam.add_steps(_find_peaks(self._overload(heat), adam.time_steps))
            self._lagrangian.watch(adam.time_steps)
            overload = self._watched_overload(heat)[np.searchsorted(self._lagrangian.watched, adam.time_steps)]
            adam.step(overload, INITIAL_STEP * self._step * FINAL_STEP**progress)
        return self._pass()

    def heat(self, progress: float) -> float:
        """Return the temperature in scaled units; below one of these it would not mean anything."""
        return max(self._temperature * FINAL_TEMPERATURE**progress, 1.0)

    def restart(self) -> None:
        """Return to the best multipliers."""
        if not self._step:
            self._find_step()
        self._adam.reset(self.multipliers)

    def decode(self) -> Integers:
        """Decode an assignment from the messages and improve it node by node at the current multipliers."""
        messages = self._relaxation.messages
        return messages.run_icm(self._potentials, messages.decode(self._potentials))

    def _pass(self) -> int:
        multipliers = self._adam.multipliers()
        limit = self._relaxation.model.restriction.problem.limit or 0
        self._potentials = self._relaxation.mask(self._lagrangian.with_multipliers(multipliers, limit))
        bound = self._relaxation.sweep(self._potentials)
        if bound > self.bound:
            self.bound, self.multipliers = bound, multipliers
        return bound

    def share(self, heat: float) -> Floats:
        """Return the probability of each strategy (flat) at a temperature in scaled units."""
        arrays = self._relaxation.model.arrays
        shares: Floats = _softmin(arrays.node_start, self._relaxation.messages.min_marginals, heat)
        return shares

    def _overload(self, heat: float) -> Floats:
        problem = self._relaxation.model.restriction.problem
        return expected_usage(problem.arrays, self.share(heat)) - (problem.limit or 0)

    def _watched_overload(self, heat: float) -> Floats:
        limit = self._relaxation.model.restriction.problem.limit or 0
        return expected_usage(self._lagrangian.usage, self.share(heat)) - limit


def _find_peaks(overload: Floats, known: Integers) -> Integers:
    """Return the peak of each run of overloaded time steps: the STEPS_PER_LOOK highest that are not in `known`.

    Neighbouring time steps overload together; one multiplier per run is enough to begin with.
    """
    overloaded = np.flatnonzero(overload > 0)
    runs = np.split(overloaded, np.flatnonzero(np.diff(overloaded) > 1) + 1) if overloaded.size else []
    peaks = np.setdiff1d(np.array([run[np.argmax(overload[run])] for run in runs], np.int64), known)
    return peaks[np.argsort(-overload[peaks], kind="stable")][:STEPS_PER_LOOK]
