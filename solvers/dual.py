"""The Lagrangian dual of the usage limit by ascent: many prices at once, each step one forward and one backward pass.

For prices p >= 0 the least of cost(x) + sum_t p_t (usage_t(x) - limit) bounds every feasible choice's cost, and a pass of
message passing bounds that least from below, wholly in integers: whatever the prices and however far the
messages are from converged, each step's bound is a proof. The direction is the overload to be expected if every node took
strategy x with a probability proportional to exp(-m(x) / T), m being the marginals that the pass leaves (a softmin: the
plain subgradient jumps from vertex to vertex). Steps are those of Adam (Kingma and Ba, "Adam: a method for
stochastic optimization", 2015), per price; temperature and step fall geometrically as the search proceeds.
Scales come from the instance: T from the marginals, the step from the price that relieves the first overload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numba import njit
from numpy.typing import NDArray

from solvers.evaluation import evaluate
from solvers.ledger import largest_cost, pass_work
from solvers.messages import Messages
from solvers.parts import IMPOSSIBLE
from solvers.potentials import Pricing, Scale
from solvers.problem import Problem
from solvers.topology import Topology

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOMENTS = 140
WARM, DOUBLINGS = 4, 40
COOLING, SLOWING = 1 / 100, 1 / 300
FIRST_STEP = 0.1
MEMORY, SPREAD = 0.9, 0.98


@njit(cache=True, error_model="numpy")
def _expected_change(
    node_start, span_first, span_order, span_start, span_stop, span_at, usage, marginal, heat, moments
):  # type: ignore[no-untyped-def]
    """The change at each moment of the usage to be expected at this temperature (in the marginals' unit)."""
    change = np.zeros(moments + 1)
    weight = np.empty((node_start[1:] - node_start[:-1]).max())
    for i in range(node_start.size - 1):
        if span_first[i] == span_first[i + 1]:
            continue
        begin, k = node_start[i], node_start[i + 1] - node_start[i]
        least, total = marginal[begin : begin + k].min(), 0.0
        for x in range(k):
            away = (marginal[begin + x] - least) / heat
            weight[x] = np.exp(-away) if away < 30.0 else 0.0
            total += weight[x]
        for q in span_order[span_first[i] : span_first[i + 1]]:
            at, used = span_at[q], 0.0
            for x in range(k):
                used += weight[x] * usage[at + x]
            change[span_start[q]] += used / total
            change[span_stop[q]] -= used / total
    return change


@dataclass(slots=True)
class Ascent:
    """Adam's averages for each priced moment."""

    moments: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    price: Floats = field(default_factory=lambda: np.zeros(0))
    mean: Floats = field(default_factory=lambda: np.zeros(0))
    square: Floats = field(default_factory=lambda: np.zeros(0))
    count: int = 0

    def watch(self, moments: Integers, price: float = 0.0) -> None:
        """Price these moments too."""
        more = moments[~np.isin(moments, self.moments)]
        self.moments = np.concatenate([self.moments, more])
        self.price = np.concatenate([self.price, np.full(more.size, price)])
        self.mean = np.concatenate([self.mean, np.zeros(more.size)])
        self.square = np.concatenate([self.square, np.zeros(more.size)])

    def move(self, overload: Floats, step: float) -> None:
        """Up where overloaded, down where not, never below zero."""
        self.count += 1
        self.mean = MEMORY * self.mean + (1 - MEMORY) * overload
        self.square = SPREAD * self.square + (1 - SPREAD) * overload**2
        mean = self.mean / (1 - MEMORY**self.count)
        deviation = np.sqrt(self.square / (1 - SPREAD**self.count))
        self.price = np.maximum(self.price + step * mean / np.maximum(deviation, 1e-12), 0.0)
        self.mean[(self.price == 0) & (self.mean < 0)] = 0.0


class Dual:
    """The best bound so far, the prices that gave it, and the messages as they stand.

    advance(progress) makes one step of a cycle, progress running from 0 to 1 as its caller counts it.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.limit = problem, problem.limit or 0
        topology = Topology.of(problem.layout)
        self.messages = Messages(topology)
        self._pricing = Pricing(topology, _scale(problem, topology))
        self._spans = _spans_of_nodes(problem)
        self._ascent = Ascent()
        self.bound, self.prices = 0, dict[int, float]()
        self.work = 2 * pass_work(problem.layout)
        self._step = self._heat = 0.0

    def begin(self) -> None:
        """The first messages, and the scales: marginals give the temperature, the worst moment gives the step."""
        for _ in range(WARM):
            self._evaluate()
        marginal = self.messages.marginal
        positive = marginal[(marginal > 0) & (marginal < self._pricing.scale.forbidden // 2)]
        self._heat = float(np.median(positive)) if positive.size else 1.0
        if not self.problem.limit:
            return
        overload = self._overload(self._heat)
        worst = overload.argmax(keepdims=True)
        self._ascent.watch(worst)
        low = max(self.bound, 1) / self.limit * 1e-6
        for turn in range(DOUBLINGS):
            if overload[worst[0]] <= 0:
                break
            self._step = self._ascent.price[0] = low * 2.0**turn
            self._evaluate()
            overload = self._overload(self._heat)

    def advance(self, progress, first=1.0):
        heat = self._heat * COOLING**progress
        overload = self._overload(heat)
        if self._ascent.count % 8 == 0:
            self._ascent.watch(_peaks(overload, self._ascent.moments))
        self._ascent.move(overload[self._ascent.moments], first * FIRST_STEP * self._step * SLOWING**progress)
        return self._evaluate()

    def _evaluate(self):
        prices = {int(t): float(p) for t, p in zip(self._ascent.moments, self._ascent.price) if p > 0}
        self.potentials = potentials = self._pricing.at(prices, self.limit)
        f = potentials.bound(self.messages.sweep(potentials, True))
        b = potentials.bound(self.messages.sweep(potentials, False))
        bound = max(f, b)
        if bound > self.bound:
            self.bound, self.prices = bound, prices
        return bound

    def _overload(self, heat):
        layout = self.problem.layout
        change = _expected_change(
            layout.node_start,
            *self._spans,
            layout.span_start,
            layout.span_stop,
            layout.span_at,
            layout.span_usage,
            self.messages.marginal,
            heat,
            layout.moments,
        )
        return np.cumsum(change)[:-1] - self.limit


def _peaks(overload, known, most=8):
    at = np.flatnonzero(overload > 0)
    if not at.size:
        return at
    runs = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1)
    peaks = np.array([run[np.argmax(overload[run])] for run in runs])
    peaks = peaks[~np.isin(peaks, known)]
    peaks = peaks[np.argsort(-overload[peaks], kind="stable")][:most]
    return peaks


def _scale(problem, topology):
    dear = largest_cost(problem)
    rough = Pricing(topology, Scale.of(topology.degree, dear)).at({})
    messages = Messages(topology)
    for forward in (True, False):
        messages.sweep(rough, forward)
    found = evaluate(problem, messages.descend(rough, messages.decode(rough)))
    return Scale.of(topology.degree, min(dear, 4 * max(found.cost, 1)))


def _spans_of_nodes(problem):
    layout = problem.layout
    order = np.argsort(layout.span_node, kind="stable")
    order = order[(layout.span_start < layout.span_stop)[order]]
    counts = np.bincount(layout.span_node[order], minlength=len(problem.nodes))
    return np.concatenate([[0], np.cumsum(counts)]), order
