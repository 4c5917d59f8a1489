"""What changed between two planned programs, and what each change costs.

The time of an op is its own; that of a collective belongs to the graph value it moves. So every picosecond of a step
belongs to one op or one value, and the changes of all ops and values add up to the change of the step. Ops and values
of the two are matched by `planner.judge.matching`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.judge.analysis import Analysis
from planner.judge.matching import Matching, matched
from planner.model.indexing import Option
from planner.model.program import Move, Run
from planner.model.sharding import Sharding


@dataclass(frozen=True, slots=True)
class Term:
    """A collective of a value."""

    collective: str
    axes: tuple[str, ...]
    time_ps: int


@dataclass(frozen=True, slots=True)
class Side:
    """A value or an op in one of the programs: its sharding or option, its time, and of a value its collectives."""

    name: str
    layout: Sharding | Option
    time_ps: int
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """A value or op that is laid out, moved or timed otherwise; None on the side that lacks it."""

    what: str
    base: Side | None
    new: Side | None

    @property
    def change_ps(self) -> int:
        return (self.new.time_ps if self.new else 0) - (self.base.time_ps if self.base else 0)


@dataclass(frozen=True)
class Regression:
    """Two programs with their numbers."""

    base: Analysis
    new: Analysis
    matching: Matching = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "matching", matched(self.base.program.graph, self.new.program.graph))

    def changes(self) -> list[Change]:
        """Of values, then of ops, in the order of the new program, what is gone last; times add up to the step's."""
        values = _changes("value", _values(self.base), _values(self.new), self.matching.values)
        return values + _changes("op", _ops(self.base), _ops(self.new), self.matching.ops)


def _values(analysis: Analysis) -> dict[str, Side]:
    """Every value of the graph as it is made, with the collectives that move it."""
    program, names = analysis.program, analysis.program.mesh.names
    origin = {name: name for name in program.graph.types}
    terms: dict[str, list[Term]] = defaultdict(list)
    for done, time in zip(program.instructions, analysis.times_ps, strict=True):
        if isinstance(done, Move):
            origin[done.result] = origin[done.operand]
            axes = tuple(names[axis] for axis in done.collective.axes)
            terms[origin[done.operand]].append(Term(done.collective.kind.value, axes, time))
    return {
        name: Side(name, program.values[name].sharding, sum(t.time_ps for t in terms[name]), tuple(terms[name]))
        for name in program.graph.types
    }


def _ops(analysis: Analysis) -> dict[str, Side]:
    pairs = zip(analysis.program.instructions, analysis.times_ps, strict=True)
    return {run.op.id: Side(run.op.id, run.option, time) for run, time in pairs if isinstance(run, Run)}


def _changes(what: str, base: Mapping[str, Side], new: Mapping[str, Side], same: Mapping[str, str]) -> list[Change]:
    pairs = [(base[same[name]] if name in same else None, side) for name, side in new.items()]
    gone = set(base) - {one.name for one, _ in pairs if one}
    listed = [Change(what, one, side) for one, side in pairs if one is None or _differ(one, side)]
    return listed + [Change(what, side, None) for name, side in base.items() if name in gone]


def _differ(one: Side, other: Side) -> bool:
    """Whether more than the name is another."""
    return (one.layout, one.time_ps, sorted(map(_key, one.terms))) != (
        other.layout,
        other.time_ps,
        sorted(map(_key, other.terms)),
    )


def _key(term: Term) -> tuple[str, tuple[str, ...], int]:
    return term.collective, term.axes, term.time_ps
