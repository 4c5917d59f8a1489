"""What changed between two planned programs, and what each change costs.

The time of an op is its own; that of a collective belongs to the graph value it moves. So every picosecond of a step
belongs to one op or one value, and the changes of all ops and values add up to the change of the step. The same holds
of bytes received, and of bytes held at the peak (`planner.judge.check.measures`). Ops and values of the two are matched
by `planner.judge.graph_matching`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from planner.ir.indexing import Option
from planner.ir.program import OpCall, Program, Reshard
from planner.ir.sharding import Sharding
from planner.judge.analysis import Analysis
from planner.judge.graph_matching import GraphMatching, match_edited, match_graphs

Owned = TypeVar("Owned")


@dataclass(frozen=True, slots=True)
class CollectiveTerm:
    """A collective of a value."""

    collective: str
    axes: tuple[str, ...]
    time_ps: int


@dataclass(frozen=True, slots=True)
class DiffSide:
    """A value or an op in one of the programs: its sharding or option, its time, and of a value its collectives."""

    name: str
    layout: Sharding | Option
    time_ps: int
    terms: tuple[CollectiveTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """A value or op that is laid out, moved or timed otherwise; None on the side that lacks it."""

    what: str
    base: DiffSide | None
    new: DiffSide | None

    @property
    def change_ps(self) -> int:
        return (self.new.time_ps if self.new else 0) - (self.base.time_ps if self.base else 0)


Pairs = list[tuple[str | None, str | None]]


@dataclass(frozen=True)
class PlanDiff:
    """Two programs with their numbers."""

    base: Analysis
    new: Analysis

    @cached_property
    def exact_matching(self) -> GraphMatching:
        """What is the same in both."""
        return match_graphs(self.base.program.graph, self.new.program.graph)

    @cached_property
    def matching(self) -> GraphMatching:
        """And what was edited, beside what it was."""
        return match_edited(self.base.program.graph, self.new.program.graph, self.exact_matching)

    @cached_property
    def sides(self) -> dict[str, tuple[dict[str, DiffSide], dict[str, DiffSide]]]:
        """Of values and of ops, those of the base and of the new program, by name."""
        both = self.base, self.new
        return {"value": (_values(both[0]), _values(both[1])), "op": (_ops(both[0]), _ops(both[1]))}

    def pairs(self, what: str) -> Pairs:
        """Names of values or ops in base and new, in the order of the new program, what is gone last."""
        same = self.matching.values if what == "value" else self.matching.ops
        base, new = self.sides[what]
        found: Pairs = [(same.get(name), name) for name in new]
        gone = set(base) - {one for one, _ in found}
        return found + [(name, None) for name in base if name in gone]

    def changes(self) -> list[LayoutChange]:
        """Of values, then of ops; times add up to the step's."""
        listed = []
        for what, (base, new) in self.sides.items():
            for one, other in self.pairs(what):
                change = LayoutChange(what, _get_side(base, one), _get_side(new, other))
                if change.base is None or change.new is None or _is_changed(change.base, change.new):
                    listed.append(change)
        return listed


def _get_side(sides: Mapping[str, Owned], name: str | None) -> Owned | None:
    return None if name is None else sides[name]


def find_origins(program: Program) -> dict[str, str]:
    """Every value of a program -> the graph value of which it is a copy, or which it is."""
    found = {name: name for name in program.graph.types}
    for done in program.instructions:
        if isinstance(done, Reshard):
            found[done.result] = found[done.operand]
    return found


def _values(analysis: Analysis) -> dict[str, DiffSide]:
    """Every value of the graph as it is made, with the collectives that move it."""
    program, names = analysis.program, analysis.program.mesh.names
    origin = find_origins(program)
    terms: dict[str, list[CollectiveTerm]] = defaultdict(list)
    for done, time in zip(program.instructions, analysis.times_ps, strict=True):
        if isinstance(done, Reshard):
            axes = tuple(names[axis] for axis in done.collective.axes)
            terms[origin[done.operand]].append(CollectiveTerm(done.collective.kind.value, axes, time))
    return {
        name: DiffSide(name, program.values[name].sharding, sum(t.time_ps for t in terms[name]), tuple(terms[name]))
        for name in program.graph.types
    }


def _ops(analysis: Analysis) -> dict[str, DiffSide]:
    pairs = zip(analysis.program.instructions, analysis.times_ps, strict=True)
    return {run.op.id: DiffSide(run.op.id, run.option, time) for run, time in pairs if isinstance(run, OpCall)}


def _is_changed(one: DiffSide, other: DiffSide) -> bool:
    """Whether more than the name is another."""
    return (one.layout, one.time_ps, sorted(map(_term_key, one.terms))) != (
        other.layout,
        other.time_ps,
        sorted(map(_term_key, other.terms)),
    )


def _term_key(term: CollectiveTerm) -> tuple[str, tuple[str, ...], int]:
    return term.collective, term.axes, term.time_ps
