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
from solvers.ledger import largest_cost, pass_work
from solvers.messages import Messages
from solvers.potentials import Pricing, Scale
from solvers.problem import Problem
from solvers.topology import Topology

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Passes before the scales are read off, doublings of the first price, moments priced at once.
WARM, DOUBLINGS, PEAKS = 4, 40, 8
# Shares of the median marginal and of the first price; what is left of each at the end of a cycle.
FIRST_HEAT, COOLING = 0.1, 1 / 100
FIRST_STEP, SLOWING = 0.1, 1 / 300
MEMORY, SPREAD = 0.9, 0.98
# Steps between looks for more moments; probabilities below exp(-FAR) count as none.
LOOK, FAR = 8, 30.0


@cached_njit(nogil=True, error_model="numpy")
def _expected_change(  # type: ignore[no-untyped-def]
    node_start, first, order, span_start, span_stop, span_at, usage, marginal, heat, moments, largest
):  # fmt: skip
    """The change at each moment of the usage to be expected at this temperature (in the marginals' unit)."""
    change, weight = np.zeros(moments + 1), np.empty(largest)
    for i in range(node_start.size - 1):
        if first[i] == first[i + 1]:
            continue
        begin, k = node_start[i], node_start[i + 1] - node_start[i]
        least, total = marginal[begin : begin + k].min(), 0.0
        for x in range(k):
            away = (marginal[begin + x] - least) / heat
            weight[x] = np.exp(-away) if away < FAR else 0.0
            total += weight[x]
        for q in order[first[i] : first[i + 1]]:
            used = 0.0
            for x in range(k):
                used += weight[x] * usage[span_at[q] + x]
            change[span_start[q]] += used / total
            change[span_stop[q]] -= used / total
    return change


def _no_floats() -> Floats:
    return np.zeros(0)


@dataclass(slots=True)
class Ascent:
    """The prices of the moments watched so far, and Adam's averages."""

    moments: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    price: Floats = field(default_factory=_no_floats)
    mean: Floats = field(default_factory=_no_floats)
    square: Floats = field(default_factory=_no_floats)
    count: int = 0

    def watch(self, moments: Integers) -> None:
        """Price these moments too, at nothing yet."""
        more = moments[~np.isin(moments, self.moments)]
        self.moments = np.concatenate([self.moments, more])
        self.price, self.mean, self.square = (
            np.concatenate([values, np.zeros(more.size)]) for values in (self.price, self.mean, self.square)
        )

    def move(self, overload: Floats, step: float) -> None:
        """Up where overloaded, down where not, never below zero."""
        self.count += 1
        self.mean = MEMORY * self.mean + (1 - MEMORY) * overload
        self.square = SPREAD * self.square + (1 - SPREAD) * overload**2
        mean = self.mean / (1 - MEMORY**self.count)
        deviation = np.sqrt(self.square / (1 - SPREAD**self.count))
        self.price = np.maximum(self.price + step * mean / np.maximum(deviation, 1e-12), 0.0)
        self.mean[(self.price == 0) & (self.mean < 0)] = 0.0

    def prices(self) -> dict[int, float]:
        """Those above zero, by moment."""
        return {int(t): float(p) for t, p in zip(self.moments, self.price, strict=True) if p > 0}

    def stand_at(self, prices: dict[int, float]) -> None:
        """These prices, no memory of the way."""
        self.price = np.array([prices.get(int(t), 0.0) for t in self.moments])
        self.mean, self.square, self.count = np.zeros(self.price.size), np.zeros(self.price.size), 0


