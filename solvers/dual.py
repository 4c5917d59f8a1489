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

from solvers.ledger import largest_cost, pass_work
from solvers.messages import Messages
from solvers.parts import IMPOSSIBLE
from solvers.evaluation import evaluate
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
def _expected_change(node_start, span_first, span_order, span_start, span_stop, span_at, usage, marginal, heat, moments):  # type: ignore[no-untyped-def]
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
    """The best bound so far and the prices that gave it."""

    def __init__(self, problem: Problem, prices: Mapping[int, float] | None = None) -> None:
        self.problem, self.limit = problem, problem.limit
        topology = Topology.of(problem.layout)
        dear = largest_cost(problem)
        self.messages = Messages(topology)
        rough = Pricing(topology, Scale.of(topology.degree, dear)).at({})
        for forward in (True, False):
            self.messages.sweep(rough, forward)
        choice = self.messages.descend(rough, self.messages.decode(rough))
        found = evaluate(problem, choice)
        if found.cost < IMPOSSIBLE:
            dear = min(dear, 4 * max(found.cost, 1))
        self.messages = Messages(topology)
        self.pricing = Pricing(topology, Scale.of(topology.degree, dear))
        self.bound = 0
        self.ascent = Ascent()
        self.prices: dict[int, float] = {}
        layout = problem.layout
        order = np.argsort(layout.span_node, kind="stable")
        busy = layout.span_start < layout.span_stop
        order = order[busy[order]]
        counts = np.bincount(layout.span_node[order], minlength=len(problem.nodes))
        self._spans = (np.concatenate([[0], np.cumsum(counts)]), order)

    def evaluate(self, prices):
        potentials = self.pricing.at(prices, self.limit or 0)
        f = potentials.bound(self.messages.sweep(potentials, True))
        b = potentials.bound(self.messages.sweep(potentials, False))
        bound = max(f, b)
        if bound > self.bound:
            self.bound, self.prices = bound, dict(prices)
        return potentials, bound

    def overload(self, heat):
        layout = self.problem.layout
        change = _expected_change(layout.node_start, *self._spans, layout.span_start, layout.span_stop, layout.span_at, layout.span_usage, self.messages.marginal, heat, layout.moments)
        return np.cumsum(change)[:-1] - self.limit

