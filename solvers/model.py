"""The parts of a choice problem: nodes, edges, and the usages they have. Each is valid or cannot be made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Classes = NDArray[np.int32]
Part = TypeVar("Part", "Node", "EdgeUsage", "Edge")

IMPOSSIBLE = 10**16
"""A cost of this or more forbids the strategy or the pair."""


class InvalidProblem(ValueError):
    """A problem that cannot be: the message says what, where, got and wanted."""

    def __init__(self, what: str, where: str, got: object, wanted: str) -> None:
        super().__init__(f"{what} of {where}: got {got}, wanted {wanted}")
        self.what, self.where, self.got, self.wanted = what, where, got, wanted


def _check_interval(where: str, start: int, stop: int) -> None:
    if not 0 <= start <= stop:
        raise InvalidProblem("interval", where, (start, stop), "0 <= start <= stop")


def _check_sizes(what: str, where: str, values: NDArray[np.generic], *, dimensions: int) -> None:
    if values.dtype != np.int64 or values.ndim != dimensions or values.size == 0:
        got = f"{values.dtype}{list(values.shape)}"
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


def _check_ends(source: int, target: int) -> None:
    if source == target:
        where, wanted = f"edge {source} -> {target}", "two different nodes (add the diagonal to the node's cost)"
        raise InvalidProblem("ends", where, source, wanted)


def _copy_with(part: Part, **valid: object) -> Part:
    """A part like one that is valid, with some valid values in place of its own: nothing is checked."""
    made = object.__new__(type(part))
    for name in part.__slots__:
        object.__setattr__(made, name, valid[name] if name in valid else getattr(part, name))
    return made


@dataclass(frozen=True, slots=True, eq=False)
class UsageIntervals:
    """Further usages of a node: usage[q, x] bytes of strategy x over the half-open interval [start[q], stop[q]).

    The intervals ascend and do not overlap.
    """

    start: Integers
    stop: Integers
    usage: Integers

    def __post_init__(self) -> None:
        _check_sizes("usage", "spans", self.usage, dimensions=2)
        for name, time_steps in (("start", self.start), ("stop", self.stop)):
            _check_sizes(name, "spans", time_steps, dimensions=1)
            if time_steps.size != self.usage.shape[0]:
                raise InvalidProblem(
                    name, "spans", time_steps.size, f"one moment for each of {self.usage.shape[0]} spans"
                )
        time_steps = np.stack([self.start, self.stop], axis=1).ravel()
        if (np.diff(time_steps) < 0).any():
            raise InvalidProblem("intervals", "spans", time_steps.tolist()[:20], "ascending ones that do not overlap")


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A choice among k strategies; usage in bytes over the half-open interval of moments, and over further ones."""

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
            raise InvalidProblem("further usage", where, got, f"one entry for each of {self.cost.size} strategies")
        if self.more_usage is not None and self.more_usage.start[0] < self.interval[1]:
            raise InvalidProblem("further usage", where, int(self.more_usage.start[0]), f"from {self.interval[1]} on")
        _check_multiplicity(where, self.multiplicity, self.cost)

    @classmethod
    def over(cls, name: str, cost: Integers, spans: Sequence[tuple[int, int, Integers]]) -> Node:
        """One that uses (start, stop, bytes of every strategy) over these intervals, which ascend; none: nothing."""
        if not spans:
            return cls(name, cost, np.zeros(len(cost), np.int64), (0, 0))
        (start, stop, first), *others = spans
        further = None
        if others:
            starts, stops, usages = zip(*others, strict=True)
            further = UsageIntervals(np.array(starts, np.int64), np.array(stops, np.int64), np.stack(usages))
        return cls(name, cost, first, (start, stop), more_usage=further)

    def at(self, name: str, start: int, stop: int) -> Node:
        """The same choice under another name over other moments, without further usages: no array is checked again."""
        _check_interval(f"node {name!r}", start, stop)
        return _copy_with(self, name=name, interval=(start, stop), more_usage=None)


@dataclass(frozen=True, slots=True, eq=False)
class EdgeUsage:
    """Bytes that a pair of classes uses over the half-open interval [start, stop) of moments."""

    start: int
    stop: int
    matrix: Integers

    def __post_init__(self) -> None:
        _check_interval("edge usage", self.start, self.stop)
        _check_sizes("usage", "edge usage", self.matrix, dimensions=2)

    def over(self, start: int, stop: int) -> EdgeUsage:
        """The same at other moments."""
        _check_interval("edge usage", start, stop)
        return _copy_with(self, start=start, stop=stop)


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """A cost, and usages, of the classes that its two nodes' strategies fall into; matrices may be shared."""

    source: int
    target: int
    source_class: Classes
    target_class: Classes
    matrix: Integers
    multiplicity: int = 1
    usages: tuple[EdgeUsage, ...] = ()

    def __post_init__(self) -> None:
        where = f"edge {self.source} -> {self.target}"
        _check_ends(self.source, self.target)
        _check_sizes("matrix", where, self.matrix, dimensions=2)
        _check_multiplicity(where, self.multiplicity, self.matrix)
        for classes, count in (
            (self.source_class, self.matrix.shape[0]),
            (self.target_class, self.matrix.shape[1]),
        ):
            if classes.dtype != np.int32 or classes.ndim != 1 or classes.size == 0:
                got = f"{classes.dtype}{list(classes.shape)}"
                raise InvalidProblem("classes", where, got, "a non-empty int32 array of 1 dimension")
            if classes.view(np.uint32).max() >= count:  # a negative class is a huge one
                wanted = f"0 <= class < {count}, the matrix {self.matrix.shape}"
                raise InvalidProblem("classes", where, (int(classes.min()), int(classes.max())), wanted)
        for usage in self.usages:
            if usage.matrix.shape != self.matrix.shape:
                raise InvalidProblem("usage", where, usage.matrix.shape, f"the matrix's shape {self.matrix.shape}")

    def between(self, source: int, target: int, intervals: Sequence[tuple[int, int]]) -> Edge:
        """The same between other nodes, and its usages over other half-open intervals: no array is checked again."""
        _check_ends(source, target)
        usages = tuple(usage.over(*interval) for usage, interval in zip(self.usages, intervals, strict=True))
        return _copy_with(self, source=source, target=target, usages=usages)
