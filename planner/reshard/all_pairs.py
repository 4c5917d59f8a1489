"""The cheapest chain of collectives between any two shardings of one kind of tensor.

The shardings of a tensor are the nodes of a graph and the exact basis moves its edges, each with the time the
cost model gives it; between any two alike partial there is an exchange as well. The distances are those of the
shortest paths (Bellman-Ford to all nodes at once, a node at a time so that later nodes profit in the same round; a
chain is short, so a few rounds are enough). Time O(rounds * hops per state * states^2), with states growing as
(dims + 2)^axes. What is not partial does not become so here: an op never wants it.

A chain frees each value when the next is made. Its buffer peak, with source s, target t and next state n:
    peak(s, t) = max(bytes(s) + bytes(n), peak(n, t)),   peak(t, t) = bytes(t).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

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
"""From one state: where the basis moves lead, and their times."""


@dataclass(frozen=True, eq=False)
class AllPairsResharding:
    """All pairs of shardings of a tensor type: time in ps, buffer peak in bytes, and the state after the first hop."""

    states: tuple[Sharding, ...]
    index: dict[Sharding, int]
    bytes: Integers
    time: Integers
    peak: Integers
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
        """The table of a tensor type; `reductions` are those its partial shardings may have.

        No dim is split into more parts than it has elements, but in the shardings of `also`. `units`: the mesh axes
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
        return cls(states, index, held, time, _buffer_peaks(held, following), following, web, cost)

    def cost_matrix(self, what: str) -> Integers:
        """[states, states] by source and target: `time` in ps, or bytes in use

        through   while a chain runs that frees its source;     copy     after it: the target's
        beside    while it runs next to a source that stays;    changed  after it: the target's, unless the same
        source    before it: the source's
        """
        match what:
            case "time":
                return self.time
            case "through":
                return self.peak
            case "beside":
                return self._peak_with_source
            case "changed":
                return self._target_bytes * ~np.eye(len(self.states), dtype=bool)
            case "source":
                return np.ascontiguousarray(self._target_bytes.T)
            case _:
                return self._target_bytes

    @cached_property
    def _target_bytes(self) -> Integers:
        return np.broadcast_to(self.bytes, (len(self.states),) * 2)

    @cached_property
    def _peak_with_source(self) -> Integers:
        """The chain from the first move's target on, which begins with that target held."""
        beside = self.peak[self.next_hop, np.arange(len(self.states))[None, :]]
        np.fill_diagonal(beside, 0)
        return beside

    def shortest_path(self, source: Sharding, target: Sharding) -> list[Collective]:
        """The moves from source to target. Raises InvalidSharding where there is no way."""
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
        """The basis move on the shortest way from one state to the next, or the exchange, if none is as fast."""
        ways = zip(self.graph.moves[at], self.cost[at].tolist(), strict=False) if at < len(self.graph.moves) else ()
        best = (move for (move, target), time in ways if target == to and time == self.time[at, to])
        return next(best, None) or Collective.exchange(self.states[at], self.states[to])


def _basis_hops(web: ReshardingGraph, cost: Integers, states: int) -> list[Hops]:
    """Of every state; those beyond the web's have none."""
    ends = zip(web.target, cost, web.has_move, strict=True)
    none = np.zeros(0, np.int64), np.zeros(0, np.int64)
    return [(to[there], time[there]) for to, time, there in ends] + [none] * (states - len(web.states))


def _exchange_times(states: tuple[Sharding, ...], kind: TensorType, model: CostModel) -> Integers:
    """[states, states]: time of the exchange from one to another; only between states alike partial."""
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
    """Distances and the state after the first hop, for every pair.

    `basis`: of every state; `direct`: [states, states]. An exchange that is no shortest way to where it leads is on no
    shortest way; and a hop to where nothing has changed since it was last tried gives nothing new.
    """
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
    """To where some of these hops shorten the way from a state; the first of the best is taken. `room` is used up."""
    if not len(hop):
        return np.zeros(len(time), bool)
    ways = np.take(time, hop, axis=0, out=room[: len(hop)], mode="clip")
    ways += price[:, None]
    least = ways.min(axis=0)
    better: NDArray[np.bool_] = least < time[state]
    if better.any():
        time[state, better] = least[better]
        following[state, better] = hop[ways.argmin(axis=0)[better]]
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
