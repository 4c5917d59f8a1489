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

from solvers.parts import IMPOSSIBLE
from solvers.topology import Topology

Integers = NDArray[np.int64]

# Turned round?, the matrix's place, and (the usage matrix's place, its price) for each priced usage.
Key = tuple[bool, int, tuple[tuple[int, int], ...]]

ROOM = 1 << 61


@dataclass(frozen=True, slots=True)
class Scale:
    """factor: scaled units per unit of cost; forbidden, cap: where scaled costs and messages are cut."""

    factor: int
    forbidden: int
    cap: int

    @staticmethod
    def of(degree: int, dear: int) -> Scale:
        """For nodes of at most `degree` edges and useful costs up to `dear`."""
        cap = ROOM // (degree + 4)
        room = max(cap // (256 * max(dear, 1)), 1)
        return Scale(min(1 << (room.bit_length() - 1), 1 << 24), cap // 2, cap)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per byte at some moments, as integers over 2**shift of a scaled unit."""

    numerators: Mapping[int, int]
    shift: int

    @staticmethod
    def of(prices: Mapping[int, float], scale: Scale, largest_usage: int) -> Prices:
        """The nearest prices below that keep every product within 62 bits."""
        total = sum(prices.values()) * scale.factor
        if total <= 0:
            return Prices({}, 0)
        room = (1 << 60) // max(largest_usage, 1)
        shift = max(min(int(np.floor(np.log2(room / total))), 60), 0)
        unit = min(scale.factor * 2.0**shift, room * scale.factor / total)
        numerators = {moment: int(price * unit) for moment, price in prices.items()}
        return Prices({moment: n for moment, n in numerators.items() if n > 0}, shift)

    def limit_term(self, limit: int) -> int:
        """What the limit is worth at these prices, in scaled units, rounded up."""
        return -((-sum(self.numerators.values()) * limit) >> self.shift)

    def over(self, start: Integers, stop: Integers, moments: int) -> Integers:
        """The summed numerators over half-open intervals."""
        at = np.zeros(moments + 1, np.int64)
        for moment, numerator in self.numerators.items():
            at[moment + 1] = numerator
        prefix = np.cumsum(at)
        return prefix[stop] - prefix[start]


@dataclass(frozen=True, slots=True, eq=False)
class Potentials:
    """theta per strategy, pair matrices in both orientations (pair leads from the lower to the higher node)."""

    theta: Integers
    pair: Integers
    pair_transposed: Integers
    pair_at: Integers
    scale: Scale
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


def _scaled(cost: Integers, scale: Scale) -> Integers:
    return np.minimum(cost, scale.forbidden // scale.factor) * scale.factor


class Pricing:
    """Makes potentials of a problem at given prices; edges with equal matrices and prices share one copy."""

    def __init__(self, topology: Topology, scale: Scale, costs_count: bool = True) -> None:
        layout = topology.layout
        self._topology, self._layout, self.scale = topology, layout, scale
        cost, pair = layout.cost, layout.pair_cost
        if not costs_count:
            impossible = scale.forbidden // scale.factor
            cost = np.where(cost >= IMPOSSIBLE, impossible, 0)
            pair = np.where(pair >= IMPOSSIBLE, impossible, 0)
        self._theta, self._pair = _scaled(cost, scale), _scaled(pair, scale)
        self.largest_usage = int(max(layout.span_usage.max(initial=0), layout.pair_usage.max(initial=0)))
        self._blocks: dict[Key, tuple[Integers, Integers]] = {}
        sizes = np.diff(layout.node_start)
        self._span_sizes = sizes[layout.span_node]
        # The strategy of each usage of a further span.
        begin = np.repeat(layout.node_start[layout.span_node] - layout.span_at, self._span_sizes)
        self._strategy = (begin + np.arange(begin.size))[layout.cost.size :]
        self._unpriced: tuple[Integers, Integers, Integers] | None = None

    def at(self, prices: Mapping[int, float], limit: int = 0) -> Potentials:
        """Potentials with usage priced; prices in cost units per byte at moments."""
        exact = Prices.of(prices, self.scale, self.largest_usage)
        theta = self._theta
        if exact.numerators:
            theta = np.minimum(theta + self._usage_priced(exact), self.scale.forbidden)
        pair, transposed, pair_at = self._pairs(exact)
        return Potentials(theta, pair, transposed, pair_at, self.scale, exact.limit_term(limit))

    def _usage_priced(self, exact: Prices) -> Integers:
        """Each strategy's usage at these prices, in scaled units."""
        layout = self._layout
        price = exact.over(layout.span_start, layout.span_stop, layout.moments)
        worth = (np.repeat(price, self._span_sizes) * layout.span_usage) >> exact.shift
        total = worth[: layout.cost.size]
        np.add.at(total, self._strategy, worth[layout.cost.size :])
        return total

    def _pairs(self, exact: Prices) -> tuple[Integers, Integers, Integers]:
        if self._layout.edge_usage_edge.size:
            return self._joined(exact)
        if self._unpriced is None:
            self._unpriced = self._joined(exact)
        return self._unpriced

    def _joined(self, exact: Prices) -> tuple[Integers, Integers, Integers]:
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

    def _keys(self, exact: Prices) -> list[Key]:
        layout, topology = self._layout, self._topology
        turned, starts = topology.turned.tolist(), layout.pair_start.tolist()
        keys: list[Key] = [(*key, ()) for key in zip(turned, starts, strict=True)]
        if exact.numerators and layout.edge_usage_edge.size:
            price = exact.over(layout.edge_usage_start, layout.edge_usage_stop, layout.moments)
            for u in np.flatnonzero(price):
                e = int(layout.edge_usage_edge[u])
                keys[e] = (*keys[e][:2], (*keys[e][2], (int(layout.edge_usage_pair_start[u]), int(price[u]))))
        return keys

    def _block(self, e: int, key: Key, shift: int) -> tuple[Integers, Integers]:
        layout = self._layout
        height, width = int(layout.height[e]), int(layout.width[e])
        start = int(layout.pair_start[e])
        matrix = self._pair[start : start + height * width]
        for usage_start, price in key[2]:
            used = layout.pair_usage[usage_start : usage_start + height * width]
            matrix = np.minimum(matrix + ((used * price) >> shift), self.scale.forbidden)
        square = matrix.reshape(height, width)
        straight, turned = square.ravel(), np.ascontiguousarray(square.T).ravel()
        return (turned, straight) if key[0] else (straight, turned)
