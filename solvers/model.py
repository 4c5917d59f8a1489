"""The parts of a problem: nodes, edges and their usages. Each is checked when it is constructed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Classes = NDArray[np.int32]
Kinds = NDArray[np.unsignedinteger]
Part = TypeVar("Part", "Node", "EdgeUsage", "Edge")

IMPOSSIBLE = 10**16
"""A cost of this or more forbids the strategy or the pair. Sums of permitted costs may exceed it."""


class InvalidProblem(ValueError):
    """A problem, or an argument of a solve, that is malformed. The message says what is wrong, where, what was given
    and what was expected."""

    def __init__(self, what: str, where: str, got: object, wanted: str) -> None:
        super().__init__(f"{what} of {where}: got {got}, wanted {wanted}")
        self.what, self.where, self.got, self.wanted = what, where, got, wanted


def _check_interval(where: str, start: int, stop: int) -> None:
    if not 0 <= start <= stop:
        raise InvalidProblem("interval", where, (start, stop), "0 <= start <= stop")


def _check_sizes(what: str, where: str, values: NDArray[np.generic], *, dimensions: int) -> None:
    is_array = isinstance(values, np.ndarray)
    if not is_array or values.dtype != np.int64 or values.ndim != dimensions or values.size == 0:
        got = f"{values.dtype}{list(values.shape)}" if is_array else type(values).__name__
        raise InvalidProblem(what, where, got, f"a non-empty int64 array of {dimensions} dimension(s)")
    if values.min() < 0:
        raise InvalidProblem(what, where, int(values.min()), "no negative entry")


def _check_multiplicity(where: str, multiplicity: int, cost: Integers) -> None:
    if multiplicity < 1:
        raise InvalidProblem("multiplicity", where, multiplicity, "at least 1")
    if multiplicity == 1:
        return
    finite = cost[cost < IMPOSSIBLE]
    if finite.size and int(finite.max()) * multiplicity >= IMPOSSIBLE:
        got = int(finite.max()) * multiplicity
        raise InvalidProblem("cost times multiplicity", where, got, f"less than {IMPOSSIBLE}")


def _check_kinds(where: str, kinds: Kinds, count: int) -> None:
    if kinds.dtype.kind != "u" or kinds.ndim != 2 or kinds.size == 0:
        raise InvalidProblem("kinds", where, f"{kinds.dtype}{list(kinds.shape)}", "a non-empty unsigned 2-D array")
    if kinds.max() >= count:
        raise InvalidProblem("kinds", where, int(kinds.max()), f"less than {count}, the entries of the matrix")


def _check_ends(source: int, target: int) -> None:
    if source == target:
        where, wanted = f"edge {source} -> {target}", "two different nodes (add the diagonal to the node's cost)"
        raise InvalidProblem("ends", where, source, wanted)


def _copy_with(part: Part, **valid: object) -> Part:
    """Copy a part with some fields replaced, without checking anything: the caller vouches for the new values.

    Folded problems repeat one layer's parts hundreds of times; checking the same arrays again would dominate.
    """
    copy = object.__new__(type(part))
    for name in part.__slots__:
        object.__setattr__(copy, name, valid[name] if name in valid else getattr(part, name))
    return copy


@dataclass(frozen=True, slots=True, eq=False)
class UsageIntervals:
    """Additional usages of a node: strategy x uses usage[q, x] bytes over the time steps [start[q], stop[q]).

    `start` and `stop` have shape [intervals], `usage` [intervals, strategies]. The intervals ascend and do not overlap.
    """

    start: Integers
    stop: Integers
    usage: Integers

    def __post_init__(self) -> None:
        where = "usage intervals"
        _check_sizes("usage", where, self.usage, dimensions=2)
        for name, time_steps in (("start", self.start), ("stop", self.stop)):
            _check_sizes(name, where, time_steps, dimensions=1)
            if time_steps.size != self.usage.shape[0]:
                wanted = f"one time step for each of {self.usage.shape[0]} intervals"
                raise InvalidProblem(name, where, time_steps.size, wanted)
        time_steps = np.stack([self.start, self.stop], axis=1).ravel()
        if (np.diff(time_steps) < 0).any():
            raise InvalidProblem("order", where, time_steps.tolist()[:20], "ascending intervals that do not overlap")


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A variable with k strategies: cost [k] in cost units, and usage [k] in bytes over the half-open `interval` of
    time steps. `more_usage` holds the usage over later intervals."""

    name: str
    cost: Integers
    usage: Integers
    interval: tuple[int, int]
    multiplicity: int = 1
    more_usage: UsageIntervals | None = None

    def __post_init__(self) -> None:
        where = f"node {self.name!r}"
        _check_sizes("cost", where, self.cost, dimensions=1)
        _check_sizes("usage", where, self.usage, dimensions=1)
        if self.usage.shape != self.cost.shape:
            raise InvalidProblem("usage", where, self.usage.shape, f"the shape of cost {self.cost.shape}")
        _check_interval(where, *self.interval)
        if self.more_usage is not None and self.more_usage.usage.shape[1] != self.cost.size:
            got = self.more_usage.usage.shape[1]
            raise InvalidProblem("more_usage", where, got, f"one entry for each of {self.cost.size} strategies")
        if self.more_usage is not None and self.more_usage.start[0] < self.interval[1]:
            wanted = f"a start of {self.interval[1]} or later"
            raise InvalidProblem("more_usage", where, int(self.more_usage.start[0]), wanted)
        _check_multiplicity(where, self.multiplicity, self.cost)

    @classmethod
    def over(cls, name: str, cost: Integers, spans: Sequence[tuple[int, int, Integers]]) -> Node:
        """Return a node with these usages: (start, stop, bytes of each strategy) by ascending interval.

        An empty sequence means that the node uses nothing.
        """
        if not spans:
            return cls(name, cost, np.zeros(len(cost), np.int64), (0, 0))
        (start, stop, first), *others = spans
        more_usage = None
        if others:
            starts, stops, usages = zip(*others, strict=True)
            more_usage = UsageIntervals(np.array(starts, np.int64), np.array(stops, np.int64), np.stack(usages))
        return cls(name, cost, first, (start, stop), more_usage=more_usage)

    def at(self, name: str, start: int, stop: int) -> Node:
        """Return the node under another name and interval, without `more_usage`. The arrays are not checked again."""
        _check_interval(f"node {name!r}", start, stop)
        return _copy_with(self, name=name, interval=(start, stop), more_usage=None)


