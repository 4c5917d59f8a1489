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

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from math import lcm, prod

import numpy as np
from numpy.typing import NDArray

from planner.choose.cost import CostModel
from planner.choose.options import layouts
from planner.errors import InvalidSharding
from planner.model.collectives import Collective, Kind, moves
from planner.model.graph import TensorType
from planner.model.mesh import Mesh
from planner.model.sharding import Axes, Reduction, Shape, Sharding

UNREACHABLE = 1 << 60
DIRECT = -2
"""In place of the number of a first move: one exchange leads there."""
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Distances:
    """All pairs of shardings of a tensor type: time in ps, buffer peak in bytes, and the state after the first hop."""

    states: tuple[Sharding, ...]
    index: dict[Sharding, int]
    bytes: Integers
    time: Integers
    peak: Integers
    following: NDArray[np.int32]
    hops: tuple[dict[int, Collective], ...]

    @classmethod
    def of(
        cls, kind: TensorType, reductions: Iterable[Reduction], model: CostModel, also: Iterable[Sharding] = ()
    ) -> Distances:
        """The table of a tensor type; `reductions` are those its partial shardings may have.

        No dim is split into more parts than it has elements, but in the shardings of `also`.
        """
        web = _Web.of(_alike(kind.shape, model.mesh), tuple(sorted(set(reductions))), model.mesh)
        states = tuple(dict.fromkeys((*web.states, *also)))
        index = {state: i for i, state in enumerate(states)}
        direct = _direct(states, kind, model)
        held = np.array([model.shard_bytes(kind, state) for state in states], np.int64)
        target, cost = web.target_and_cost(held, kind, model)
        time, following = _shortest(target, cost, direct)
        return cls(states, index, held, time, _peaks(held, following), following, web.hops(cost, direct))

    def between(self, what: str) -> Integers:
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
                return self._beside
            case "changed":
                return self._copy * ~np.eye(len(self.states), dtype=bool)
            case "source":
                return np.ascontiguousarray(self._copy.T)
            case _:
                return self._copy

    @cached_property
    def _copy(self) -> Integers:
        return np.broadcast_to(self.bytes, (len(self.states),) * 2)

    @cached_property
    def _beside(self) -> Integers:
        """The chain from the first move's target on, which begins with that target held."""
        beside = self.peak[self.following, np.arange(len(self.states))[None, :]]
        np.fill_diagonal(beside, 0)
        return beside

    def chain(self, source: Sharding, target: Sharding) -> list[Collective]:
        """The moves from source to target. Raises InvalidSharding where there is no way."""
        at, end = self.index.get(source, -1), self.index.get(target, -1)
        if min(at, end) < 0 or self.time[at, end] >= UNREACHABLE:
            raise InvalidSharding("no way to reshard", got=str(source), wanted=str(target))
        found = []
        while at != end:
            hop = int(self.following[at, end])
            found.append(self.hops[at].get(hop) or Collective.exchange(self.states[at], self.states[hop]))
            at = hop
        return found


