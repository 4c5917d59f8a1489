"""Find stacks of equal layers as shifts: maps from each layer of a stack to the next one.

A shift is a partial isomorphism of the labelled graph without fixed points. It grows from seeds, pairs of corresponding
nodes in consecutive layers, along the edges: the sources of edges into a pair become pairs, by rank; so do the targets
of edges out of it that are unique by label and view, and, when nothing else is left, the ambiguous ones, in order. Two
nodes become a pair only if their views of a small depth are equal, so that growth stops at the ends of a stack, where
the neighbours differ. Each orbit of a shift becomes one variable of the folded problem.

Seeds are guessed: nodes with equal views of a larger depth, each later in the data flow than the one before, from a
class of the most frequent size. Of several guesses, the shift that maps the most nodes is used. A bad guess costs time
but is never wrong, since any class of nodes with equal strategies may be tied.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from planner.choose.fold.colour_refinement import LabelledEdge, LabelledGraph

# Depth to which views of tied nodes must be equal, and depths for seeds, tried in turn.
MIN_DEPTH, SEED_DEPTHS = 2, (6, 4, 2)
# A shift that maps a smaller share of all nodes is not used.
MIN_NODE_SHARE = 0.05
Shift = dict[int, int]
EdgesByLabel = dict[tuple[int, int], list[int]]
"""The other ends of a node's edges, grouped by label and view, by which they cannot be distinguished."""


@dataclass(frozen=True)
class LayerStacks:
    """Orbits: corresponding nodes of consecutive layers, in order; and the number of layers of each stack."""

    orbits: tuple[tuple[int, ...], ...]
    layers: tuple[int, ...]

    def tie_classes(self, nodes: int, pieces: int = 1) -> tuple[int, ...]:
        """Return the class of each node; the members of an orbit, cut into up to `pieces` pieces, form classes.

        Classes are numbered in the order of their first members.
        """
        first = list(range(nodes))
        for orbit in self.orbits:
            for cut in range(pieces):
                tied = orbit[len(orbit) * cut // pieces : len(orbit) * (cut + 1) // pieces]
                for node in tied:
                    first[node] = min(tied)
        number = {node: n for n, node in enumerate(dict.fromkeys(first))}
        return tuple(number[node] for node in first)


def find_stacks(structure: LabelledGraph) -> LayerStacks:
    """Find the stacks of a graph, the largest first."""
    views, levels = structure.colours(max(SEED_DEPTHS)), structure.find_depths()
    free = set(range(len(structure.labels)))
    orbits: list[tuple[int, ...]] = []
    layers: list[int] = []
    edges_by_label = [_edges_by_label(links, views[MIN_DEPTH]) for links in structure.out_edges]
    while True:
        tried = [
            _grow_shift(structure, edges_by_label, views[MIN_DEPTH], free=free, seeds=seeds)
            for seeds in _find_seeds(views, levels, free)
        ]
        shift = max(tried, key=len, default={})
        if len(shift) < max(1.0, MIN_NODE_SHARE * len(structure.labels)):
            return LayerStacks(tuple(orbits), tuple(layers))
        stack = _find_orbits(shift)
        free.difference_update(*stack)
        orbits += stack
        layers.append(max(map(len, stack)))


def _find_seeds(views: list[list[int]], levels: list[int], free: set[int]) -> Iterable[list[tuple[int, int]]]:
    """Yield seeds for each depth: consecutive members of the first class of the most frequent size."""
    # By depth in the data flow, not by number: graphs list the ops of layers in any order.
    ordered = sorted(free, key=lambda v: (levels[v], v))
    for depth in SEED_DEPTHS:
        classes: dict[int, list[int]] = defaultdict(list)
        for v in ordered:
            classes[views[depth][v]].append(v)
        # Members of one depth are alternatives within a layer (q, k and v), not consecutive layers.
        chains = [each for each in classes.values() if 1 < len(each) == len({levels[v] for v in each})]
        sizes = Counter(map(len, chains))
        if sizes:
            # The size that maps the most nodes, as an estimate: the number of its classes times the pairs in each.
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
    groups: EdgesByLabel = {}
    for link in links:
        groups.setdefault((link.label, views[link.other]), []).append(link.other)
    return groups


def _grow_shift(
    structure: LabelledGraph,
    edges_by_label: list[EdgesByLabel],
    views: list[int],
    *,
    free: set[int],
    seeds: Iterable[tuple[int, int]],
) -> Shift:
    growth = _ShiftGrowth(structure, edges_by_label, views, free, deque(seeds))
    growth.run()
    return growth.shift


@dataclass
class _ShiftGrowth:
    """A shift that grows; `first` maps the last node of each orbit to its first one, and `last` the reverse."""

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
        """Add a pair to the shift, if it may be one. A pair that would close a cycle is refused."""
        fits = one != other and one in self.unused and other in self.unused and self.colours[one] == self.colours[other]
        if not fits or one in self.shift or other in self.used or self.first.get(one) == other:
            return False
        self.shift[one] = other
        self.used.add(other)
        # Only the ends of orbits are kept up to date, so that a cycle is found in constant time.
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
