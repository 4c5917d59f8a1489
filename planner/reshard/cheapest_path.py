"""Find the cheapest program between two shardings of one tensor, without a table of all pairs.

Shardings are the nodes of a graph. Its edges are the exact basis moves, exchanges from every node to the target, and
from halos or offsets an exchange to plain blocks over the same axes. A* (Hart, Nilsson, Raphael, "A Formal Basis for
the Heuristic Determination of Minimum Cost Paths", 1968) finds the shortest path. From a node to the target it takes at
least

    launch + elements all devices lack (`planner.reshard.missing_elements`) / devices / bandwidth of the fastest link

because no collective is priced below the average of what its devices receive. The direct exchange is the first
incumbent, and nodes that cannot beat the incumbent are pruned.

The objective `bytes` minimizes the bytes that all devices receive, then time. Under a memory limit, a step needs room
for what a device holds before and after it; edges that need more are left out. The least limit is found by the same
search with the maximum of two steps in place of their sum.
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
from planner.choose.hardware.network import Link
from planner.errors import InvalidRequest
from planner.ir.accounting import count_held_bytes
from planner.ir.basis_moves import list_basis_moves
from planner.ir.collectives import Collective, count_received_elements
from planner.ir.graph import Graph, Input, TensorType
from planner.ir.program import Program, Reshard
from planner.ir.redistribution import exchange_axes
from planner.ir.sharding import Axes, Sharding
from planner.reshard.missing_elements import MissingElements
from planner.reshard.traffic import ReshardTraffic, count_received_with_terms

Integers = NDArray[np.int64]
PS = 1 << 8
"""A picosecond in the cost of a path. The bits below count exchanges, so that of equally fast paths the one with the
fewest exchanges wins."""
BYTE = PS << 64
"""A byte in the cost of a path where bytes come first: more than any time."""
UNREACHED = 1 << 200


class Objective(StrEnum):
    """What is minimized."""

    TIME = "time"
    BYTES = "bytes"


@dataclass(frozen=True)
class ReshardPath:
    """A program from one sharding of a tensor to another, with its figures."""

    source: Sharding
    moves: tuple[Collective, ...]
    kind: TensorType
    model: CostModel

    @cached_property
    def states(self) -> tuple[Sharding, ...]:
        """The source, and the sharding after each move."""
        return tuple(accumulate(self.moves, lambda held, move: move.target(held), initial=self.source))

    @cached_property
    def times_ps(self) -> tuple[int, ...]:
        """The time of each move in ps."""
        steps = zip(self.moves, self.states, strict=False)
        return tuple(self.model.move_ps(move, held, self.kind) for move, held in steps)

    @cached_property
    def received(self) -> Integers:
        """The bytes that each device receives in each move, `[moves, devices]`."""
        received = np.zeros((len(self.moves), self.model.mesh.devices), np.int64)
        for step, (move, held) in enumerate(zip(self.moves, self.states, strict=False)):
            received[step] = (
                count_received_elements(move, held, self.kind.shape, mesh=self.model.mesh) * self.kind.itemsize
            )
        return received

    @cached_property
    def buffer_bytes(self) -> Integers:
        """The bytes that each device holds before, between and after the moves, `[moves + 1, devices]`."""
        return np.stack([count_held_bytes(state, self.kind, self.model.mesh) for state in self.states])

    @cached_property
    def bound_ps(self) -> int:
        """A lower bound on the time of any program, in ps."""
        return _PathSearch(self.states[-1], self.kind, self.model, Objective.TIME, None).lower_bound(self.source) // PS

    @cached_property
    def _missing(self) -> MissingElements:
        return MissingElements(self.states[-1], self.kind.shape, self.model.mesh)

    @property
    def min_bytes(self) -> int:
        """The bytes that devices want and do not hold; of a partial tensor, all that they want."""
        return int(self._missing.of(self.source).sum()) * self.kind.itemsize

    @property
    def bound_bytes(self) -> int:
        """A lower bound on the bytes that all devices receive in any program."""
        return self._missing.total(self.source) * self.kind.itemsize

    @property
    def program(self) -> Program:
        """The moves as a program that takes and returns the tensor."""
        names = ["x", *(f"x.{step}" for step in range(1, len(self.states)))]
        graph = Graph("reshard", (Input("x", "input", "x", self.kind),), (), ("x",))
        steps = zip(self.moves, names, names[1:], strict=False)
        return Program(graph, self.model.mesh, (("x", self.source),), tuple(starmap(Reshard, steps)), (names[-1],))

    @property
    def peak_bytes(self) -> int:
        """The most bytes that a device holds at a time: what a step reads and what it writes."""
        steps = pairwise([0 * self.buffer_bytes[0], *self.buffer_bytes])
        return int(max((before + after).max() for before, after in steps))


def find_cheapest_path(
    source: Sharding,
    target: Sharding,
    kind: TensorType,
    *,
    model: CostModel,
    objective: Objective = Objective.TIME,
    limit_bytes: int | None = None,
) -> ReshardPath:
    """Return the cheapest program between two shardings, both checked against the shape.

    Raises InvalidRequest where no program fits `limit_bytes` per device, and names the least limit that one fits.
    """
    moves = _PathSearch(target, kind, model, objective, limit_bytes).find_path(source)
    if moves is None:
        least = _PathSearch(target, kind, model, None, None).find_path(source)
        peak = ReshardPath(source, tuple(least or ()), kind, model).peak_bytes
        wanted = f"at least {peak} bytes a device"
        raise InvalidRequest("no program fits the memory limit", where="reshard", got=limit_bytes, wanted=wanted)
    return ReshardPath(source, tuple(moves), kind, model)


@dataclass(frozen=True, eq=False)
class _PathSearch:
    """A search for paths to a target; without an objective, for the path whose worst step needs the least memory."""

    target: Sharding
    kind: TensorType
    model: CostModel
    objective: Objective | None
    limit: int | None
    _held: dict[Sharding, Integers] = field(default_factory=dict)

    def find_path(self, source: Sharding) -> list[Collective] | None:
        """Return the moves of the cheapest path, or None where there is none."""
        cost, came = {source: 0}, dict[Sharding, tuple[Sharding, Collective]]()
        waiting, done, number = [(0, 0, source)], set[Sharding](), count(1)
        while waiting and self._fits(source, None):
            at = heappop(waiting)[-1]
            if at == self.target:
                return _backtrack(came, at)
            if at in done:
                continue
            done.add(at)
            for move, to in self._list_edges(at):
                dearest = cost.get(self.target, UNREACHED)
                if to in done or not self._fits(at, to) or self._is_pruned(move, at, dearest - cost[at]):
                    continue
                spent = self._combine_prices(cost[at], self._price(move, at, to))
                if to != self.target and self._combine_prices(spent, self._min_launch_ps) >= dearest:
                    continue
                bound = self._combine_prices(spent, self.lower_bound(to))
                if spent < cost.get(to, UNREACHED) and bound < dearest:
                    cost[to], came[to] = spent, (at, move)
                    heappush(waiting, (bound, next(number), to))
        return None

    def _list_edges(self, at: Sharding) -> Iterator[tuple[Collective, Sharding]]:
        for axes in exchange_axes(at, self.target, self.model.mesh):
            yield Collective.exchange(at, self.target, axes), self.target
        plain = Sharding(at.split_axes, at.partial, at.reduction)
        if plain != at:
            yield Collective.exchange(at, plain), plain
        else:
            yield from list_basis_moves(at, self.kind.shape, self.model.mesh)

    def _combine_prices(self, spent: int, more: int) -> int:
        return max(spent, more) if self.objective is None else spent + more

    def _price(self, move: Collective, at: Sharding, to: Sharding) -> int:
        if self.objective is None:
            return self._peak_bytes(at, to)
        time = self.model.move_ps(move, at, self.kind) * PS + move.is_exchange
        return time if self.objective is Objective.TIME else time + BYTE * self._received_bytes(move, at, to)

    def lower_bound(self, at: Sharding) -> int:
        """Return a lower bound on the cost from a sharding to the target."""
        if at == self.target:
            return 0
        if self.objective is None:
            return self._peak_bytes(at, None)
        lacked = [lacking.total(at) * self.kind.itemsize for lacking, _ in self._link_tiers]
        if not lacked[0]:
            return self._min_launch_ps
        time = (
            self._min_collective_ps
            + int(sum(size * pace for size, (_, pace) in zip(lacked, self._link_tiers, strict=True))) * PS
        )
        return time if self.objective is Objective.TIME else time + BYTE * lacked[0]

    def _is_pruned(self, move: Collective, at: Sharding, left: int) -> bool:
        """Return whether a move is known to cost `left` or more. Bounds come first, as pricing an exchange is slow."""
        if self.objective is None or move.to != self.target or not (lacked := self._missing.total(at)):
            return self._min_launch_ps >= left
        terms, bare = self._missing.count_terms(at), not (at.halo_sizes or self.target.halo_sizes)
        if self._min_price(move, lacked, lacked / self.model.mesh.devices, messages=max(terms - 1, 1)) >= left:
            return True
        if terms == 1 or not bare:
            return False
        busiest = ReshardTraffic.lower_bound(at, self.target, self.kind.shape, mesh=self.model.mesh, axes=move.axes)
        return self._min_price(move, lacked, *busiest) >= left

    def _min_price(self, move: Collective, lacked: int, received: float, messages: int) -> int:
        """Return a lower bound on the cost of an exchange.

        lacked    elements that all devices lack
        received  elements that the busiest device receives
        """
        links = [self.model.links[axis] for axis in move.axes]
        seconds = max(link.latency_s for link in links) + messages * max(link.step_s for link in links)
        seconds += received * self.kind.itemsize / min(link.bandwidth for link in links)
        time = int(seconds / PICO) * PS
        return time if self.objective is Objective.TIME else time + BYTE * lacked * self.kind.itemsize

    @property
    def _missing(self) -> MissingElements:
        return self._link_tiers[0][0]

    def _received_bytes(self, move: Collective, at: Sharding, to: Sharding) -> int:
        """Return the bytes that all devices receive."""
        if move.is_exchange and to == self.target and not (at.partial or to.partial):
            return self._missing.total(at) * self.kind.itemsize
        shape, mesh = self.kind.shape, self.model.mesh
        if move.is_exchange and to == self.target and self._missing.count_terms(at) > 1:
            return count_received_with_terms(at, to, shape, mesh=mesh, axes=move.axes) * self.kind.itemsize
        return int(count_received_elements(move, at, shape, mesh=mesh).sum()) * self.kind.itemsize

    def _fits(self, at: Sharding, to: Sharding | None) -> bool:
        return self.limit is None or self._peak_bytes(at, to) <= self.limit

    def _peak_bytes(self, at: Sharding, to: Sharding | None) -> int:
        """Return the bytes of a device that holds both; `to` None: the first alone."""
        for each in (at, to or at):
            if each not in self._held:
                self._held[each] = count_held_bytes(each, self.kind, self.model.mesh)
        return int((self._held[at] + (0 if to is None else self._held[to])).max())

    @cached_property
    def _link_tiers(self) -> list[tuple[MissingElements, float]]:
        """For each bandwidth of links, the fastest first: what devices that are joined by faster links lack, and how
        much longer a byte takes than on the next faster links, in ps per byte that all devices lack.
        """
        mesh, links = self.model.mesh, self.model.links
        rates = sorted({link.peak_bandwidth for link in links}, reverse=True)
        paces = [0.0, *(1 / rate / PICO / mesh.devices for rate in rates)]
        return [
            (MissingElements(self.target, self.kind.shape, mesh, _axes_faster_than(links, rate)), pace - before)
            for rate, (before, pace) in zip(rates, pairwise(paces), strict=True)
        ]

    @cached_property
    def _min_collective_ps(self) -> int:
        """A lower bound on the cost of any collective."""
        return int(min(link.latency_s for link in self.model.links) / PICO) * PS

    @cached_property
    def _min_launch_ps(self) -> int:
        """A lower bound on the cost of any step."""
        return (
            0 if self.objective is None else min(self._min_collective_ps, int(self.model.hardware.launch_s / PICO) * PS)
        )


def _axes_faster_than(links: Sequence[Link], bandwidth: float) -> Axes:
    return tuple(axis for axis, link in enumerate(links) if link.peak_bandwidth > bandwidth)


def _backtrack(came: Mapping[Sharding, tuple[Sharding, Collective]], at: Sharding) -> list[Collective]:
    moves: list[Collective] = []
    while at in came:
        at, move = came[at]
        moves.insert(0, move)
    return moves
