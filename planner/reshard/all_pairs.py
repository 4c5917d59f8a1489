"""The cheapest chains of collectives between all pairs of shardings of one tensor type.

The shardings of a tensor are the nodes of a graph. The exact basis moves are its edges, with the times of the cost
model; two shardings with the same partial axes are also joined by an exchange. The distances are found by Bellman-Ford
to all targets at once. Nodes are relaxed one after the other, so that later nodes profit in the same round; chains are
short, and a few rounds are enough. Time is O(rounds * hops per state * states^2), and the states grow as
(dims + 2)^axes. No chain makes a value partial that is not: no op asks for it.

A chain frees each value when the next one is there. With source s, target t and next state n, its buffer peak is
    peak(s, t) = max(bytes(s) + bytes(n), peak(n, t)),   peak(t, t) = bytes(t).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.choose.axis_units import AxisUnits
from planner.choose.cost import CostModel
from planner.errors import InvalidSharding
from planner.ir.collectives import Collective
from planner.ir.graph import TensorType
from planner.ir.sharding import Reduction, Sharding
from planner.reshard.resharding_graph import UNREACHABLE, ReshardingGraph, SplitShape

Integers = NDArray[np.int64]
Hops = tuple[Integers, Integers]
"""The target states of the basis moves from one state, and their times in ps."""


@dataclass(frozen=True, eq=False)
class AllPairsResharding:
    """All pairs of shardings of a tensor type: time in ps, and the state after the first hop; and the bytes of each
    state."""

    states: tuple[Sharding, ...]
    index: dict[Sharding, int]
    bytes: Integers
    time: Integers
    next_hop: NDArray[np.int32]
    graph: ReshardingGraph
    cost: Integers

    @classmethod
    def of(
        cls,
        kind: TensorType,
        reductions: Iterable[Reduction],
        model: CostModel,
        also: Iterable[Sharding] = (),
        *,
        units: AxisUnits | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> AllPairsResharding:
        """Return the table of a tensor type.

        `reductions` are those that its partial shardings may have. No dim is split into more parts than it has
        elements, except in the shardings of `also`. `units`: the mesh axes
        that split a dim as one; None: those of the mesh. `tick` is called often, and what it raises ends the work.
        """
        web = ReshardingGraph.of(SplitShape.of(kind.shape, tuple(sorted(set(reductions))), model.mesh, units))
        states = tuple(dict.fromkeys((*web.states, *also)))
        index = {state: i for i, state in enumerate(states)}
        held = np.array([model.shard_bytes(kind, state) for state in states], np.int64)
        cost = web.cost(held[: len(web.states)], kind, model)
        time, following = _all_pairs_shortest(
            _basis_hops(web, cost, len(states)), _exchange_times(states, kind, model), tick
        )
        return cls(states, index, held, time, following, web, cost)

    def buffer_peaks(self) -> tuple[Integers, Integers]:
        """Return the most bytes `[states, states]` that each chain holds: with its source, which it frees, and beside a
        source that stays."""
        peak = _buffer_peaks(self.bytes, self.next_hop)
        # What is held beside the source is what the chain holds from the first move's result on.
        beside = peak[self.next_hop, np.arange(len(self.states))[None, :]]
        np.fill_diagonal(beside, 0)
        return peak, beside

    def shortest_path(self, source: Sharding, target: Sharding) -> list[Collective]:
        """Return the moves from source to target. Raises InvalidSharding where there is no path."""
        at, end = self.index.get(source, -1), self.index.get(target, -1)
        if min(at, end) < 0 or self.time[at, end] >= UNREACHABLE:
            raise InvalidSharding("no way to reshard", got=str(source), wanted=str(target))
        found = []
        while at != end:
            hop = int(self.next_hop[at, end])
            found.append(self._next_move(at, hop))
            at = hop
        return found

    def _next_move(self, at: int, to: int) -> Collective:
        """Return the basis move from one state to the next on a shortest path; the exchange where none is as fast."""
        moves = zip(self.graph.moves[at], self.cost[at].tolist(), strict=False) if at < len(self.graph.moves) else ()
        best = (move for (move, target), time in moves if target == to and time == self.time[at, to])
        return next(best, None) or Collective.exchange(self.states[at], self.states[to])


def _basis_hops(web: ReshardingGraph, cost: Integers, states: int) -> list[Hops]:
    """Return the hops of each state; states that the resharding graph does not have, have none."""
    ends = zip(web.target, cost, web.has_move, strict=True)
    none = np.zeros(0, np.int64), np.zeros(0, np.int64)
    return [(to[there], time[there]) for to, time, there in ends] + [none] * (states - len(web.states))


def _exchange_times(states: tuple[Sharding, ...], kind: TensorType, model: CostModel) -> Integers:
    """Return the times of exchanges `[states, states]`; UNREACHABLE where the partial axes differ."""
    time = np.full((len(states),) * 2, UNREACHABLE, np.int64)
    alike: dict[object, list[int]] = {}
    for i, state in enumerate(states):
        alike.setdefault((state.partial, state.reduction), []).append(i)
    for group in alike.values():
        ends = [states[i] for i in group]
        time[np.ix_(group, group)] = model.exchanges_ps(ends, ends, kind)
    return time


def _all_pairs_shortest(
    basis: Sequence[Hops], direct: Integers, tick: Callable[[], None]
) -> tuple[Integers, NDArray[np.int32]]:
    """Return the distances, and the state after the first hop, of every pair.

    `basis` are the hops of each state, `direct` the times of exchanges `[states, states]`.
    """
    # `alone[s, t]`: the exchange from s to t is still the shortest path to t. Where it is not, it is on no shortest
    # path at all and is not tried again. A hop to a state that has not changed since the last try gives nothing new.
    count = len(direct)
    time, alone = direct.copy(), direct < UNREACHABLE
    np.fill_diagonal(time, 0)
    np.fill_diagonal(alone, False)
    following = np.broadcast_to(np.arange(count, dtype=np.int32), (count, count)).copy()
    changed, tried, turn = np.zeros(count, np.int64), np.full(count, -1), 0
    room = np.empty((count + max(len(hop) for hop, _ in basis), count), np.int64)
    while changed.max() > tried.min():
        for state, (target, cost) in enumerate(basis):
            tick()
            new = changed > tried[state]
            exchanged = np.flatnonzero(alone[state] & new)
            hop = np.concatenate([target[new[target]], exchanged])
            price = np.concatenate([cost[new[target]], direct[state, exchanged]])
            tried[state] = turn
            better = _relax_hops(hop, price, state, time=time, following=following, room=room)
            if better.any():
                alone[state, better] = False
                turn += 1
                changed[state] = turn
    return time, following


def _relax_hops(
    hop: Integers, price: Integers, state: int, *, time: Integers, following: NDArray[np.int32], room: Integers
) -> NDArray[np.bool_]:
    """Relax hops from a state; return the targets that they bring nearer. `room` is overwritten."""
    if not len(hop):
        return np.zeros(len(time), bool)
    # mode="clip" lets numpy write into `room` without a buffer; all hops are in range.
    through = np.take(time, hop, axis=0, out=room[: len(hop)], mode="clip")
    through += price[:, None]
    least = through.min(axis=0)
    better: NDArray[np.bool_] = least < time[state]
    nearer = np.flatnonzero(better)
    if nearer.size:
        time[state, nearer] = least[nearer]
        # Mostly few targets come nearer: looking for their hops alone is much faster.
        following[state, nearer] = hop[through[:, nearer].argmin(axis=0)]
    return better


def _buffer_peaks(held: Integers, following: NDArray[np.int32]) -> Integers:
    count = len(held)
    targets = np.broadcast_to(np.arange(count), (count, count))
    peak = np.broadcast_to(held, (count, count)).copy()
    done = False
    while not done:
        longer = np.maximum(held[:, None] + held[following], peak[following, targets])
        np.fill_diagonal(longer, held)
        done = bool((longer == peak).all())
        peak = longer
    return peak
