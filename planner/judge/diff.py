"""Find what changed between two planned programs, and what each change costs.

The time of a collective is attributed to the graph value it moves, so that every picosecond of a step belongs to one op
or one value, and the changes of all ops and values add up to the change of the step. The same holds for bytes received,
and for bytes held at the peak (`planner.judge.check.measures`). Of pipeline stages the times add up to what all stages
compute, not to the step. `planner.judge.graph_matching` matches the ops and values of the two plans.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from planner.ir.indexing import Option
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program, Reshard
from planner.ir.sharding import Sharding
from planner.judge.analyzed_plan import AnalyzedPlan
from planner.judge.graph_matching import GraphMatching, match_edited, match_graphs

Owned = TypeVar("Owned")


@dataclass(frozen=True, slots=True)
class CollectiveTerm:
    """A collective that moves a value."""

    collective: str
    axes: tuple[str, ...]
    time_ps: int


@dataclass(frozen=True, slots=True)
class DiffSide:
    """A value or op in one program: its sharding or option on the program's mesh, its time in ps, and the collectives
    that move a value.
    """

    name: str
    layout: Sharding | Option
    mesh: Mesh
    time_ps: int
    terms: tuple[CollectiveTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """A value or op whose layout, collectives or time changed; None on the side that lacks it."""

    what: str
    base: DiffSide | None
    new: DiffSide | None

    @property
    def change_ps(self) -> int:
        return (self.new.time_ps if self.new else 0) - (self.base.time_ps if self.base else 0)


Pairs = list[tuple[str | None, str | None]]


@dataclass(frozen=True)
class PlanDiff:
    """Two analyzed plans, and their differences."""

    base: AnalyzedPlan
    new: AnalyzedPlan

    @cached_property
    def exact_matching(self) -> GraphMatching:
        """Ops and values that are the same in both."""
        return match_graphs(self.base.graph, self.new.graph)

    @cached_property
    def matching(self) -> GraphMatching:
        """The same, and edited ops and values with what they were."""
        return match_edited(self.base.graph, self.new.graph, self.exact_matching)

    @cached_property
    def sides(self) -> dict[str, tuple[dict[str, DiffSide], dict[str, DiffSide]]]:
        """Values and ops, each of the base and of the new plan, by name."""
        both = self.base, self.new
        return {"value": (_values(both[0]), _values(both[1])), "op": (_ops(both[0]), _ops(both[1]))}

    def pairs(self, what: str) -> Pairs:
        """Return the names of values or ops in base and new, in the order of the new program, removed ones last."""
        matched = self.matching.values if what == "value" else self.matching.ops
        base, new = self.sides[what]
        pairs: Pairs = [(matched.get(name), name) for name in new]
        removed = set(base) - {one for one, _ in pairs}
        return pairs + [(name, None) for name in base if name in removed]

    def changes(self) -> list[LayoutChange]:
        """Return the changes of values, then of ops. Their times add up to the change of the step."""
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
    """Return for each value of a program the graph value that it is, or is a copy of."""
    origins = {name: name for name in program.graph.types}
    for done in program.instructions:
        if isinstance(done, Reshard):
            origins[done.result] = origins[done.operand]
    return origins


def _values(plan: AnalyzedPlan) -> dict[str, DiffSide]:
    """Return each graph value with the sharding in which it is computed, and the collectives that move it."""
    terms: dict[str, list[CollectiveTerm]] = defaultdict(list)
    for part in plan.parts:
        origin, names = find_origins(part.program), part.program.mesh.names
        for done, time in zip(part.program.instructions, part.times_ps, strict=True):
            if isinstance(done, Reshard):
                axes = tuple(names[axis] for axis in done.collective.axes)
                terms[origin[done.operand]].append(CollectiveTerm(done.collective.kind.value, axes, time))
    return {
        name: DiffSide(name, *plan.layouts[name], sum(term.time_ps for term in terms[name]), tuple(terms[name]))
        for name in plan.graph.types
    }


def _ops(plan: AnalyzedPlan) -> dict[str, DiffSide]:
    sides: dict[str, DiffSide] = {}
    for part in plan.parts:
        for run, time in zip(part.program.instructions, part.times_ps, strict=True):
            if isinstance(run, OpCall):
                before = sides[run.op.id].time_ps if run.op.id in sides else 0
                sides[run.op.id] = DiffSide(run.op.id, run.option, part.program.mesh, time + before)
    return sides


def _is_changed(one: DiffSide, other: DiffSide) -> bool:
    """Return whether more than the name differs."""
    return (one.layout, one.time_ps, sorted(map(_term_key, one.terms))) != (
        other.layout,
        other.time_ps,
        sorted(map(_term_key, other.terms)),
    )


def _term_key(term: CollectiveTerm) -> tuple[str, tuple[str, ...], int]:
    return term.collective, term.axes, term.time_ps
