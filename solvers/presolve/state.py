"""A problem while it shrinks: nodes and links that may leave, the records of how, and which nodes changed.

Costs are multiplied out, non-negative, and forbidden at FORBIDDEN; all arrays and tables are never written to.
What all choices share leaves the nodes: in cost as `constant`, in usage as `base` (bytes at each moment).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.parts import EdgeUsage
from solvers.presolve.profile import Profile, joined, summed
from solvers.presolve.records import End, Record
from solvers.presolve.tables import Classes, Pool, Table, capped

Integers = NDArray[np.int64]

FEW = 8
NOTHING = np.zeros(0, np.int64)


class Impossible(Exception):
    """There is no choice without anything forbidden."""


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """An edge: the classes of either end's strategies, each class in use, and the table of their costs."""

    source: int
    target: int
    source_class: Classes
    target_class: Classes
    table: Table
    usages: tuple[EdgeUsage, ...] = ()


class View(NamedTuple):
    """A link seen from one of its ends: its number, the other end, classes here and there, the table from here."""

    number: int
    other: int
    here: Classes
    there: Classes
    table: Table
    usages: tuple[EdgeUsage, ...]


def turned(usage: EdgeUsage) -> EdgeUsage:
    """The same seen from the other end."""
    return EdgeUsage(usage.start, usage.stop, np.ascontiguousarray(usage.matrix.T))


def _at_moments(link: Link, new: Integers) -> Link:
    usages = (EdgeUsage(int(new[usage.start]), int(new[usage.stop]), usage.matrix) for usage in link.usages)
    left = tuple(usage for usage in usages if usage.start < usage.stop)
    return Link(link.source, link.target, link.source_class, link.target_class, link.table, left)


