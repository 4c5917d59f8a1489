"""The cheapest program between two shardings of one tensor, on meshes too large for a table of all pairs.

Shardings are the nodes of a graph. Its edges: the exact basis moves; from every node one exchange to the target; from
halos or offsets one exchange to plain blocks over the same axes. A* (Hart, Nilsson, Raphael, "A Formal Basis for the
Heuristic Determination of Minimum Cost Paths", 1968) finds the shortest way in it. To the target it is never less than

    launch + elements all devices lack (`planner.choose.lacking`) / devices / bandwidth of the fastest link

since what a collective is priced at is never less than what its devices receive on average. The direct exchange is
the first incumbent; what cannot beat the incumbent is not looked at.

Objective `bytes`: bytes that all devices receive, then time. With a limit, a step needs room for what a device holds
before it and after it, and there is no edge where that is more. The least limit is that of the way whose worst step
is least (the same search, with the larger of two steps in place of their sum).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate, count, pairwise, starmap

import numpy as np
from numpy.typing import NDArray

from planner.choose.cost import PICO, CostModel
from planner.choose.footprint import Footprints, received_with_terms
from planner.choose.hardware.network import Link
from planner.choose.lacking import Lacking
from planner.errors import InvalidRequest
from planner.model.accounts import held_bytes
from planner.model.collectives import Collective, Kind, moves, received_elements
from planner.model.graph import Graph, Input, TensorType
from planner.model.program import Move, Program
from planner.model.sharding import Axes, Sharding

Integers = NDArray[np.int64]
PS = 1 << 8
"""A picosecond in what a way costs. What is less counts its exchanges: of equally fast ways one of few is taken."""
BYTE = PS << 64
"""A byte where bytes come first: dearer than any time."""
FAR = 1 << 200


class Objective(StrEnum):
    """What a program has least of."""

    TIME = "time"
    BYTES = "bytes"


@dataclass(frozen=True)
class Route:
    """A program from one sharding of a tensor to another, with its figures."""

    source: Sharding
    moves: tuple[Collective, ...]
    kind: TensorType
    model: CostModel

    @cached_property
    def states(self) -> tuple[Sharding, ...]:
        """The source, and what every move leads to."""
        return tuple(accumulate(self.moves, lambda held, move: move.target(held), initial=self.source))

    @cached_property
    def times_ps(self) -> tuple[int, ...]:
        """[moves]."""
        steps = zip(self.moves, self.states, strict=False)
        return tuple(self.model.move_ps(move, held, self.kind) for move, held in steps)

    @cached_property
    def received(self) -> Integers:
        """[moves, devices]: bytes received."""
        received = np.zeros((len(self.moves), self.model.mesh.devices), np.int64)
        for step, (move, held) in enumerate(zip(self.moves, self.states, strict=False)):
            received[step] = received_elements(move, held, self.kind.shape, self.model.mesh) * self.kind.itemsize
        return received

    @cached_property
    def buffers(self) -> Integers:
        """[moves + 1, devices]: bytes of what is held before, between and after the moves."""
        return np.stack([held_bytes(state, self.kind, self.model.mesh) for state in self.states])

    @cached_property
    def bound_ps(self) -> int:
        """No program is faster."""
        return _Search(self.states[-1], self.kind, self.model, Objective.TIME, None).bound(self.source) // PS

    @cached_property
    def _lacking(self) -> Lacking:
        return Lacking(self.states[-1], self.kind.shape, self.model.mesh)

    @property
    def least_bytes(self) -> int:
        """Bytes that devices want and do not hold; all that they want of what is partial."""
        return int(self._lacking.of(self.source).sum()) * self.kind.itemsize

    @property
    def bound_bytes(self) -> int:
        """No program has devices receive less in all."""
        return self._lacking.total(self.source) * self.kind.itemsize

    @property
    def program(self) -> Program:
        """The moves as a program that takes and returns the tensor."""
        names = ["x", *(f"x.{step}" for step in range(1, len(self.states)))]
        graph = Graph("reshard", (Input("x", "input", "x", self.kind),), (), ("x",))
        steps = zip(self.moves, names, names[1:], strict=False)
        return Program(graph, self.model.mesh, (("x", self.source),), tuple(starmap(Move, steps)), (names[-1],))

    @property
    def peak_bytes(self) -> int:
        """Most bytes that a device holds at a time: what a step reads and what it makes."""
        return int(max((before + after).max() for before, after in pairwise([0 * self.buffers[0], *self.buffers])))


def route(
    source: Sharding,
    target: Sharding,
    kind: TensorType,
    model: CostModel,
    objective: Objective = Objective.TIME,
    limit_bytes: int | None = None,
) -> Route:
    """The cheapest program between two shardings, both checked against the shape.

    Raises InvalidRequest where none keeps within `limit_bytes` a device, with the least that one would need.
    """
    found = _Search(target, kind, model, objective, limit_bytes).way_from(source)
    if found is None:
        least = _Search(target, kind, model, None, None).way_from(source)
        peak = Route(source, tuple(least or ()), kind, model).peak_bytes
        wanted = f"at least {peak} bytes a device"
        raise InvalidRequest("no program fits the memory limit", where="reshard", got=limit_bytes, wanted=wanted)
    return Route(source, tuple(found), kind, model)


@dataclass(frozen=True, eq=False)
class _Search:
    """Ways to a target; without an objective, those of the least room for their worst step."""

    target: Sharding
    kind: TensorType
    model: CostModel
    objective: Objective | None
    limit: int | None
    _held: dict[Sharding, Integers] = field(default_factory=dict)

    def way_from(self, source: Sharding) -> list[Collective] | None:
        """The moves of the cheapest way, if there is one."""
        cost, came = {source: 0}, dict[Sharding, tuple[Sharding, Collective]]()
        waiting, done, number = [(0, 0, source)], set[Sharding](), count(1)
        while waiting and self._fits(source, None):
            at = heappop(waiting)[-1]
            if at == self.target:
                return _walked(came, at)
            if at in done:
                continue
            done.add(at)
            for move, to in self._edges(at):
                dearest = cost.get(self.target, FAR)
                if to in done or not self._fits(at, to) or self._hopeless(move, at, dearest - cost[at]):
                    continue
                taken = self._join(cost[at], self._price(move, at, to))
                if to != self.target and self._join(taken, self._launch) >= dearest:
                    continue
                bound = self._join(taken, self.bound(to))
                if taken < cost.get(to, FAR) and bound < dearest:
                    cost[to], came[to] = taken, (at, move)
                    heappush(waiting, (bound, next(number), to))
        return None

    def _edges(self, at: Sharding) -> Iterator[tuple[Collective, Sharding]]:
        yield Collective.exchange(at, self.target), self.target
        plain = Sharding(at.split_axes, at.partial, at.reduction)
        if plain != at:
            yield Collective.exchange(at, plain), plain
        else:
            yield from moves(at, self.kind.shape, self.model.mesh)

    def _join(self, taken: int, more: int) -> int:
        return max(taken, more) if self.objective is None else taken + more

    def _price(self, move: Collective, at: Sharding, to: Sharding) -> int:
        if self.objective is None:
            return self._room(at, to)
        time = self.model.move_ps(move, at, self.kind) * PS + (move.kind is Kind.EXCHANGE)
        return time if self.objective is Objective.TIME else time + BYTE * self._received(move, at, to)

    def bound(self, at: Sharding) -> int:
        """What it takes at least from a sharding to the target."""
        if at == self.target:
            return 0
        if self.objective is None:
            return self._room(at, None)
        lacked = [lacking.total(at) * self.kind.itemsize for lacking, _ in self._tiers]
        if not lacked[0]:
            return self._launch
        time = (
            self._collective + int(sum(size * pace for size, (_, pace) in zip(lacked, self._tiers, strict=True))) * PS
        )
        return time if self.objective is Objective.TIME else time + BYTE * lacked[0]

    def _hopeless(self, move: Collective, at: Sharding, left: int) -> bool:
        """Whether a move takes `left` or more, as far as can be told without its price."""
        if self.objective is None or move.to != self.target or not (lacked := self._lacking.total(at)):
            return self._launch >= left
        terms, bare = self._lacking.terms(at), not (at.halo_sizes or self.target.halo_sizes)
        if self._at_least(move, lacked, lacked / self.model.mesh.devices, max(terms - 1, 1)) >= left:
            return True
        if terms == 1 or not bare:
            return False
        busiest = Footprints.at_least(at, self.target, self.kind.shape, self.model.mesh)
        return self._at_least(move, lacked, *busiest) >= left

    def _at_least(self, move: Collective, lacked: int, received: float, messages: int) -> int:
        """What an exchange takes in which all lack and one device receives so much."""
        links = [self.model.links[axis] for axis in move.axes]
        seconds = max(link.latency_s for link in links) + messages * max(link.step_s for link in links)
        seconds += received * self.kind.itemsize / min(link.bandwidth for link in links)
        time = int(seconds / PICO) * PS
        return time if self.objective is Objective.TIME else time + BYTE * lacked * self.kind.itemsize

    @property
    def _lacking(self) -> Lacking:
        return self._tiers[0][0]

    def _received(self, move: Collective, at: Sharding, to: Sharding) -> int:
        """Bytes that all devices receive."""
        if move.kind is Kind.EXCHANGE and to == self.target and not (at.partial or to.partial):
            return self._lacking.total(at) * self.kind.itemsize
        if move.kind is Kind.EXCHANGE and to == self.target and self._lacking.terms(at) > 1:
            return received_with_terms(at, to, self.kind.shape, self.model.mesh) * self.kind.itemsize
        return int(received_elements(move, at, self.kind.shape, self.model.mesh).sum()) * self.kind.itemsize

    def _fits(self, at: Sharding, to: Sharding | None) -> bool:
        return self.limit is None or self._room(at, to) <= self.limit

    def _room(self, at: Sharding, to: Sharding | None) -> int:
        """Bytes of a device that holds both."""
        for each in (at, to or at):
            if each not in self._held:
                self._held[each] = held_bytes(each, self.kind, self.model.mesh)
        return int((self._held[at] + (0 if to is None else self._held[to])).max())

    @cached_property
    def _tiers(self) -> list[tuple[Lacking, float]]:
        """For each speed of links, fastest first: what devices joined by faster ones lack, and how much longer (in ps
        a byte that all lack) a byte takes here than there."""
        mesh, links = self.model.mesh, self.model.links
        rates = sorted({link.fastest for link in links}, reverse=True)
        paces = [0.0, *(1 / rate / PICO / mesh.devices for rate in rates)]
        return [
            (Lacking(self.target, self.kind.shape, mesh, _faster(links, rate)), pace - before)
            for rate, (before, pace) in zip(rates, pairwise(paces), strict=True)
        ]

    @cached_property
    def _collective(self) -> int:
        """What any collective takes at least."""
        return int(min(link.latency_s for link in self.model.links) / PICO) * PS

    @cached_property
    def _launch(self) -> int:
        """What any step takes at least."""
        return 0 if self.objective is None else min(self._collective, int(self.model.hardware.launch_s / PICO) * PS)


def _faster(links: Sequence[Link], bandwidth: float) -> Axes:
    return tuple(axis for axis, link in enumerate(links) if link.fastest > bandwidth)


def _walked(came: Mapping[Sharding, tuple[Sharding, Collective]], at: Sharding) -> list[Collective]:
    found: list[Collective] = []
    while at in came:
        at, move = came[at]
        found.insert(0, move)
    return found
