"""A problem while it shrinks: its arrays, the records of how, and which nodes changed since who looked.

What all choices share leaves the nodes: in cost as `constant`, in usage as `shared` (its change at each moment).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from solvers.presolve.flat import FORBIDDEN, costs_of, edge_uses_of, edges_of, incidence, uses_of
from solvers.presolve.records import Record
from solvers.problem import Problem

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Impossible(Exception):
    """There is no choice without anything forbidden."""


class State:
    """here[i]: is node i still there? A node that changes is touched; each reduction looks at what was, in turn."""

    def __init__(self, problem: Problem, reductions: int, stopped: Callable[[], bool]) -> None:
        """stopped: is time up? Whatever has been done by then stands."""
        layout = problem.layout
        self.limit, self.stopped = problem.limit, stopped
        self.node_start, self.cost = layout.node_start, costs_of(layout.cost)
        self.here = np.ones(layout.node_start.size - 1, bool)
        self.edges, self.uses, self.edge_uses = edges_of(layout), uses_of(layout), edge_uses_of(layout)
        self.constant, self.shared = 0, np.zeros(layout.moments + 1, np.int64)
        self.records: list[Record] = []
        self._clock, self._latest = 1, 0
        self._touched, self._looked = np.zeros(self.here.size, np.int64), [-1] * reductions

    @property
    def sizes(self) -> Integers:
        """How many strategies each node had."""
        return np.diff(self.node_start)

    @property
    def base(self) -> Integers:
        """Bytes in use at each moment, whatever is chosen (less what is still to be found shared)."""
        return np.cumsum(self.shared)[:-1]

    @property
    def bound_to_usage(self) -> Flags:
        """Has the node an edge with usage?"""
        bound, own = np.zeros(self.here.size, bool), self.edges.own >= 0
        bound[self.edges.low[own]] = bound[self.edges.high[own]] = True
        return bound

    def waits(self, turn: int) -> bool:
        """Has anything changed since the reduction looked?"""
        return self._latest > self._looked[turn]

    def look(self, turn: int) -> Flags:
        """The nodes that changed since the reduction looked the last time."""
        fresh: Flags = self.here & (self._touched > self._looked[turn])
        self._looked[turn], self._clock = self._clock, self._clock + 1
        return fresh

    def settle(self, turn: int) -> None:
        """What the reduction has just done leaves nothing more for itself."""
        self._looked[turn], self._clock = self._clock, self._clock + 1

    def touch(self, nodes: Flags | Integers) -> None:
        """These changed."""
        which = np.flatnonzero(nodes) if nodes.dtype == np.bool_ else nodes
        if which.size:
            self._touched[which] = self._latest = self._clock

    def touch_around(self, nodes: Flags) -> None:
        """These changed, in a way that their neighbours feel."""
        low, high = self.edges.low, self.edges.high
        self.touch(nodes)
        self.touch(low[nodes[high]])
        self.touch(high[nodes[low]])

    def incidence(self, which: Flags | None = None) -> tuple[Integers, Integers]:
        """Each node's edges (of those asked for): where they begin in the second array."""
        edges = np.arange(self.edges.low.size) if which is None else np.flatnonzero(which)
        found: tuple[Integers, Integers] = incidence(self.edges.low, self.edges.high, edges, self.here.size)
        return found

    def require_possible(self) -> None:
        """Raises Impossible if some node has no strategy left."""
        if self.here.size and (np.minimum.reduceat(self.cost, self.node_start[:-1])[self.here] >= FORBIDDEN).any():
            raise Impossible
