"""When values are computed, shared and read, and how long a shared value may live.

Time steps are those of `planner.ir.execution_order`, and a last one for the finished program. Clones of ops, which a
plan need not run (`planner.choose.rematerialization`), have steps like all ops, and how long a shared value is held
depends on which of them run. Its *lifetime* names the reader after which the value is dead, so that it does not depend
on other variables; edges forbid later reads. A value that may be recomputed has two halves: its own, up to its last
early reader, and that of its clone. Where it is kept instead, the first half lives until the second one begins, in the
same sharding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from planner.choose.rematerialization import GraphWithClones
from planner.ir.execution_order import Execute, Read, Reader, Share, Shrink, pass_of


class SharedLifetime(NamedTuple):
    """A shared value is read last by the op at position `last` (for outputs, the number of ops).

    `is_kept`: it is not recomputed, and lives until its clone's shared copy begins.
    """

    last: int
    is_kept: bool = False


class ReadGroup(NamedTuple):
    """The reads of a value by one op: its position, the step of the last read, and whether it is the only one."""

    position: int
    moment: int
    is_single_read: bool


@dataclass
class Liveness:
    """Time steps at which each value is computed, shared and read, and at which each op runs."""

    with_clones: GraphWithClones
    produced_at: dict[str, int] = field(default_factory=dict)
    shared_at: dict[str, int] = field(default_factory=dict)
    shrunk_at: dict[str, int] = field(default_factory=dict)
    reads_at: dict[str, list[tuple[int, Reader]]] = field(default_factory=dict)
    ran_at: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ops = self.with_clones.graph.ops
        self.end = len(self.with_clones.listed)
        self.optional = {place for place, op in enumerate(self.ops) if op.id in self.with_clones.clone_of}
        for moment, step in enumerate(self.with_clones.listed):
            match step:
                case Share(value):
                    self.shared_at[value] = moment
                case Shrink(value):
                    self.shrunk_at[value] = moment
                case Read(value, reader):
                    self.reads_at.setdefault(value, []).append((moment, reader))
                case Execute(position):
                    self.ran_at[position] = moment
                    op = self.ops[position]
                    self.produced_at.update(dict.fromkeys(op.values, 0 if op.accumulates else moment))

    @cached_property
    def moments(self) -> dict[str, int]:
        """The step at which each op runs."""
        return {op.id: self.ran_at[place] for place, op in enumerate(self.ops)}

    @cached_property
    def loop_end(self) -> int:
        """The first step of the update: those before it are taken once per micro-batch."""
        return max((self.ran_at[n] + 1 for n, op in enumerate(self.ops) if op.phase != "update"), default=0)

    def count_trips(self, moment: int) -> int:
        """Return how often a step is taken."""
        return self.with_clones.graph.microbatches if moment < self.loop_end else 1

    @cached_property
    def read_groups(self) -> dict[str, list[ReadGroup]]:
        """The readers of each value, in order."""
        groups: dict[str, list[ReadGroup]] = {}
        for value, reads in self.reads_at.items():
            by_op: dict[int, list[int]] = {}
            for moment, reader in reads:
                by_op.setdefault(self.position_of(reader), []).append(moment)
            groups[value] = [ReadGroup(place, moments[-1], len(moments) == 1) for place, moments in by_op.items()]
        return groups

    def lifetimes(self, value: str) -> tuple[SharedLifetime | None, ...]:
        """Return the possible lifetimes of a shared value, one if its readers always run; None: it is not computed."""
        groups = self.read_groups[value]
        # Readers before the last that always runs cannot be the last ones, so they make no lifetime.
        firm = max((n for n, group in enumerate(groups) if group.position not in self.optional), default=-1)
        plain = [SharedLifetime(group.position) for group in groups[max(firm, 0) :]]
        if value in self.with_clones.clones:
            return *plain, SharedLifetime(len(self.ops) + 1, is_kept=True)
        if value in self.with_clones.clone_of:
            return *plain, *(life._replace(is_kept=True) for life in plain), *(() if firm >= 0 else (None,))
        return tuple(plain)

    def held(self, value: str, life: SharedLifetime | None) -> tuple[int, int]:
        """Return the steps from which and to which a shared value is held, apart from the memory of edges."""
        if life is None:
            return 0, 0
        # The copy of a kept value is handed over, not made: it is held from the step itself, without a gap to the
        # first half.
        start = self.shared_at[value] + (0 if life.is_kept and value in self.with_clones.clone_of else 1)
        if life.is_kept and value in self.with_clones.clones:
            return start, self.shared_at[self.with_clones.clones[value]]
        group = next(group for group in self.read_groups[value] if group.position == life.last)
        return start, group.moment if group.is_single_read else self.released_at(group.position)

    def is_in_place(self, value: str, life: SharedLifetime | None) -> bool:
        """Return whether a value is shared as it is computed.

        That is a recomputable value or clone with a single reader, and one that is sent before its first reader runs.
        """
        if value in self.with_clones.graph.sent:
            return self._is_sent_first(value)
        halves = value in self.with_clones.clones or value in self.with_clones.clone_of
        return halves and life is not None and not life.is_kept and len(self.reads_at[value]) == 1

    def _is_sent_first(self, value: str) -> bool:
        graph, reader = self.with_clones.graph, self.reads_at[value][0][1].op
        own = next((place for place, op in enumerate(self.ops) if value in op.values), None)
        if own is None or reader is None or reader in self.optional:
            return True
        return pass_of(graph, own) != pass_of(graph, reader)

    def first_read_at(self, value: str) -> int:
        """Return the step at which a value is first read as it was computed."""
        return self.shrunk_at.get(value, self.shared_at.get(value, self.reads_at[value][0][0]))

    def is_last_read(self, value: str, life: SharedLifetime | None, reader: Reader) -> bool:
        """Return whether a read is the last of a value, and the only one by its op."""
        place = self.position_of(reader)
        return life is not None and life.last == place and self._is_single_read(value, place)

    def _is_single_read(self, value: str, place: int) -> bool:
        return next(group.is_single_read for group in self.read_groups[value] if group.position == place)

    def position_of(self, reader: Reader) -> int:
        return len(self.ops) if reader.op is None else reader.op

    def released_at(self, place: int) -> int:
        """Return the first step at which the copies that the reader at a position made are dead."""
        return self.end + 1 if place == len(self.ops) else self.ran_at[place] + 1