@dataclass(frozen=True, eq=False)
class _Web:
    """The shardings of all tensors whose dims are split alike, and per sharding the basis moves, with where they lead.

    The time of a move depends on the collective and on bytes alone.
    """

    states: tuple[Sharding, ...]
    moves: tuple[tuple[tuple[Collective, int], ...], ...]

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, shape: Shape, reductions: tuple[Reduction, ...], mesh: Mesh) -> _Web:
        states = tuple(_states(shape, reductions, mesh))
        index = {state: i for i, state in enumerate(states)}
        return cls(
            states, tuple(tuple((m, index[to]) for m, to in moves(each, shape, mesh) if to in index) for each in states)
        )

    def target_and_cost(self, held: Integers, kind: TensorType, model: CostModel) -> tuple[Integers, Integers]:
        """[states, moves] targets and times, given the bytes of every state; states beyond these have no move."""
        width = max(1, max(map(len, self.moves)))
        target = np.broadcast_to(np.arange(len(held))[:, None], (len(held), width)).copy()
        cost = np.full(target.shape, UNREACHABLE, np.int64)
        known: dict[tuple[Kind, Axes, int], int] = {}
        sizes = held.tolist()
        for i, (state, each) in enumerate(zip(self.states, self.moves, strict=True)):
            for k, (move, to) in enumerate(each):
                like = move.kind, move.axes, sizes[to if move.kind is Kind.ALL_SLICE else i]
                if like not in known:
                    known[like] = model.move_ps(move, state, kind)
                target[i, k], cost[i, k] = to, known[like]
        return target, cost

    def hops(self, cost: Integers, direct: Integers) -> tuple[dict[int, Collective], ...]:
        """The cheapest basis move by target, of those that no exchange beats."""
        found: list[dict[int, Collective]] = []
        for each, times, exchanged in zip(self.moves, cost.tolist(), direct.tolist(), strict=False):
            best: dict[int, tuple[int, Collective]] = {}
            for (move, to), time in zip(each, times, strict=False):
                if time <= exchanged[to] and (to not in best or time < best[to][0]):
                    best[to] = time, move
            found.append({to: move for to, (_, move) in best.items()})
        return tuple(found) + ({},) * (len(cost) - len(found))


def _alike(shape: Shape, mesh: Mesh) -> Shape:
    """The least shape whose dims the mesh splits alike, exactly and not, into the same shardings."""
    groups = {prod(sizes) for n in range(len(mesh.shape) + 1) for sizes in combinations(mesh.shape, n)}
    fitting = [[group for group in groups if group <= size] for size in shape]
    return tuple(
        lcm(*each) if all(size % group == 0 for group in each) else size
        for size, each in zip(shape, fitting, strict=True)
    )


def _states(shape: Shape, reductions: tuple[Reduction, ...], mesh: Mesh) -> list[Sharding]:
    whole = layouts(TensorType(shape, "bool"), mesh)
    axes = [axis for axis, size in enumerate(mesh.shape) if size > 1]
    partials = [part for n in range(1, len(axes) + 1) for part in combinations(axes, n)]
    return whole + [
        Sharding(state.split_axes, part, reduction)
        for part in partials
        for state in whole
        if not {axis for axes in state.split_axes for axis in axes} & set(part)
        for reduction in reductions
    ]


def _direct(states: tuple[Sharding, ...], kind: TensorType, model: CostModel) -> Integers:
    """[states, states]: time of the exchange from one to another; only between states alike partial."""
    time = np.full((len(states),) * 2, UNREACHABLE, np.int64)
    alike: dict[object, list[int]] = {}
    for i, state in enumerate(states):
        alike.setdefault((state.partial, state.reduction), []).append(i)
    for group in alike.values():
        ends = [states[i] for i in group]
        time[np.ix_(group, group)] = model.exchanges_ps(ends, ends, kind)
    return time


def _shortest(target: Integers, cost: Integers, direct: Integers) -> tuple[Integers, NDArray[np.int32]]:
    """Distances and the state after the first hop, for every pair.

    `target`, `cost`: [states, moves], by number of the move; `direct`: [states, states]. An exchange that is no
    shortest way to where it leads is on no shortest way.
    """
    count = len(target)
    everywhere = np.arange(count)
    time = direct.copy()
    np.fill_diagonal(time, 0)
    following = np.broadcast_to(everywhere, (count, count)).astype(np.int32)
    changed = True
    while changed:
        changed = False
        for state in range(count):
            exchanged = np.flatnonzero((time[state] == direct[state]) & (direct[state] < UNREACHABLE))
            hop = np.concatenate([target[state], exchanged])
            through = np.concatenate([cost[state], direct[state, exchanged]])[:, None] + time[hop]
            best = through.argmin(axis=0)
            least = through[best, everywhere]
            better = least < time[state]
            if better.any():
                time[state, better] = least[better]
                following[state, better] = hop[best[better]]
                changed = True
    return time, following


def _peaks(held: Integers, following: NDArray[np.int32]) -> Integers:
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
