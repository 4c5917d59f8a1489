"""A choice problem of which some variables are tied: they take one and the same strategy.

Of every class of nodes the folded problem has one, with their costs summed; of every kind of edge between two classes
one, as often as there are such edges; an edge within a class is the diagonal of its matrix, and adds to the node.
Usages keep their own moments (`planner.choose.fold.usage_profile`). So for each choice of the folded problem, cost and
peak are exactly those of the choice it stands for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.choose.fold.interning import ArrayInterner
from planner.choose.fold.usage_profile import Counts, Usages, constant_segments
from solvers import IMPOSSIBLE, Edge, EdgeUsage, Node, Problem

Integers = NDArray[np.int64]
EdgeClass = tuple[int, int, int, int, int]
"""Of an edge: source, target, and the numbers of its matrix and of the classes of both ends."""


def edge_class(edge: Edge, source: int, target: int, *, contents: ArrayInterner) -> EdgeClass:
    """Of an edge between members of these classes."""
    number = contents.number
    return source, target, number(edge.matrix), number(edge.source_class), number(edge.target_class)


def build_quotient(problem: Problem, member: Sequence[int], contents: ArrayInterner) -> tuple[Problem, Integers]:
    """The problem in which node v takes the strategy of class member[v] (classes are numbered by first member), and
    which of the moments each of its is."""
    return _QuotientBuilder(problem, member, contents).problem()


@dataclass
class _QuotientBuilder:
    """By number of an array: `arrays` themselves, whether there is `some` usage in one, the `largest` cost in a matrix.
    By number of a node: `costs`, as how often which array counts."""

    whole: Problem
    member: Sequence[int]
    contents: ArrayInterner
    costs: dict[int, Counter[int]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    owners: dict[EdgeClass, int] = field(default_factory=dict)
    like: dict[EdgeClass, Edge] = field(default_factory=dict)
    times: Counter[EdgeClass] = field(default_factory=Counter)
    usages: Usages = field(default_factory=Usages)
    arrays: dict[int, Integers] = field(default_factory=dict)
    some: dict[int, bool] = field(default_factory=dict)
    largest: dict[int, int] = field(default_factory=dict)
    multiples: dict[tuple[int, int], EdgeUsage] = field(default_factory=dict)

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
            self._costs(source, edge.matrix[diagonal], edge.multiplicity)
            for usage in edge.usages:
                self._uses(source, usage.matrix[diagonal], (usage.start, usage.stop))
            return
        kind = edge_class(edge, source, target, contents=self.contents)
        self.like.setdefault(kind, edge)
        self.times[kind] += edge.multiplicity
        owner = self.owners.setdefault(kind, -1 - len(self.owners))
        for usage in edge.usages:
            self._uses(owner, usage.matrix, (usage.start, usage.stop))

    def _costs(self, owner: int, cost: Integers, times: int) -> None:
        number = self.contents.number(cost)
        self.arrays.setdefault(number, cost)
        self.costs.setdefault(owner, Counter())[number] += times

    def _uses(self, owner: int, usage: Integers, interval: tuple[int, int]) -> None:
        number = self.contents.number(usage)
        if number not in self.some:
            self.arrays.setdefault(number, usage)
            self.some[number] = bool(usage.any())
        if self.some[number]:
            self.usages.add(owner, number, interval)

    def _tied_node(self, owner: int, used: list[tuple[int, Counts]]) -> Node:
        name, cost, arrays = self.names[owner], self._cost(owner), [self.arrays[array] for array, _ in used]
        spans = [
            (start, stop, np.tensordot(np.array(counts, np.int64), np.stack(arrays), 1))
            for start, stop, counts in constant_segments([counts for _, counts in used])
        ]
        return Node.over(name, cost, spans)

    def _cost(self, owner: int) -> Integers:
        """The sum of all costs; what is IMPOSSIBLE or more is IMPOSSIBLE."""
        total = np.zeros_like(self.arrays[next(iter(self.costs[owner]))])
        for number, times in self.costs[owner].items():
            cost = self.arrays[number]
            total += np.where(cost > (IMPOSSIBLE - 1) // times, IMPOSSIBLE, cost * times)
            np.minimum(total, IMPOSSIBLE, out=total)
        return total

    def _tied_edges(self, kind: EdgeClass, used: list[tuple[int, Counts]]) -> Iterator[Edge]:
        """One edge, or several where a cost so often would count as forbidden."""
        source, target, like = kind[0], kind[1], self.like[kind]
        usages = tuple(
            self._multiple(array, times).over(start, stop)
            for array, counts in used
            for start, stop, (times,) in constant_segments([counts])
        )
        left, most = self.times[kind], self._most(kind[2], like.matrix)
        while left:
            times = min(left, most)
            yield Edge(source, target, like.source_class, like.target_class, like.matrix, times, usages)
            left, usages = left - times, ()

    def _most(self, number: int, cost: Integers) -> int:
        """How often the largest cost in a matrix can be counted before it would count as forbidden."""
        if number not in self.largest:
            self.largest[number] = max(1, int(cost.max(initial=0, where=cost < IMPOSSIBLE)))
        return (IMPOSSIBLE - 1) // self.largest[number]

    def _multiple(self, array: int, times: int) -> EdgeUsage:
        """Usages of several edges share it; its moments are to be said."""
        if (array, times) not in self.multiples:
            self.multiples[array, times] = EdgeUsage(0, 0, self.arrays[array] * times)
        return self.multiples[array, times]
