"""When values are made, shared and read, and how long a shared value may live.

Moments are the steps of `planner.model.steps` and a last one for the finished program. Ops that a plan may do without
(copies of what is done before, `planner.choose.recompute`) have their steps as all others; what a shared value is held
for depends on which of them run. Its *life* is the reader after which it is dead, so that a life is free of the others'
choices; that it is the last one which reads is for the edges to say. A value that may be made again has two halves: its
own, up to its last early reader, and that of its copy. They are *linked* where nothing is made again: then the first
half lives until the second one begins, in one and the same sharding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from planner.choose.recompute import Doubled
from planner.model.steps import Execute, Read, Reader, Share


class Life(NamedTuple):
    """A shared value is read last by the op at position `last` (outputs: the number of ops)."""

    last: int
    linked: bool = False


class Group(NamedTuple):
    """The reads of a value by one op: its position, the moment of the last, whether there is but one."""

    position: int
    moment: int
    once: bool


@dataclass
class Timeline:
    """Moments: when every value is made, shared and read, when every op has run, and the end."""

    doubled: Doubled
    made: dict[str, int] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    reads: dict[str, list[tuple[int, Reader]]] = field(default_factory=dict)
    ran: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ops = self.doubled.graph.ops
        self.end = len(self.doubled.listed)
        self.optional = {place for place, op in enumerate(self.ops) if op.id in self.doubled.first}
        for moment, step in enumerate(self.doubled.listed):
            match step:
                case Share(value):
                    self.shared[value] = moment
                case Read(value, reader):
                    self.reads.setdefault(value, []).append((moment, reader))
                case Execute(position):
                    self.ran[position] = moment
                    self.made.update(dict.fromkeys(self.ops[position].values, moment))

    @cached_property
    def groups(self) -> dict[str, list[Group]]:
        """Who reads a value, in order."""
        found: dict[str, list[Group]] = {}
        for value, reads in self.reads.items():
            by_op: dict[int, list[int]] = {}
            for moment, reader in reads:
                by_op.setdefault(self.place(reader), []).append(moment)
            found[value] = [Group(place, moments[-1], len(moments) == 1) for place, moments in by_op.items()]
        return found

    def lives(self, value: str) -> tuple[Life | None, ...]:
        """How long a shared value may live (None: it is not there at all); one life where its readers always run."""
        groups = self.groups[value]
        firm = max((n for n, group in enumerate(groups) if group.position not in self.optional), default=-1)
        plain = [Life(group.position) for group in groups[max(firm, 0) :]]
        if value in self.doubled.again:
            return *plain, Life(len(self.ops) + 1, linked=True)
        if value in self.doubled.first:
            return *plain, *(life._replace(linked=True) for life in plain), *(() if firm >= 0 else (None,))
        return tuple(plain)

    def held(self, value: str, life: Life | None) -> tuple[int, int]:
        """The moments from which and to which a shared value is held in a life, beside what edges count."""
        if life is None:
            return 0, 0
        start = self.shared[value] + (0 if life.linked and value in self.doubled.first else 1)
        if life.linked and value in self.doubled.again:
            return start, self.shared[self.doubled.again[value]]
        group = next(group for group in self.groups[value] if group.position == life.last)
        return start, group.moment if group.once else self.after(group.position)

    def stays(self, value: str, life: Life | None) -> bool:
        """Whether what is made again, or may be, is shared as it is made: its only reader starts from there."""
        halves = value in self.doubled.again or value in self.doubled.first
        return halves and life is not None and not life.linked and len(self.reads[value]) == 1

    def left(self, value: str) -> int:
        """The moment at which a value, as it was made, is first read."""
        return self.shared.get(value, self.reads[value][0][0])

    def ends(self, value: str, life: Life | None, reader: Reader) -> bool:
        """Whether a read is the last of a value, and the only one by its op."""
        place = self.place(reader)
        return life is not None and life.last == place and self._once(value, place)

    def _once(self, value: str, place: int) -> bool:
        return next(group.once for group in self.groups[value] if group.position == place)

    def place(self, reader: Reader) -> int:
        return len(self.ops) if reader.op is None else reader.op

    def after(self, place: int) -> int:
        """The first moment at which the copies of the reader at a position are dead."""
        return self.end + 1 if place == len(self.ops) else self.ran[place] + 1
