"""Lagrangian costs in fixed point for message passing: a problem's costs plus its usage at given multipliers.

For Lagrange multipliers p_t >= 0 (cost units per byte at time step t), every assignment within the limit satisfies
cost >= cost + sum_t p_t (usage_t - limit), so the minimum of the right-hand side bounds the optimum from below.

Everything is an integer, so that the bound is exact. Costs are multiplied by a scale factor, to leave room for
fractions. Multipliers are numerators over 2**shift. The term of a usage is the prefix-sum difference of the numerators
over its interval times its bytes, rounded down; the limit's term is rounded up; and values above `forbidden`, which is
far above any useful cost, are cut down to it. Each of these can only lower the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.model import IMPOSSIBLE
from solvers.oriented_graph import OrientedGraph
from solvers.problem_arrays import ProblemArrays, compute_offsets

Integers = NDArray[np.int64]

# What an edge's matrix of costs plus usage depends on: whether the edge is turned, its shape, the starts of its kinds
# and of its cost matrix, and for each usage with a positive multiplier the start of the usage matrix and the summed
# numerators. Edges with equal keys share one copy.
Key = tuple[bool, int, int, int, int, tuple[tuple[int, int], ...]]

# Sums of a node's cost and all its incoming messages stay below this, two bits under the int64 range.
MAX_POTENTIAL = 1 << 61


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """The scale of integer costs: `factor` scaled units per cost unit; scaled costs are cut at `forbidden`, messages
    at `cap`."""

    factor: int
    forbidden: int
    cap: int

    @staticmethod
    def of(degree: int, largest_cost: int) -> FixedPoint:
        """Return the finest scale for nodes of at most `degree` edges and useful costs of at most `largest_cost`."""
        # A node adds up its cost and one message per edge, none of them above cap: no sum can overflow.
        cap = MAX_POTENTIAL // (degree + 4)
        # 256 times the useful costs stay below the cap, so that cutting does not weaken a bound in practice.
        room = max(cap // (256 * max(largest_cost, 1)), 1)
        return FixedPoint(min(1 << (room.bit_length() - 1), 1 << 24), cap // 2, cap)


@cached_njit(nogil=True, error_model="numpy")
def round_multipliers(multipliers, factor, most):  # type: ignore[no-untyped-def]
    """Return numerators and a shift: the multipliers (cost units per byte) in scaled units, rounded down to the finest
    grid of 1 / 2**shift on which their sum times `most` bytes stays below 2**60.

    Multipliers of which some are not finite are no better than none.
    """
    numerators, total = np.zeros(multipliers.size, np.int64), 0.0
    for t in range(multipliers.size):
        total += multipliers[t] * factor
    if not 0.0 < total < np.inf:
        return numerators, 0
    room = float((np.int64(1) << 60) // max(most, 1))
    shift = int(max(min(np.floor(np.log2(room / total)), 60.0), 0.0)) if room > 0.0 else 0
    unit = min(factor * 2.0**shift, room * factor / total)
    for t in range(multipliers.size):
        numerators[t] = max(int(multipliers[t] * unit), 0)
    return numerators, shift


@dataclass(frozen=True, slots=True)
class FixedPointMultipliers:
    """Lagrange multipliers by time step: numerators over 2**shift, in scaled cost units per byte."""

    numerators: Mapping[int, int]
    shift: int

    @staticmethod
    def of(multipliers: Mapping[int, float], scale: FixedPoint, most: int) -> FixedPointMultipliers:
        """Round multipliers (cost units per byte) down to the finest grid on which every product with at most `most`
        bytes stays in 62 bits."""
        numerators, shift = round_multipliers(np.array(list(multipliers.values()), np.float64), scale.factor, most)
        rounded = zip(multipliers, numerators.tolist(), strict=True)
        return FixedPointMultipliers({time_step: n for time_step, n in rounded if n > 0}, int(shift))

    def limit_term(self, limit: int) -> int:
        """Return sum_t p_t limit in scaled units, rounded up."""
        return -((-sum(self.numerators.values()) * limit) >> self.shift)

    def prefix_sums(self, time_steps: int) -> Integers:
        """Return, for each time step and the end, the sum of the numerators of all time steps before it."""
        shifted = np.zeros(time_steps + 1, np.int64)
        shifted[np.array(list(self.numerators), np.int64) + 1] = list(self.numerators.values())
        return np.cumsum(shifted)


@dataclass(frozen=True, slots=True, eq=False)
class Potentials:
    """Scaled costs: theta per strategy (flat), and the edges' matrices.

    Edge e's matrix begins at pair_at[e] in `pair`; its rows are the classes of the lower node. constant: the limit's
    term, to be subtracted.
    """

    theta: Integers
    pair: Integers
    pair_at: Integers
    scale: FixedPoint
    constant: int

    @property
    def cap(self) -> int:
        """The largest message; larger ones are cut down to it."""
        return self.scale.cap

    def bound(self, scaled: int) -> int:
        """Return the bound in cost units that a pass's constant proves, rounded up: costs are integers."""
        return -((self.constant - scaled) // self.scale.factor)

    def shifted(self, extra: Integers) -> Potentials:
        """Return the potentials with a scaled cost added to each strategy, for example to forbid some of them."""
        theta = np.minimum(self.theta + extra, self.scale.forbidden)
        return Potentials(theta, self.pair, self.pair_at, self.scale, self.constant)


def _scale_cost(cost: Integers, scale: FixedPoint) -> Integers:
    # What is forbidden gets the largest value: permitted costs can add up to more than IMPOSSIBLE.
    largest = scale.forbidden // scale.factor
    return np.where(cost >= IMPOSSIBLE, largest, np.minimum(cost, largest)) * scale.factor


@cached_njit(nogil=True, error_model="numpy")
def add_prices(  # type: ignore[no-untyped-def]
    node_start, span_node, span_start, span_stop, span_at, span_usage, prefix, shift, total
):
    """Add what each strategy's usage in each span costs to `total`; prefix: of numerators, by time step."""
    for q in range(span_node.size):
        first, multiplier = node_start[span_node[q]], prefix[span_stop[q]] - prefix[span_start[q]]
        if multiplier > 0:
            for x in range(node_start[span_node[q] + 1] - first):
                total[first + x] += (multiplier * span_usage[span_at[q] + x]) >> shift


@cached_njit(nogil=True, error_model="numpy")
def _expand_kinds(edges, turned, height, width, kind_start, pair_kind, entry_at, entries, pair):  # type: ignore[no-untyped-def]
    """Write the matrix of each of the edges, whose kinds have their entries from entry_at on; transposed if turned."""
    to = 0
    for q in range(edges.size):
        e, at = edges[q], entry_at[q]
        rows, columns, down, right = height[e], width[e], width[e], 1
        if turned[e]:
            rows, columns, down, right = columns, rows, right, down
        for r in range(rows):
            position = kind_start[e] + r * down
            for _ in range(columns):
                pair[to] = entries[at + pair_kind[position]]
                position += right
                to += 1


class LagrangianCosts:
    """Computes the potentials of a problem at given multipliers; edges with equal matrices and multipliers share one
    copy.

    theta: the scaled costs of the strategies. watched: the time steps that have had multipliers, ascending. usage: the
    problem's arrays with only those.
    """

    def __init__(
        self, graph: OrientedGraph, scale: FixedPoint, *, costs_count: bool = True, watched: Integers | None = None
    ) -> None:
        """costs_count: False replaces all costs by zero except forbidden ones, for bounds on usage alone. watched: what
        the problem's time steps are called, ascending (None: as in the problem)."""
        arrays = graph.arrays
        self._graph, self._arrays, self.scale = graph, arrays, scale
        cost, pair = arrays.cost, arrays.pair_cost
        if not costs_count:
            impossible = scale.forbidden // scale.factor
            cost = np.where(cost >= IMPOSSIBLE, impossible, 0)
            pair = np.where(pair >= IMPOSSIBLE, impossible, 0)
        self.theta, self._pair = _scale_cost(cost, scale), _scale_cost(pair, scale)
        self._unpriced: tuple[Integers, Integers] | None = None
        self._set_rows(arrays, watched)

    def _set_rows(self, arrays: ProblemArrays, watched: Integers | None) -> None:
        self.watched = np.zeros(0, np.int64) if watched is None else watched
        self.usage = arrays.at_time_steps(self.watched) if watched is None else arrays

    def with_rows(self, arrays: ProblemArrays, watched: Integers | None) -> LagrangianCosts:
        """Return the costs of the same problem with other capacity rows; watched: as in __init__."""
        if not arrays.edge_usage_edge.size:
            self.pairs(FixedPointMultipliers({}, 0))
        other = copy(self)
        other._arrays = arrays
        other._set_rows(arrays, watched)
        return other

    def watch(self, time_steps: Integers) -> None:
        """Have these time steps among `watched`, which ascend; `usage` has the problem's arrays with only those."""
        watched = np.union1d(self.watched, time_steps)
        if watched.size > self.watched.size:
            self.watched, self.usage = watched, self._arrays.at_time_steps(watched)

    @property
    def largest_usage(self) -> int:
        """The most bytes that a strategy or a pair uses over an interval of watched time steps."""
        return int(max(self.usage.span_usage.max(initial=0), self.usage.pair_usage.max(initial=0)))

    def with_multipliers(self, multipliers: Mapping[int, float], limit: int = 0) -> Potentials:
        """Return the potentials at these multipliers (cost units per byte, by time step) and this limit (bytes)."""
        time_steps = np.array(list(multipliers), np.int64)
        self.watch(time_steps)
        positions = np.searchsorted(self.watched, time_steps).tolist()
        watched = dict(zip(positions, multipliers.values(), strict=True))
        exact = FixedPointMultipliers.of(watched, self.scale, self.largest_usage)
        theta = self.theta
        if exact.numerators:
            theta = np.minimum(theta + self._price_usage(exact), self.scale.forbidden)
        pair, pair_at = self.pairs(exact)
        return Potentials(theta, pair, pair_at, self.scale, exact.limit_term(limit))

    def _price_usage(self, exact: FixedPointMultipliers) -> Integers:
        """Return the cost of each strategy's usage at these multipliers, in scaled units."""
        arrays = self.usage
        total = np.zeros(arrays.cost.size, np.int64)
        add_prices(
            arrays.node_start, arrays.span_node, arrays.span_start, arrays.span_stop, arrays.span_at,
            arrays.span_usage, exact.prefix_sums(arrays.time_steps), exact.shift, total,
        )  # fmt: skip
        return total

    def pairs(self, exact: FixedPointMultipliers) -> tuple[Integers, Integers]:
        """Return (pair, pair_at) of Potentials; without usage on edges they are the same at all multipliers."""
        if self._arrays.edge_usage_edge.size:
            return self._build_pairs(exact)
        if self._unpriced is None:
            self._unpriced = self._build_pairs(exact)
        return self._unpriced

    def _build_pairs(self, exact: FixedPointMultipliers) -> tuple[Integers, Integers]:
        arrays, keys = self._arrays, self._keys(exact)
        first = {key: e for e, key in reversed(list(enumerate(keys)))}
        offsets = dict(zip(first, compute_offsets([key[1] * key[2] for key in first]).tolist(), strict=False))
        pair = np.empty(sum(key[1] * key[2] for key in first), np.int64)
        # Entries that have their own prices are laid after those of the problem.
        priced = {key: self._entries(e, key, exact.shift) for key, e in first.items() if key[5]}
        sizes = [self._pair.size, *(entries.size for entries in priced.values())]
        entry_at = dict(zip(priced, compute_offsets(sizes)[1:].tolist(), strict=False))
        _expand_kinds(
            np.array(list(first.values()), np.int64), self._graph.turned, arrays.height, arrays.width,
            arrays.kind_start, arrays.pair_kind, np.array([entry_at.get(key, key[4]) for key in first], np.int64),
            np.concatenate([self._pair, *priced.values()]) if priced else self._pair, pair,
        )  # fmt: skip
        return pair, np.array([offsets[key] for key in keys], np.int64)

    def _keys(self, exact: FixedPointMultipliers) -> list[Key]:
        arrays = self.usage
        columns = (self._graph.turned, arrays.height, arrays.width, arrays.kind_start, arrays.pair_start)
        keys: list[Key] = [(*key, ()) for key in zip(*(column.tolist() for column in columns), strict=True)]
        if exact.numerators and arrays.edge_usage_edge.size:
            prefix = exact.prefix_sums(arrays.time_steps)
            multiplier = prefix[arrays.edge_usage_stop] - prefix[arrays.edge_usage_start]
            for u in np.flatnonzero(multiplier):
                e = int(arrays.edge_usage_edge[u])
                keys[e] = (*keys[e][:5], (*keys[e][5], (int(arrays.edge_usage_pair_start[u]), int(multiplier[u]))))
        return keys

    def _entries(self, e: int, key: Key, shift: int) -> Integers:
        """Return the scaled cost plus usage of each kind of pair of an edge."""
        arrays, start, count = self._arrays, key[4], int(self._arrays.kind_count[e])
        entries = self._pair[start : start + count]
        for usage_start, multiplier in key[5]:
            used = arrays.pair_usage[usage_start : usage_start + count]
            entries = np.minimum(entries + ((used * multiplier) >> shift), self.scale.forbidden)
        return entries
