"""Build the quotient of an assignment problem, in which the variables of a class take the same strategy.

The quotient has one node per class, with the sum of the costs, and one edge per kind of edge between two classes, with
the number of such edges as its multiplicity. An edge within a class contributes the diagonal of its matrix to the node.
Memory usages keep their own time steps (`planner.choose.fold.usage_profile`). So cost and peak of an assignment of the
quotient are exactly those of the assignment that it stands for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.choose.fold.interning import ArrayInterner, StoredArray
from planner.choose.fold.usage_profile import Counts, Usages, constant_segments
from solvers import IMPOSSIBLE, Edge, EdgeUsage, Kinds, Node, Problem, number_rows

Integers = NDArray[np.int64]
EdgeClass = tuple[int, int, int, int, int]
"""Kind of an edge: source, target, and the numbers of its matrix and of the classes at both ends."""


def edge_class(edge: Edge, source: int, target: int, *, contents: ArrayInterner) -> EdgeClass:
    """Return the kind of an edge between members of the classes `source` and `target`."""
    number = contents.number
    return source, target, number(edge.matrix, edge.kinds), number(edge.source_class), number(edge.target_class)


def build_quotient(problem: Problem, member: Sequence[int], contents: ArrayInterner) -> tuple[Problem, Integers]:
    """Return the problem in which node v takes the strategy of class member[v], and the original time steps of its own.

    Classes are numbered in the order of their first members.
    """
    return _QuotientBuilder(problem, member, contents).problem()


@dataclass
class _QuotientBuilder:
    """Collects the nodes and edges of the quotient.

    arrays   the interned arrays, by number
    joined   matrices of edges, by kinds that they have in common
    some     whether an array has a usage that is not 0, by number
    largest  the largest possible cost in a matrix, by number
    costs    by class, how often each cost array counts
    """

    whole: Problem
    member: Sequence[int]
    contents: ArrayInterner
    costs: dict[int, Counter[int]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    owners: dict[EdgeClass, int] = field(default_factory=dict)
    like: dict[EdgeClass, Edge] = field(default_factory=dict)
    times: Counter[EdgeClass] = field(default_factory=Counter)
    usages: Usages = field(default_factory=Usages)
    arrays: dict[int, StoredArray] = field(default_factory=dict)
    some: dict[int, bool] = field(default_factory=dict)
    largest: dict[int, int] = field(default_factory=dict)
    joined: dict[tuple[int, ...], tuple[Kinds | None, list[Integers]]] = field(default_factory=dict)

    def problem(self) -> tuple[Problem, Integers]:
        for node, owner in zip(self.whole.nodes, self.member, strict=True):
            self._node(node, owner)
        for edge in self.whole.edges:
            self._edge(edge, self.member[edge.source], self.member[edge.target])
        profile = self.usages.profile()
        used = profile.by_owner()
        nodes = [self._tied_node(owner, used.get(owner, [])) for owner in self.names]
        edges = [edge for kind, owner in self.owners.items() for edge in self._tied_edges(kind, used.get(owner, []))]
        return Problem(nodes, edges, self.whole.limit), profile.moments

    def _node(self, node: Node, owner: int) -> None:
        self.names.setdefault(owner, node.name)
        self._costs(owner, node.cost, node.multiplicity)
        self._uses(owner, node.usage, node.interval)
        if node.more_usage is not None:
            further = node.more_usage
            for start, stop, usage in zip(further.start.tolist(), further.stop.tolist(), further.usage, strict=True):
                self._uses(owner, usage, (start, stop))

    def _edge(self, edge: Edge, source: int, target: int) -> None:
        if source == target:
            diagonal = edge.source_class, edge.target_class
            self._costs(source, edge.cost(*diagonal), edge.multiplicity)
            for usage in edge.usages:
                self._uses(source, edge.select(usage.matrix, *diagonal), (usage.start, usage.stop))
            return
        kind = edge_class(edge, source, target, contents=self.contents)
        self.like.setdefault(kind, edge)
        self.times[kind] += edge.multiplicity
        # Owners of usages are nodes and edges alike: edges have negative numbers.
        owner = self.owners.setdefault(kind, -1 - len(self.owners))
        for usage in edge.usages:
            self._uses(owner, usage.matrix, (usage.start, usage.stop), kinds=edge.kinds)

    def _costs(self, owner: int, cost: Integers, times: int) -> None:
        number = self.contents.number(cost)
        self.arrays.setdefault(number, StoredArray(cost, None))
        self.costs.setdefault(owner, Counter())[number] += times

    def _uses(self, owner: int, usage: Integers, interval: tuple[int, int], *, kinds: Kinds | None = None) -> None:
        number = self.contents.number(usage, kinds)
        if number not in self.some:
            self.arrays.setdefault(number, StoredArray(usage, kinds))
            self.some[number] = bool(usage.any())
        if self.some[number]:
            self.usages.add(owner, number, interval)

    def _tied_node(self, owner: int, used: list[tuple[int, Counts]]) -> Node:
        name, cost, arrays = self.names[owner], self._cost(owner), [self.arrays[array].entries for array, _ in used]
        spans = [
            (start, stop, np.tensordot(np.array(counts, np.int64), np.stack(arrays), 1))
            for start, stop, counts in constant_segments([counts for _, counts in used])
        ]
        return Node.over(name, cost, spans)

    def _cost(self, owner: int) -> Integers:
        """Return the sum of a class's costs, capped at IMPOSSIBLE."""
        total = np.zeros_like(self.arrays[next(iter(self.costs[owner]))].entries)
        for number, times in self.costs[owner].items():
            cost = self.arrays[number].entries
            # Compared before it is multiplied: the product could overflow.
            total += np.where(cost > (IMPOSSIBLE - 1) // times, IMPOSSIBLE, cost * times)
            np.minimum(total, IMPOSSIBLE, out=total)
        return total

    def _tied_edges(self, kind: EdgeClass, used: list[tuple[int, Counts]]) -> Iterator[Edge]:
        """Yield one edge, or several where the multiplied cost would reach IMPOSSIBLE."""
        source, target, like = kind[0], kind[1], self.like[kind]
        kinds, (cost, *entries) = self._join(like, [array for array, _ in used])
        self.contents.note_equal(StoredArray(cost, kinds), kind[2])
        usages = tuple(
            EdgeUsage(start, stop, usage * times)
            for usage, (_, counts) in zip(entries, used, strict=True)
            for start, stop, (times,) in constant_segments([counts])
        )
        left, most = self.times[kind], self._most(kind[2], cost)
        while left:
            times = min(left, most)
            yield Edge(source, target, like.source_class, like.target_class, cost, times, usages, kinds)
            # The usages belong to all the edges together, so only the first one carries them.
            left, usages = left - times, ()

    def _join(self, like: Edge, used: list[int]) -> tuple[Kinds | None, list[Integers]]:
        """Return kinds that the cost of an edge and the usages of these numbers have in common, and their entries."""
        matrices = [StoredArray(like.matrix, like.kinds), *(self.arrays[number] for number in used)]
        key = tuple(id(part) for each in matrices for part in each)
        if key not in self.joined:
            # Layers whose edges cost the same may use different arrays, such as the first and the last layer.
            patterns = {id(each.kinds): each.kinds for each in matrices}
            if len(patterns) == 1:
                self.joined[key] = like.kinds, [each.entries for each in matrices]
            else:
                whole = {at: np.arange(like.matrix.size) if p is None else p.ravel() for at, p in patterns.items()}
                numbers, first = number_rows(list(whole.values()))
                entries = [each.entries.ravel()[whole[id(each.kinds)][first]] for each in matrices]
                self.joined[key] = numbers.reshape(like.shape), entries
        return self.joined[key]

    def _most(self, number: int, cost: Integers) -> int:
        """Return the largest multiplicity at which every possible cost of a matrix stays below IMPOSSIBLE."""
        if number not in self.largest:
            self.largest[number] = max(1, int(cost.max(initial=0, where=cost < IMPOSSIBLE)))
        return (IMPOSSIBLE - 1) // self.largest[number]