@dataclass(frozen=True, slots=True, eq=False)
class EdgeUsage:
    """Bytes that each pair of classes uses over the time steps [start, stop); `matrix` has the shape of the edge's, and
    one entry per kind of pair where the edge has kinds."""

    start: int
    stop: int
    matrix: Integers

    def __post_init__(self) -> None:
        _check_interval("edge usage", self.start, self.stop)
        _check_sizes("usage", "edge usage", self.matrix, dimensions=1 if self.matrix.ndim == 1 else 2)

    def over(self, start: int, stop: int) -> EdgeUsage:
        """Return the same usage over another interval. The matrix is not checked again."""
        _check_interval("edge usage", start, stop)
        return _copy_with(self, start=start, stop=stop)


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """A cost, and usages, for each pair of strategies of two nodes.

    source_class and target_class hold the class of each strategy; matrix has shape [source classes, target classes].
    Edges may share a matrix object, which the flat arrays then store once.

    Where many pairs cost and use the same, `kinds` of that shape holds the kind of each pair, and the matrices of costs
    and usages have one entry per kind; each kind occurs. None: every pair has its own entry.
    """

    source: int
    target: int
    source_class: Classes
    target_class: Classes
    matrix: Integers
    multiplicity: int = 1
    usages: tuple[EdgeUsage, ...] = ()
    kinds: Kinds | None = None

    def __post_init__(self) -> None:
        where = f"edge {self.source} -> {self.target}"
        _check_ends(self.source, self.target)
        _check_sizes("matrix", where, self.matrix, dimensions=2 if self.kinds is None else 1)
        _check_multiplicity(where, self.multiplicity, self.matrix)
        if self.kinds is not None:
            _check_kinds(where, self.kinds, self.matrix.size)
        for classes, count in zip((self.source_class, self.target_class), self.shape, strict=True):
            if classes.dtype != np.int32 or classes.ndim != 1 or classes.size == 0:
                got = f"{classes.dtype}{list(classes.shape)}"
                raise InvalidProblem("classes", where, got, "a non-empty int32 array of 1 dimension")
            if classes.view(np.uint32).max() >= count:  # read as unsigned, a negative class is out of range too
                wanted = f"0 <= class < {count}, the matrix {self.shape}"
                raise InvalidProblem("classes", where, (int(classes.min()), int(classes.max())), wanted)
        for usage in self.usages:
            if usage.matrix.shape != self.matrix.shape:
                raise InvalidProblem("usage", where, usage.matrix.shape, f"the shape of matrix {self.matrix.shape}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of classes at the source and at the target."""
        return self.matrix.shape if self.kinds is None else self.kinds.shape

    def cost(self, sources: NDArray[np.integer], targets: NDArray[np.integer]) -> Integers:
        """Return the costs of pairs of classes; both indices are broadcast against each other."""
        return self.select(self.matrix, sources, targets)

    def select(self, matrix: Integers, sources: NDArray[np.integer], targets: NDArray[np.integer]) -> Integers:
        """Return the entries of pairs of classes in a matrix of this edge: its costs, or those of a usage."""
        entries: Integers = matrix[sources, targets] if self.kinds is None else matrix[self.kinds[sources, targets]]
        return entries

    def with_kinds(self, kinds: Kinds) -> Edge:
        """Return the edge with an equal array of kinds, which is not checked again."""
        return _copy_with(self, kinds=kinds)

    def between(self, source: int, target: int, intervals: Sequence[tuple[int, int]]) -> Edge:
        """Return the edge between other nodes, with one new half-open interval for each of its usages.

        The arrays are not checked again.
        """
        _check_ends(source, target)
        usages = tuple(usage.over(*interval) for usage, interval in zip(self.usages, intervals, strict=True))
        return _copy_with(self, source=source, target=target, usages=usages)
