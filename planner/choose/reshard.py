"""The cheapest chain of basis moves between any two shardings of one kind of tensor.

The shardings of a tensor are the nodes of a graph and the exact basis moves its edges, each with the time the
cost model gives it; the distances are those of the shortest paths (Bellman-Ford to all nodes at once, a node at
a time so that later nodes profit in the same round; a chain is short, so a few rounds are enough). Time
O(rounds * moves per state * states^2), with states growing as (dims + 2)^axes. Every layout reaches every other
(gather all, then slice); what is not partial cannot become partial.

A chain frees each value when the next is made. Its buffer peak, with source s, target t and next state n:
    peak(s, t) = max(bytes(s) + bytes(n), peak(n, t)),   peak(t, t) = bytes(t).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from planner.choose.cost import CostModel
from planner.choose.options import layouts
from planner.errors import InvalidSharding
from planner.model.collectives import Collective, moves
from planner.model.graph import TensorType
from planner.model.mesh import Mesh
from planner.model.sharding import Reduction, Sharding

UNREACHABLE = 1 << 60
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Distances:
    """All pairs of shardings of one tensor type: time in ps, buffer peak in bytes, and the first move."""

    states: tuple[Sharding, ...]
    index: dict[Sharding, int]
    bytes: Integers
    time: Integers
    peak: Integers
    first: NDArray[np.int32]
    moves: tuple[tuple[tuple[Collective, int], ...], ...]

    @classmethod
    def of(
        cls, kind: TensorType, reductions: Iterable[Reduction], model: CostModel, also: Iterable[Sharding] = ()
    ) -> Distances:
        """The table of a tensor type; `reductions` are those its partial shardings may have.

        No dim is split into more parts than it has elements, but in the shardings of `also`.
        """
        states = tuple(dict.fromkeys((*_states(kind, sorted(set(reductions)), model.mesh), *also)))
        index = {state: i for i, state in enumerate(states)}
        steps = tuple(
            tuple((m, index[target]) for m, target in moves(state, kind.shape, model.mesh) if target in index)
            for state in states
        )
        width = max(1, max(map(len, steps)))
        target = np.array([[n for _, n in out] + [i] * (width - len(out)) for i, out in enumerate(steps)], np.int64)
        cost = np.full(target.shape, UNREACHABLE, np.int64)
        for i, (state, out) in enumerate(zip(states, steps, strict=True)):
            cost[i, : len(out)] = [model.move_ps(move, state, kind) for move, _ in out]
        time, first = _shortest(target, cost)
        held = np.array([model.shard_bytes(kind, state) for state in states], np.int64)
        return cls(states, index, held, time, _peaks(held, first, target), first, steps)

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
        place = np.arange(len(self.states))
        following = np.full(self.time.shape, -1, np.int64)
        for state, out in enumerate(self.moves):
            targets = np.array([target for _, target in out] + [-1], np.int64)
            following[state] = targets[self.first[state]]
        return np.where(following < 0, 0, self.peak[following, place[None, :]])

    def chain(self, source: Sharding, target: Sharding) -> list[Collective]:
        """The moves from source to target. Raises InvalidSharding where there is no way."""
        at, end = self.index.get(source, -1), self.index.get(target, -1)
        if min(at, end) < 0 or self.time[at, end] >= UNREACHABLE:
            raise InvalidSharding("no way to reshard", got=str(source), wanted=str(target))
        found = []
        while at != end:
            move, at = self.moves[at][self.first[at, end]]
            found.append(move)
        return found


def _states(kind: TensorType, reductions: list[Reduction], mesh: Mesh) -> list[Sharding]:
    whole = layouts(kind, mesh)
    axes = [axis for axis, size in enumerate(mesh.shape) if size > 1]
    partials = [part for n in range(1, len(axes) + 1) for part in combinations(axes, n)]
    return whole + [
        Sharding(state.split_axes, part, reduction)
        for part in partials
        for state in whole
        if not {axis for axes in state.split_axes for axis in axes} & set(part)
        for reduction in reductions
    ]


def _shortest(target: Integers, cost: Integers) -> tuple[Integers, NDArray[np.int32]]:
    """Distances and the number of the first move, for every pair; `target`, `cost`: [states, moves]."""
    count = len(target)
    everywhere = np.arange(count)
    time = np.full((count, count), UNREACHABLE, np.int64)
    np.fill_diagonal(time, 0)
    first = np.full((count, count), -1, np.int32)
    changed = True
    while changed:
        changed = False
        for state in range(count):
            through = cost[state, :, None] + time[target[state]]
            move = through.argmin(axis=0)
            best = through[move, everywhere]
            better = best < time[state]
            if better.any():
                time[state, better] = best[better]
                first[state, better] = move[better]
                changed = True
    return time, first


def _peaks(held: Integers, first: NDArray[np.int32], target: Integers) -> Integers:
    count = len(held)
    following = np.where(first < 0, np.arange(count)[:, None], np.take_along_axis(target, np.maximum(first, 0), 1))
    targets = np.broadcast_to(np.arange(count), (count, count))
    peak = np.broadcast_to(held, (count, count)).copy()
    done = False
    while not done:
        longer = np.maximum(held[:, None] + held[following], peak[following, targets])
        longer = np.where(first < 0, peak, longer)
        done = bool((longer == peak).all())
        peak = longer
    return peak