class State:
    """Nodes are numbers; cost[i] is None once node i has left."""

    def __init__(self, limit: int | None, moments: int, reductions: int, stopped: Callable[[], bool]) -> None:
        """stopped: is time up? Whatever has been done by then stands."""
        self.limit, self.pool, self.stopped = limit, Pool(), stopped
        self.alive: dict[int, None] = {}
        self.cost: list[Integers | None] = []
        self.strategies: list[Integers] = []
        self._usage: list[list[Profile]] = []
        self.links: dict[int, Link] = {}
        self.at: list[dict[int, None]] = []
        self.records: list[Record] = []
        self.constant = 0
        # What all choices use, as the change at each moment.
        self._shared = np.zeros(moments + 1, np.int64)
        # What changed, in order; each reduction has read it up to a place, none beyond the front.
        self._log: list[int] = []
        self._last: dict[int, int] = {}
        self._front = 0
        self._read = [0] * reductions
        self._seen: list[dict[int, int]] = [{} for _ in range(reductions)]
        self._next = 0

    def touch(self, node: int) -> None:
        """Every reduction has to look at the node again."""
        if self._last.get(node, -1) < self._front:
            self._last[node] = len(self._log)
            self._log.append(node)

    def drain(self, reduction: int) -> Iterator[tuple[int, Integers]]:
        """The nodes (with their costs) that the reduction has to look at, until there is none or time is up."""
        log, seen = self._log, self._seen[reduction]
        while (place := self._read[reduction]) < len(log) and not self.stopped():
            self._read[reduction] = place + 1
            self._front = max(self._front, place + 1)
            node = log[place]
            cost = self.cost[node]
            if cost is not None and seen.get(node, -1) <= place:
                seen[node] = len(log)
                yield node, cost

    def waits(self, reduction: int) -> bool:
        """Has anything changed since the reduction looked?"""
        return self._read[reduction] < len(self._log)

    def views(self, node: int) -> Iterator[View]:
        """The node's links, seen from it; those that vanish meanwhile are passed over, new ones not seen."""
        for number in list(self.at[node]):
            link = self.links.get(number)
            if link is None:
                continue
            if link.source == node:
                here, there, table, other = link.source_class, link.target_class, link.table, link.target
            else:
                here, there, table, other = link.target_class, link.source_class, link.table.turned, link.source
            usages = link.usages if link.source == node else tuple(turned(usage) for usage in link.usages)
            yield View(number, other, here, there, table, usages)

    def end(self, node: int, classes: Classes) -> End:
        """The node as a record remembers it."""
        return End(node, self.strategies[node], classes)

    def link(self, link: Link) -> None:
        """Add a link; classes that nothing uses vanish."""
        number = self._next
        self._next += 1
        self.links[number] = self._tight(link)
        for node in (link.source, link.target):
            self.at[node][number] = None
            self.touch(node)

    def unlink(self, number: int) -> Link:
        """Take a link away."""
        link = self.links.pop(number)
        for node in (link.source, link.target):
            del self.at[node][number]
            self.touch(node)
        return link

    def _tight(self, link: Link) -> Link:
        source, rows = self._used(link.source_class, link.table.cells.shape[0])
        target, columns = self._used(link.target_class, link.table.cells.shape[1])
        if rows is None and columns is None:
            return Link(link.source, link.target, source, target, link.table, link.usages)

        def part(cells: Integers) -> Integers:
            cells = cells if rows is None else cells[rows]
            return np.ascontiguousarray(cells if columns is None else cells[:, columns])

        usages = tuple(EdgeUsage(usage.start, usage.stop, part(usage.matrix)) for usage in link.usages)
        return Link(link.source, link.target, source, target, self.pool.table(part(link.table.cells)), usages)

    def _used(self, classes: Classes, count: int) -> tuple[Classes, Integers | None]:
        """The classes numbered anew, and which those are; None if all are used."""
        classes = self.pool.classes(classes)

        def make() -> tuple[Classes, Integers | None]:
            used, anew = np.unique(classes, return_inverse=True)
            return (classes, None) if used.size == count else (self.pool.classes(anew), used.astype(np.int64))

        found: tuple[Classes, Integers | None] = self.pool.once(("used", id(classes), count), make)
        return found

    def add_cost(self, node: int, cost: Integers) -> None:
        """Add to what each strategy costs; the node must be there."""
        own = self.cost[node]
        assert own is not None
        self.cost[node] = capped(own + cost)
        self.touch(node)

    def add_absent(self) -> None:
        """The next node has left already."""
        self.cost.append(None)
        self.strategies.append(NOTHING)
        self._usage.append([])
        self.at.append({})

    def add_node(self, cost: Integers, strategies: Integers, usage: list[Profile]) -> None:
        """The next node: the strategies it has left (ascending), and what each costs and uses."""
        self.touch(len(self.cost))
        self.alive[len(self.cost)] = None
        self.cost.append(cost)
        self.strategies.append(strategies)
        self._usage.append(usage)
        self.at.append({})

    def add_usage(self, node: int, usage: Sequence[Profile]) -> None:
        """Add to what each strategy uses."""
        if usage:
            self._usage[node].extend(usage)
            self.touch(node)

    def usage(self, node: int) -> Profile | None:
        """The node's usage, less what all its strategies share, which goes to the base; None if that is all."""
        parts = self._usage[node]
        if len(parts) > 1 or (parts and not parts[0].bare):
            profile = self._above_base(summed(parts) if len(parts) > 1 else parts[0])
            parts[:] = [] if profile is None else [profile]
        return parts[0] if parts else None

    def parts(self, node: int) -> list[Profile]:
        """Few profiles whose sum is the node's usage, perhaps with what its strategies share."""
        if len(self._usage[node]) > FEW:
            self.usage(node)
        return self._usage[node]

    @property
    def base(self) -> Integers:
        """Bytes in use at each moment, whatever is chosen (less what is still to be found shared)."""
        return np.cumsum(self._shared)[:-1]

    def keep_moments(self, stays: NDArray[np.bool_]) -> None:
        """Moments that go are gone, those after them move up; usage that lives at no moment left is gone."""
        new = np.concatenate([[0], np.cumsum(stays)])
        self._shared = np.diff(self.base[stays], prepend=0, append=0)
        for node in self.alive:
            parts = self._usage[node]
            left = [profile for part in parts if (profile := part.at_moments(new)) is not None]
            if sum(part.start.size for part in left) < sum(part.start.size for part in parts):
                self.touch(node)
            self._usage[node] = left
        for number, link in self.links.items():
            if link.usages:
                self.links[number] = _at_moments(link, new)
                self.touch(link.source)
                self.touch(link.target)

    def _above_base(self, profile: Profile) -> Profile | None:
        shared: Integers = profile.usage.min(axis=1)
        if shared.any():
            np.add.at(self._shared, profile.start, shared)
            np.subtract.at(self._shared, profile.stop, shared)
        profile = joined(profile.start, profile.stop, profile.usage - shared[:, None])
        return profile if profile.start.size else None

    def keep(self, node: int, strategies: Integers) -> None:
        """Leave the node only these strategies (positions, ascending)."""
        cost, profile = self.cost[node], self.usage(node)
        assert cost is not None
        if strategies.size == 0:
            raise Impossible
        self.cost[node] = cost[strategies]
        self.strategies[node] = self.strategies[node][strategies]
        if profile is not None:
            self._usage[node] = [profile.of(strategies)]
        for number in self.at[node]:
            link = self.links[number]
            source = link.source_class[strategies] if link.source == node else link.source_class
            target = link.target_class[strategies] if link.target == node else link.target_class
            self.links[number] = self._tight(Link(link.source, link.target, source, target, link.table, link.usages))
            self.touch(link.source)
            self.touch(link.target)
        self.touch(node)

    def leave(self, node: int, record: Record) -> None:
        """The node, whose links are gone, leaves; the record tells how it comes back."""
        self.records.append(record)
        self.cost[node] = None
        self._usage[node] = []
        del self.alive[node]