class Dual:
    """The best bound so far, the prices that gave it, and the messages as they stand.

    begin() once, then any number of cycles of advance(progress), in which progress rises (from 0 to 1 in the first);
    restart() between them. Usage on edges is priced, but does not steer.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.limit = problem, problem.limit or 0
        topology = Topology.of(problem.layout)
        self.messages = Messages(topology)
        self._pricing = Pricing(topology, _scale(problem, topology))
        self._potentials = self._pricing.at({})
        self._spans = _by_node(problem)
        self._ascent = Ascent()
        self.bound, self.prices = 0, dict[int, float]()
        self.work = 2 * pass_work(problem.layout)
        self._step, self._heat = 0.0, 1.0

    def begin(self) -> None:
        """The first messages, and the scales."""
        for _ in range(WARM):
            self._pass()
        marginal = self.messages.marginal
        positive = marginal[(marginal > 0) & (marginal < self._pricing.scale.forbidden // 2)]
        self._heat = FIRST_HEAT * float(np.median(positive)) if positive.size else 1.0
        if self.problem.limit is not None:
            self._find_step(max(self.bound, 1) / max(self.limit, 1) * 1e-6)

    def _find_step(self, least: float) -> None:
        """Double the price of the worst moment until the overload expected there vanishes."""
        overload = self._overload(self._heat)
        worst = int(overload.argmax()) if overload.size else 0
        for turn in range(DOUBLINGS):
            if not overload.size or overload[worst] <= 0:
                break
            self._ascent.watch(np.array([worst]))
            self._step = self._ascent.price[0] = least * 2.0**turn
            self._pass()
            overload = self._overload(self._heat)

    def advance(self, progress: float) -> int:
        """One step; the bound there."""
        if self._step:
            heat = max(self._heat * COOLING**progress, 1.0)
            overload = self._overload(heat)
            if self._ascent.count % LOOK == 0:
                self._ascent.watch(_peaks(overload, self._ascent.moments))
            self._ascent.move(overload[self._ascent.moments], FIRST_STEP * self._step * SLOWING**progress)
        return self._pass()

    def restart(self) -> None:
        """Back to the best prices."""
        if not self._step and self.problem.limit is not None:
            self._find_step(max(self.bound, 1) / max(self.limit, 1) * 1e-6)
        self._ascent.stand_at(self.prices)

    def decode(self) -> Integers:
        """A choice as the messages see it, improved node by node at the present prices."""
        return self.messages.descend(self._potentials, self.messages.decode(self._potentials))

    def _pass(self) -> int:
        prices = self._ascent.prices()
        self._potentials = self._pricing.at(prices, self.limit)
        bound = max(self._potentials.bound(self.messages.sweep(self._potentials, forward)) for forward in (True, False))
        if bound > self.bound:
            self.bound, self.prices = bound, prices
        return bound

    def _overload(self, heat: float) -> Floats:
        layout = self.problem.layout
        change = _expected_change(
            layout.node_start, *self._spans, layout.span_start, layout.span_stop, layout.span_at, layout.span_usage,
            self.messages.marginal, heat, layout.moments, self.messages.topology.largest,
        )  # fmt: skip
        overload: Floats = np.cumsum(change)[:-1] - self.limit
        return overload


def _peaks(overload: Floats, known: Integers) -> Integers:
    """The highest moment of each run of moments overloaded, the highest few that are not known."""
    at = np.flatnonzero(overload > 0)
    runs = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1) if at.size else []
    peaks = np.setdiff1d(np.array([run[np.argmax(overload[run])] for run in runs], np.int64), known)
    return peaks[np.argsort(-overload[peaks], kind="stable")][:PEAKS]


def _scale(problem: Problem, topology: Topology) -> Scale:
    """By the cost of a first decode: the finer the better."""
    dear = largest_cost(problem)
    rough = Pricing(topology, Scale.of(topology.degree, dear)).at({})
    messages = Messages(topology)
    for forward in (True, False):
        messages.sweep(rough, forward)
    found = evaluate(problem, messages.descend(rough, messages.decode(rough)))
    return Scale.of(topology.degree, min(dear, 4 * max(found.cost, 1)))


def _by_node(problem: Problem) -> tuple[Integers, Integers]:
    """The spans that last, grouped by node: those of node i at first[i]:first[i + 1] of the second array."""
    layout = problem.layout
    order = np.argsort(layout.span_node, kind="stable")
    order = order[(layout.span_start < layout.span_stop)[order]]
    counts = np.bincount(layout.span_node[order], minlength=layout.node_start.size - 1)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), order
