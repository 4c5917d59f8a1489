"""The state of presolve: the arrays being reduced, the postsolve records, and which nodes each reduction has to visit.

What all assignments have in common is moved out of the nodes: cost to `constant`, usage to `shared`, which holds its
change at each time step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from solvers.presolve.postsolve import PostsolveRecord
from solvers.presolve.working_arrays import (
    FORBIDDEN,
    build_edge_arrays,
    build_usage_arrays,
    copy_costs,
    incidence,
    with_own_kinds,
)
from solvers.problem import Problem

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Infeasible(Exception):
    """Every assignment contains something forbidden."""


class PresolveState:
    """The arrays of a problem under reduction, and a clock of changes.

    alive[i] says whether node i is still there. A reduction marks the nodes that it changes as dirty; each reduction
    takes the nodes that became dirty since it last ran. Times are counted, so that no list per reduction is needed.
    """

    def __init__(self, problem: Problem, reductions: int, stopped: Callable[[], bool]) -> None:
        """reductions: how many there are. stopped: whether time is up."""
        arrays = with_own_kinds(problem.arrays)
        self.limit, self.stopped = problem.limit, stopped
        self.node_start, self.cost = arrays.node_start, copy_costs(arrays.cost)
        self.alive = np.ones(arrays.node_start.size - 1, bool)
        self.edges, self.uses = build_edge_arrays(arrays), build_usage_arrays(arrays)
        self.constant, self.shared = 0, np.zeros(arrays.time_steps + 1, np.int64)
        self.records: list[PostsolveRecord] = []
        self._clock, self._latest = 1, 0
        self._marked_at, self._taken_at = np.zeros(self.alive.size, np.int64), [-1] * reductions

    @property
    def sizes(self) -> Integers:
        """How many strategies each node has in the original numbering, which does not shrink."""
        return np.diff(self.node_start)

    @property
    def base(self) -> Integers:
        """Bytes in use at each time step under every assignment, as far as they were moved out of the nodes."""
        return np.cumsum(self.shared)[:-1]

    def has_dirty(self, turn: int) -> bool:
        """Return whether any node was marked since the reduction last took the dirty nodes."""
        return self._latest > self._taken_at[turn]

    def take_dirty(self, turn: int) -> Flags:
        """Return flags of the nodes marked since the reduction last took them."""
        dirty: Flags = self.alive & (self._marked_at > self._taken_at[turn])
        self._taken_at[turn], self._clock = self._clock, self._clock + 1
        return dirty

    def mark_clean(self, turn: int) -> None:
        """Record that the reduction need not visit the nodes that it has just marked itself."""
        self._taken_at[turn], self._clock = self._clock, self._clock + 1

    def mark_dirty(self, nodes: Flags | Integers) -> None:
        """Mark these nodes (flags or indices) for all reductions."""
        which = np.flatnonzero(nodes) if nodes.dtype == np.bool_ else nodes
        if which.size:
            self._marked_at[which] = self._latest = self._clock

    def mark_dirty_around(self, nodes: Flags) -> None:
        """Mark these nodes and their neighbours."""
        low, high = self.edges.low, self.edges.high
        self.mark_dirty(nodes)
        self.mark_dirty(low[nodes[high]])
        self.mark_dirty(high[nodes[low]])

    def incidence(self, which: Flags | None = None) -> tuple[Integers, Integers]:
        """Return (first, incident): node i's edges are incident[first[i] : first[i + 1]]; which: only these edges."""
        edges = np.arange(self.edges.low.size) if which is None else np.flatnonzero(which)
        lists: tuple[Integers, Integers] = incidence(self.edges.low, self.edges.high, edges, self.alive.size)
        return lists

    def require_feasible(self) -> None:
        """Raise Infeasible if some node has no permitted strategy left."""
        if self.alive.size and (np.minimum.reduceat(self.cost, self.node_start[:-1])[self.alive] >= FORBIDDEN).any():
            raise Infeasible
