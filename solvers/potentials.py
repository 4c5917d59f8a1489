"""Scaled integer costs for message passing: a problem's costs plus the price of its usage.

With prices p_t >= 0 per byte at moments t, every choice within the limit has
cost >= cost + sum_t p_t (usage_t - limit): the Lagrangian. Prices are rationals numerator / 2**shift, a node's price is
the prefix-sum difference over its interval times its bytes, rounded down, and the limit's term is
rounded up, so the bound stays exact. Costs are multiplied by a scale to leave room for fractions; values are cut
down to `forbidden`, far above any useful cost, which also only lowers the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.model import IMPOSSIBLE
from solvers.oriented_graph import OrientedGraph

Integers = NDArray[np.int64]

# Turned round?, the matrix's place, and (the usage matrix's place, its price) for each priced usage.
Key = tuple[bool, int, tuple[tuple[int, int], ...]]

MAX_POTENTIAL = 1 << 61


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """factor: scaled units per unit of cost; forbidden, cap: where scaled costs and messages are cut."""

    factor: int
    forbidden: int
    cap: int

    @staticmethod
    def of(degree: int, dear: int) -> FixedPoint:
        """For nodes of at most `degree` edges and useful costs up to `dear`."""
        cap = MAX_POTENTIAL // (degree + 4)
        room = max(cap // (256 * max(dear, 1)), 1)
        return FixedPoint(min(1 << (room.bit_length() - 1), 1 << 24), cap // 2, cap)


@dataclass(frozen=True, slots=True)
class FixedPointMultipliers:
    """Prices per byte at some moments, as integers over 2**shift of a scaled unit."""

    numerators: Mapping[int, int]
    shift: int

    @staticmethod
    def of(multipliers: Mapping[int, float], scale: FixedPoint, largest_usage: int) -> FixedPointMultipliers:
        """The nearest prices below that keep every product within 62 bits."""
        total = sum(multipliers.values()) * scale.factor
        if total <= 0:
            return FixedPointMultipliers({}, 0)
        room = (1 << 60) // max(largest_usage, 1)
        shift = max(min(int(np.floor(np.log2(room / total))), 60), 0)
        unit = min(scale.factor * 2.0**shift, room * scale.factor / total)
        numerators = {moment: int(price * unit) for moment, price in multipliers.items()}
        return FixedPointMultipliers({moment: n for moment, n in numerators.items() if n > 0}, shift)

    def limit_term(self, limit: int) -> int:
        """What the limit is worth at these prices, in scaled units, rounded up."""
        return -((-sum(self.numerators.values()) * limit) >> self.shift)

    def over(self, start: Integers, stop: Integers, time_steps: int) -> Integers:
        """The summed numerators over half-open intervals."""
        at = np.zeros(time_steps + 1, np.int64)
        for time_step, numerator in self.numerators.items():
            at[time_step + 1] = numerator
        prefix = np.cumsum(at)
        return prefix[stop] - prefix[start]


@dataclass(frozen=True, slots=True, eq=False)
class Potentials:
    """theta per strategy, pair matrices in both orientations (pair leads from the lower to the higher node)."""

    theta: Integers
    pair: Integers
    pair_transposed: Integers
    pair_at: Integers
    scale: FixedPoint
    constant: int

    @property
    def cap(self) -> int:
        """Where messages are cut."""
        return self.scale.cap

    def bound(self, scaled: int) -> int:
        """The cost bound in whole units that a pass's constant proves (costs are integers, so it rounds up)."""
        return -((self.constant - scaled) // self.scale.factor)

    def shifted(self, extra: Integers) -> Potentials:
        """The same with something added to each strategy (noise, or the forbidden ones of a restriction)."""
        theta = np.minimum(self.theta + extra, self.scale.forbidden)
        return Potentials(theta, self.pair, self.pair_transposed, self.pair_at, self.scale, self.constant)


def _scale_cost(cost: Integers, scale: FixedPoint) -> Integers:
    return np.minimum(cost, scale.forbidden // scale.factor) * scale.factor


class LagrangianCosts:
    """Makes potentials of a problem at given prices; edges with equal matrices and prices share one copy."""

    def __init__(self, graph: OrientedGraph, scale: FixedPoint, costs_count: bool = True) -> None:
        arrays = graph.arrays
        self._graph, self._layout, self.scale = graph, arrays, scale
        cost, pair = arrays.cost, arrays.pair_cost
        if not costs_count:
            impossible = scale.forbidden // scale.factor
            cost = np.where(cost >= IMPOSSIBLE, impossible, 0)
            pair = np.where(pair >= IMPOSSIBLE, impossible, 0)
        self._theta, self._pair = _scale_cost(cost, scale), _scale_cost(pair, scale)
        self.largest_usage = int(max(arrays.span_usage.max(initial=0), arrays.pair_usage.max(initial=0)))
        self._blocks: dict[Key, tuple[Integers, Integers]] = {}
        sizes = np.diff(arrays.node_start)
        self._span_sizes = sizes[arrays.span_node]
        # The strategy of each usage of a further span.
        begin = np.repeat(arrays.node_start[arrays.span_node] - arrays.span_at, self._span_sizes)
        self._strategy = (begin + np.arange(begin.size))[arrays.cost.size :]
        self._unpriced: tuple[Integers, Integers, Integers] | None = None

    def with_multipliers(self, multipliers: Mapping[int, float], limit: int = 0) -> Potentials:
        """Potentials with usage priced; prices in cost units per byte at moments."""
        exact = FixedPointMultipliers.of(multipliers, self.scale, self.largest_usage)
        theta = self._theta
        if exact.numerators:
            theta = np.minimum(theta + self._price_usage(exact), self.scale.forbidden)
        pair, transposed, pair_at = self._pairs(exact)
        return Potentials(theta, pair, transposed, pair_at, self.scale, exact.limit_term(limit))

    def _price_usage(self, exact: FixedPointMultipliers) -> Integers:
        """Each strategy's usage at these prices, in scaled units."""
        arrays = self._layout
        multiplier = exact.over(arrays.span_start, arrays.span_stop, arrays.time_steps)
        worth = (np.repeat(multiplier, self._span_sizes) * arrays.span_usage) >> exact.shift
        total = worth[: arrays.cost.size]
        np.add.at(total, self._strategy, worth[arrays.cost.size :])
        return total

    def _pairs(self, exact: FixedPointMultipliers) -> tuple[Integers, Integers, Integers]:
        if self._layout.edge_usage_edge.size:
            return self._build_pairs(exact)
        if self._unpriced is None:
            self._unpriced = self._build_pairs(exact)
        return self._unpriced

    def _build_pairs(self, exact: FixedPointMultipliers) -> tuple[Integers, Integers, Integers]:
        keys = self._keys(exact)
        offsets: dict[Key, int] = {}
        parts: list[tuple[Integers, Integers]] = []
        size, pair_at = 0, np.zeros(len(keys), np.int64)
        for e, key in enumerate(keys):
            if key not in offsets:
                block = self._blocks.get(key)
                if block is None:
                    block = self._block(e, key, exact.shift)
                    if not key[2]:
                        self._blocks[key] = block
                offsets[key] = size
                parts.append(block)
                size += block[0].size
            pair_at[e] = offsets[key]
        empty = [np.zeros(0, np.int64)]
        return (
            np.concatenate([block[0] for block in parts] or empty),
            np.concatenate([block[1] for block in parts] or empty),
            pair_at,
        )

    def _keys(self, exact: FixedPointMultipliers) -> list[Key]:
        arrays, graph = self._layout, self._graph
        turned, starts = graph.turned.tolist(), arrays.pair_start.tolist()
        keys: list[Key] = [(*key, ()) for key in zip(turned, starts, strict=True)]
        if exact.numerators and arrays.edge_usage_edge.size:
            multiplier = exact.over(arrays.edge_usage_start, arrays.edge_usage_stop, arrays.time_steps)
            for u in np.flatnonzero(multiplier):
                e = int(arrays.edge_usage_edge[u])
                keys[e] = (*keys[e][:2], (*keys[e][2], (int(arrays.edge_usage_pair_start[u]), int(multiplier[u]))))
        return keys

    def _block(self, e: int, key: Key, shift: int) -> tuple[Integers, Integers]:
        arrays = self._layout
        height, width = int(arrays.height[e]), int(arrays.width[e])
        start = int(arrays.pair_start[e])
        matrix = self._pair[start : start + height * width]
        for usage_start, multiplier in key[2]:
            used = arrays.pair_usage[usage_start : usage_start + height * width]
            matrix = np.minimum(matrix + ((used * multiplier) >> shift), self.scale.forbidden)
        square = matrix.reshape(height, width)
        straight, turned = square.ravel(), np.ascontiguousarray(square.T).ravel()
        return (turned, straight) if key[0] else (straight, turned)
