"""Stacks of equal layers, found as shifts: maps that take every layer of a stack to the next one.

A shift is a partial isomorphism of the labelled graph without fixed points, grown from seeds, pairs of like
nodes of consecutive layers, along the edges: over an edge into a pair the sources are a pair, by rank; of the edges
out of it those that look like no other, and when nothing else is left those that do, in order. Two nodes become a
pair only where their views of a small depth are equal, so that at the ends of a stack, where the neighbours are
others, it stops. The orbits of a shift are what the layers have in common: one variable for each.

Which nodes are the seeds is a guess: like nodes, seen from far enough, each after the other in the flow of the data,
of a class whose size is the commonest. The shift that maps the most of several is taken. A bad guess costs a plan
time; never is it wrong, since any classes of nodes with equal strategies may be tied.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from planner.choose.fold.structure import Link, Structure

# How far nodes must look alike to be tied, and how far to be seeds, tried in turn.
CONTEXT, FAR = 2, (6, 4, 2)
# A stack that maps a smaller share of all nodes is left alone.
LEAST_SHARE = 0.05
Shift = dict[int, int]
Ways = dict[tuple[int, int], list[int]]
"""The far ends of a node's edges, those together that cannot be told apart: by label and view."""


@dataclass(frozen=True)
class Stacks:
    """Like nodes of consecutive layers, in the layers' order, and per stack the most layers in which there are any."""

    orbits: tuple[tuple[int, ...], ...]
    layers: tuple[int, ...]

    def members(self, nodes: int, pieces: int = 1) -> tuple[int, ...]:
        """Classes of nodes to be tied, as a number per node, by first member; orbits cut into up to so many pieces."""
        first = list(range(nodes))
        for orbit in self.orbits:
            for cut in range(pieces):
                tied = orbit[len(orbit) * cut // pieces : len(orbit) * (cut + 1) // pieces]
                for node in tied:
                    first[node] = min(tied)
        number = {node: n for n, node in enumerate(dict.fromkeys(first))}
        return tuple(number[node] for node in first)


def stacks(structure: Structure) -> Stacks:
    """Every stack of a graph, the largest first."""
    views, levels = structure.views(max(FAR)), structure.levels()
    free = set(range(len(structure.labels)))
    orbits: list[tuple[int, ...]] = []
    layers: list[int] = []
    ways = [_ways(links, views[CONTEXT]) for links in structure.out]
    while True:
        tried = [_grown(structure, ways, views[CONTEXT], free, seeds) for seeds in _seeds(views, levels, free)]
        shift = max(tried, key=len, default={})
        if len(shift) < max(1.0, LEAST_SHARE * len(structure.labels)):
            return Stacks(tuple(orbits), tuple(layers))
        found = _orbits(shift)
        free.difference_update(*found)
        orbits += found
        layers.append(max(map(len, found)))


def _seeds(views: list[list[int]], levels: list[int], free: set[int]) -> Iterable[list[tuple[int, int]]]:
    """Consecutive members of the first class of the commonest size, by the views of several depths."""
    ordered = sorted(free, key=lambda v: (levels[v], v))
    for depth in FAR:
        classes: dict[int, list[int]] = defaultdict(list)
        for v in ordered:
            classes[views[depth][v]].append(v)
        chains = [each for each in classes.values() if 1 < len(each) == len({levels[v] for v in each})]
        sizes = Counter(map(len, chains))
        if sizes:
            size = max(sizes, key=lambda n: (sizes[n] * (n - 1), n))
            yield list(pairwise(next(each for each in chains if len(each) == size)))


def _orbits(shift: Shift) -> list[tuple[int, ...]]:
    orbits = []
    for first in sorted(shift.keys() - set(shift.values())):
        orbit = [first]
        while orbit[-1] in shift:
            orbit.append(shift[orbit[-1]])
        orbits.append(tuple(orbit))
    return orbits


def _ways(links: list[Link], views: list[int]) -> Ways:
    ways: Ways = {}
    for link in links:
        ways.setdefault((link.label, views[link.other]), []).append(link.other)
    return ways


def _grown(
    structure: Structure, ways: list[Ways], views: list[int], free: set[int], seeds: Iterable[tuple[int, int]]
) -> Shift:
    growth = _Growth(structure, ways, views, free, deque(seeds))
    growth.run()
    return growth.shift


@dataclass
class _Growth:
    """`first` of the last and `last` of the first of every orbit so far."""

    structure: Structure
    ways: list[Ways]
    views: list[int]
    free: set[int]
    waiting: deque[tuple[int, int]]
    shift: Shift = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    unclear: deque[tuple[list[int], list[int]]] = field(default_factory=deque)

    def run(self) -> None:
        while self.waiting or self.unclear:
            if not self.waiting:
                self.waiting.extend(self._left(*self.unclear.popleft()))
            elif self._pairs(*(pair := self.waiting.popleft())):
                self._spread(*pair)

    def _pairs(self, one: int, other: int) -> bool:
        """Take a pair, if it may be one; a cycle would be no shift."""
        fits = one != other and one in self.free and other in self.free and self.views[one] == self.views[other]
        if not fits or one in self.shift or other in self.taken or self.first.get(one) == other:
            return False
        self.shift[one] = other
        self.taken.add(other)
        first, last = self.first.pop(one, one), self.last.pop(other, other)
        self.first[last], self.last[first] = first, last
        return True

    def _spread(self, one: int, other: int) -> None:
        into = self.structure.into
        self.waiting.extend((a.other, b.other) for a, b in zip(into[one], into[other], strict=True))
        ours, theirs = self.ways[one], self.ways[other]
        for key in (key for key in ours if key in theirs):
            pair = ours[key], theirs[key]
            if len(pair[0]) == len(pair[1]) == 1:
                self.waiting.append((pair[0][0], pair[1][0]))
            else:
                self.unclear.append(pair)

    def _left(self, ours: list[int], theirs: list[int]) -> Iterable[tuple[int, int]]:
        one = [v for v in ours if v not in self.shift]
        other = [v for v in theirs if v not in self.taken]
        return zip(one, other, strict=False)
