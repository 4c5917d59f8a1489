"""A problem while it shrinks: its arrays, the records of how, and which nodes changed since who looked.

What all choices share leaves the nodes: in cost as `constant`, in usage as `shared` (its change at each moment).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from solvers.presolve.postsolve import PostsolveRecord
from solvers.presolve.working_arrays import (
    FORBIDDEN,
    build_edge_arrays,
    build_edge_usage_arrays,
    build_usage_arrays,
    copy_costs,
    incidence,
)
from solvers.problem import Problem

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Infeasible(Exception):
    """There is no choice without anything forbidden."""


class PresolveState:
    """here[i]: is node i still there? A node that changes is touched; each reduction looks at what was, in turn."""

    def __init__(self, problem: Problem, reductions: int, stopped: Callable[[], bool]) -> None:
        """stopped: is time up? Whatever has been done by then stands."""
        arrays = problem.arrays
        self.limit, self.stopped = problem.limit, stopped
        self.node_start, self.cost = arrays.node_start, copy_costs(arrays.cost)
        self.alive = np.ones(arrays.node_start.size - 1, bool)
        self.edges, self.uses, self.edge_uses = (
            build_edge_arrays(arrays),
            build_usage_arrays(arrays),
            build_edge_usage_arrays(arrays),
        )
        self.constant, self.shared = 0, np.zeros(arrays.time_steps + 1, np.int64)
        self.records: list[PostsolveRecord] = []
        self._clock, self._latest = 1, 0
        self._marked_at, self._taken_at = np.zeros(self.alive.size, np.int64), [-1] * reductions

    @property
    def sizes(self) -> Integers:
        """How many strategies each node had."""
        return np.diff(self.node_start)

    @property
    def base(self) -> Integers:
        """Bytes in use at each moment, whatever is chosen (less what is still to be found shared)."""
        return np.cumsum(self.shared)[:-1]

    @property
    def has_edge_usage(self) -> Flags:
        """Has the node an edge with usage?"""
        bound, own = np.zeros(self.alive.size, bool), self.edges.own >= 0
        bound[self.edges.low[own]] = bound[self.edges.high[own]] = True
        return bound

    def has_dirty(self, turn: int) -> bool:
        """Has anything changed since the reduction looked?"""
        return self._latest > self._taken_at[turn]

    def take_dirty(self, turn: int) -> Flags:
        """The nodes that changed since the reduction looked the last time."""
        fresh: Flags = self.alive & (self._marked_at > self._taken_at[turn])
        self._taken_at[turn], self._clock = self._clock, self._clock + 1
        return fresh

    def mark_clean(self, turn: int) -> None:
        """What the reduction has just done leaves nothing more for itself."""
        self._taken_at[turn], self._clock = self._clock, self._clock + 1

    def mark_dirty(self, nodes: Flags | Integers) -> None:
        """These changed."""
        which = np.flatnonzero(nodes) if nodes.dtype == np.bool_ else nodes
        if which.size:
            self._marked_at[which] = self._latest = self._clock

    def mark_dirty_around(self, nodes: Flags) -> None:
        """These changed, in a way that their neighbours feel."""
        low, high = self.edges.low, self.edges.high
        self.mark_dirty(nodes)
        self.mark_dirty(low[nodes[high]])
        self.mark_dirty(high[nodes[low]])

    def incidence(self, which: Flags | None = None) -> tuple[Integers, Integers]:
        """Each node's edges (of those asked for): where they begin in the second array."""
        edges = np.arange(self.edges.low.size) if which is None else np.flatnonzero(which)
        found: tuple[Integers, Integers] = incidence(self.edges.low, self.edges.high, edges, self.alive.size)
        return found

    def require_feasible(self) -> None:
        """Raises Impossible if some node has no strategy left."""
        if self.alive.size and (np.minimum.reduceat(self.cost, self.node_start[:-1])[self.alive] >= FORBIDDEN).any():
            raise Infeasible
