"""The Lagrangian dual of the usage limit by ascent: many prices at once, each step one forward and one backward pass.

For prices p >= 0 the least of cost(x) + sum_t p_t (usage_t(x) - limit) bounds every feasible choice's cost, and a
pass of messages bounds that least from below, wholly in integers: whatever the prices and however far the
messages are from converged, each step's bound is a proof. The direction is the overload to be expected if every
node took strategy x with a probability proportional to exp(-m(x) / T), m being the marginals that the pass
leaves (a softmin: the plain subgradient jumps from vertex to vertex). Steps are those of Adam (Kingma and Ba,
"Adam: a method for stochastic optimization", 2015), per price; temperature and step fall geometrically within a
cycle. Scales come from the instance: T from the marginals, the step from the price at which the first overload
vanishes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import evaluate
from solvers.jit import cached_njit
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint, LagrangianCosts
from solvers.problem import Problem
from solvers.solve_state import bound_largest_cost, pass_work
from solvers.trws import TrwsMessages

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Passes before the scales are read off, doublings of the first price, moments priced at once.
WARM_UP_PASSES, MAX_DOUBLINGS, STEPS_PER_LOOK = 4, 40, 8
# Shares of the median marginal and of the first price; what is left of each at the end of a cycle.
INITIAL_TEMPERATURE, FINAL_TEMPERATURE = 0.1, 1 / 100
INITIAL_STEP, FINAL_STEP = 0.1, 1 / 300
BETA1, BETA2 = 0.9, 0.98
# Steps between looks for more moments; probabilities below exp(-FAR) count as none.
LOOK_EVERY, MAX_EXPONENT = 8, 30.0


@cached_njit(nogil=True, error_model="numpy")
def _expected_change(  # type: ignore[no-untyped-def]
    node_start, first, order, span_start, span_stop, span_at, usage, min_marginals, heat, time_steps, largest
):  # fmt: skip
    """The change at each moment of the usage to be expected at this temperature (in the marginals' unit)."""
    change, weight = np.zeros(time_steps + 1), np.empty(largest)
    for i in range(node_start.size - 1):
        if first[i] == first[i + 1]:
            continue
        begin, k = node_start[i], node_start[i + 1] - node_start[i]
        least, total = min_marginals[begin : begin + k].min(), 0.0
        for x in range(k):
            away = (min_marginals[begin + x] - least) / heat
            weight[x] = np.exp(-away) if away < MAX_EXPONENT else 0.0
            total += weight[x]
        for q in order[first[i] : first[i + 1]]:
            used = 0.0
            for x in range(k):
                used += weight[x] * usage[span_at[q] + x]
            change[span_start[q]] += used / total
            change[span_stop[q]] -= used / total
    return change


def _empty_floats() -> Floats:
    return np.zeros(0)


@dataclass(slots=True)
class AdamMultipliers:
    """The prices of the moments watched so far, and Adam's averages."""

    time_steps: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    values: Floats = field(default_factory=_empty_floats)
    mean: Floats = field(default_factory=_empty_floats)
    square: Floats = field(default_factory=_empty_floats)
    count: int = 0

    def add_steps(self, time_steps: Integers) -> None:
        """Price these moments too, at nothing yet."""
        more = time_steps[~np.isin(time_steps, self.time_steps)]
        self.time_steps = np.concatenate([self.time_steps, more])
        self.values, self.mean, self.square = (
            np.concatenate([values, np.zeros(more.size)]) for values in (self.values, self.mean, self.square)
        )

    def step(self, overload: Floats, step: float) -> None:
        """Up where overloaded, down where not, never below zero."""
        self.count += 1
        self.mean = BETA1 * self.mean + (1 - BETA1) * overload
        self.square = BETA2 * self.square + (1 - BETA2) * overload**2
        mean = self.mean / (1 - BETA1**self.count)
        deviation = np.sqrt(self.square / (1 - BETA2**self.count))
        self.values = np.maximum(self.values + step * mean / np.maximum(deviation, 1e-12), 0.0)
        self.mean[(self.values == 0) & (self.mean < 0)] = 0.0

    def multipliers(self) -> dict[int, float]:
        """Those above zero, by moment."""
        return {int(t): float(p) for t, p in zip(self.time_steps, self.values, strict=True) if p > 0}

    def reset(self, multipliers: dict[int, float]) -> None:
        """These prices, no memory of the way."""
        self.values = np.array([multipliers.get(int(t), 0.0) for t in self.time_steps])
        self.mean, self.square, self.count = np.zeros(self.values.size), np.zeros(self.values.size), 0


class DualAscent:
    """The best bound so far, the prices that gave it, and the messages as they stand.

    begin() once, then any number of cycles of advance(progress), in which progress rises (from 0 to 1 in the first);
    restart() between them. Usage on edges is priced, but does not steer.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.limit = problem, problem.limit or 0
        graph = OrientedGraph.of(problem.arrays)
        self.messages = TrwsMessages(graph)
        self._lagrangian = LagrangianCosts(graph, _choose_scale(problem, graph))
        self._potentials = self._lagrangian.with_multipliers({})
        self._spans = _sort_by_node(problem)
        self._adam = AdamMultipliers()
        self.bound, self.multipliers = 0, dict[int, float]()
        self.work = 2 * pass_work(problem.arrays)
        self._step, self._temperature = 0.0, 1.0

    def begin(self) -> None:
        """The first messages, and the scales."""
        for _ in range(WARM_UP_PASSES):
            self._pass()
        min_marginals = self.messages.min_marginals
        positive = min_marginals[(min_marginals > 0) & (min_marginals < self._lagrangian.scale.forbidden // 2)]
        self._temperature = INITIAL_TEMPERATURE * float(np.median(positive)) if positive.size else 1.0
        if self.problem.limit is not None:
            self._find_step(max(self.bound, 1) / max(self.limit, 1) * 1e-6)

    def _find_step(self, least: float) -> None:
        """Double the price of the worst moment until the overload expected there vanishes."""
        overload = self._overload(self._temperature)
        worst = int(overload.argmax()) if overload.size else 0
        for turn in range(MAX_DOUBLINGS):
            if not overload.size or overload[worst] <= 0:
                break
            self._adam.add_steps(np.array([worst]))
            self._step = self._adam.values[0] = least * 2.0**turn
            self._pass()
            overload = self._overload(self._temperature)

    def advance(self, progress: float) -> int:
        """One step; the bound there."""
        if self._step:
            heat = max(self._temperature * FINAL_TEMPERATURE**progress, 1.0)
            overload = self._overload(heat)
            if self._adam.count % LOOK_EVERY == 0:
                self._adam.add_steps(_find_peaks(overload, self._adam.time_steps))
            self._adam.step(overload[self._adam.time_steps], INITIAL_STEP * self._step * FINAL_STEP**progress)
        return self._pass()

    def restart(self) -> None:
        """Back to the best prices."""
        if not self._step and self.problem.limit is not None:
            self._find_step(max(self.bound, 1) / max(self.limit, 1) * 1e-6)
        self._adam.reset(self.multipliers)

    def decode(self) -> Integers:
        """A choice as the messages see it, improved node by node at the present prices."""
        return self.messages.run_icm(self._potentials, self.messages.decode(self._potentials))

    def _pass(self) -> int:
        multipliers = self._adam.multipliers()
        self._potentials = self._lagrangian.with_multipliers(multipliers, self.limit)
        bound = max(self._potentials.bound(self.messages.sweep(self._potentials, forward)) for forward in (True, False))
        if bound > self.bound:
            self.bound, self.multipliers = bound, multipliers
        return bound

    def _overload(self, heat: float) -> Floats:
        arrays = self.problem.arrays
        change = _expected_change(
            arrays.node_start, *self._spans, arrays.span_start, arrays.span_stop, arrays.span_at, arrays.span_usage,
            self.messages.min_marginals, heat, arrays.time_steps, self.messages.graph.largest,
        )  # fmt: skip
        overload: Floats = np.cumsum(change)[:-1] - self.limit
        return overload


def _find_peaks(overload: Floats, known: Integers) -> Integers:
    """The highest moment of each run of moments overloaded, the highest few that are not known."""
    at = np.flatnonzero(overload > 0)
    runs = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1) if at.size else []
    peaks = np.setdiff1d(np.array([run[np.argmax(overload[run])] for run in runs], np.int64), known)
    return peaks[np.argsort(-overload[peaks], kind="stable")][:STEPS_PER_LOOK]


def _choose_scale(problem: Problem, graph: OrientedGraph) -> FixedPoint:
    """By the cost of a first decode: the finer the better."""
    dear = bound_largest_cost(problem)
    rough = LagrangianCosts(graph, FixedPoint.of(graph.degree, dear)).with_multipliers({})
    messages = TrwsMessages(graph)
    for forward in (True, False):
        messages.sweep(rough, forward)
    found = evaluate(problem, messages.run_icm(rough, messages.decode(rough)))
    return FixedPoint.of(graph.degree, min(dear, 4 * max(found.cost, 1)))


def _sort_by_node(problem: Problem) -> tuple[Integers, Integers]:
    """The spans that last, grouped by node: those of node i at first[i]:first[i + 1] of the second array."""
    arrays = problem.arrays
    order = np.argsort(arrays.span_node, kind="stable")
    order = order[(arrays.span_start < arrays.span_stop)[order]]
    counts = np.bincount(arrays.span_node[order], minlength=arrays.node_start.size - 1)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), order
