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

from planner.choose.fold.colour_refinement import LabelledEdge, LabelledGraph

# How far nodes must look alike to be tied, and how far to be seeds, tried in turn.
MIN_DEPTH, SEED_DEPTHS = 2, (6, 4, 2)
# A stack that maps a smaller share of all nodes is left alone.
MIN_NODE_SHARE = 0.05
Shift = dict[int, int]
EdgesByLabel = dict[tuple[int, int], list[int]]
"""The far ends of a node's edges, those together that cannot be told apart: by label and view."""


@dataclass(frozen=True)
class LayerStacks:
    """Like nodes of consecutive layers, in the layers' order, and per stack the most layers in which there are any."""

    orbits: tuple[tuple[int, ...], ...]
    layers: tuple[int, ...]

    def tie_classes(self, nodes: int, pieces: int = 1) -> tuple[int, ...]:
        """Classes of nodes to be tied, as a number per node, by first member; orbits cut into up to so many pieces."""
        first = list(range(nodes))
        for orbit in self.orbits:
            for cut in range(pieces):
                tied = orbit[len(orbit) * cut // pieces : len(orbit) * (cut + 1) // pieces]
                for node in tied:
                    first[node] = min(tied)
        number = {node: n for n, node in enumerate(dict.fromkeys(first))}
        return tuple(number[node] for node in first)


def find_stacks(structure: LabelledGraph) -> LayerStacks:
    """Every stack of a graph, the largest first."""
    views, levels = structure.colours(max(SEED_DEPTHS)), structure.find_depths()
    free = set(range(len(structure.labels)))
    orbits: list[tuple[int, ...]] = []
    layers: list[int] = []
    ways = [_edges_by_label(links, views[MIN_DEPTH]) for links in structure.out_edges]
    while True:
        tried = [
            _grow_shift(structure, ways, views[MIN_DEPTH], free=free, seeds=seeds)
            for seeds in _find_seeds(views, levels, free)
        ]
        shift = max(tried, key=len, default={})
        if len(shift) < max(1.0, MIN_NODE_SHARE * len(structure.labels)):
            return LayerStacks(tuple(orbits), tuple(layers))
        found = _find_orbits(shift)
        free.difference_update(*found)
        orbits += found
        layers.append(max(map(len, found)))


def _find_seeds(views: list[list[int]], levels: list[int], free: set[int]) -> Iterable[list[tuple[int, int]]]:
    """Consecutive members of the first class of the commonest size, by the views of several depths."""
    ordered = sorted(free, key=lambda v: (levels[v], v))
    for depth in SEED_DEPTHS:
        classes: dict[int, list[int]] = defaultdict(list)
        for v in ordered:
            classes[views[depth][v]].append(v)
        chains = [each for each in classes.values() if 1 < len(each) == len({levels[v] for v in each})]
        sizes = Counter(map(len, chains))
        if sizes:
            size = max(sizes, key=lambda n: (sizes[n] * (n - 1), n))
            yield list(pairwise(next(each for each in chains if len(each) == size)))


def _find_orbits(shift: Shift) -> list[tuple[int, ...]]:
    orbits = []
    for first in sorted(shift.keys() - set(shift.values())):
        orbit = [first]
        while orbit[-1] in shift:
            orbit.append(shift[orbit[-1]])
        orbits.append(tuple(orbit))
    return orbits


def _edges_by_label(links: list[LabelledEdge], views: list[int]) -> EdgesByLabel:
    ways: EdgesByLabel = {}
    for link in links:
        ways.setdefault((link.label, views[link.other]), []).append(link.other)
    return ways


def _grow_shift(
    structure: LabelledGraph,
    ways: list[EdgesByLabel],
    views: list[int],
    *,
    free: set[int],
    seeds: Iterable[tuple[int, int]],
) -> Shift:
    growth = _ShiftGrowth(structure, ways, views, free, deque(seeds))
    growth.run()
    return growth.shift


@dataclass
class _ShiftGrowth:
    """`first` of the last and `last` of the first of every orbit so far."""

    structure: LabelledGraph
    edges_by_label: list[EdgesByLabel]
    colours: list[int]
    unused: set[int]
    queue: deque[tuple[int, int]]
    shift: Shift = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    ambiguous: deque[tuple[list[int], list[int]]] = field(default_factory=deque)

    def run(self) -> None:
        while self.queue or self.ambiguous:
            if not self.queue:
                self.queue.extend(self._unpaired(*self.ambiguous.popleft()))
            elif self._try_pair(*(pair := self.queue.popleft())):
                self._visit_neighbours(*pair)

    def _try_pair(self, one: int, other: int) -> bool:
        """Take a pair, if it may be one; a cycle would be no shift."""
        fits = one != other and one in self.unused and other in self.unused and self.colours[one] == self.colours[other]
        if not fits or one in self.shift or other in self.used or self.first.get(one) == other:
            return False
        self.shift[one] = other
        self.used.add(other)
        first, last = self.first.pop(one, one), self.last.pop(other, other)
        self.first[last], self.last[first] = first, last
        return True

    def _visit_neighbours(self, one: int, other: int) -> None:
        into = self.structure.in_edges
        self.queue.extend((a.other, b.other) for a, b in zip(into[one], into[other], strict=True))
        ours, theirs = self.edges_by_label[one], self.edges_by_label[other]
        for key in (key for key in ours if key in theirs):
            pair = ours[key], theirs[key]
            if len(pair[0]) == len(pair[1]) == 1:
                self.queue.append((pair[0][0], pair[1][0]))
            else:
                self.ambiguous.append(pair)

    def _unpaired(self, ours: list[int], theirs: list[int]) -> Iterable[tuple[int, int]]:
        one = [v for v in ours if v not in self.shift]
        other = [v for v in theirs if v not in self.used]
        return zip(one, other, strict=False)
