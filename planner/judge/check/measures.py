"""Measure the figure of a limit in both programs, as terms of ops and values that add up to it, in whole units.

    time      of an op, and of a value's collectives, in picoseconds
    bytes     that a value's collectives bring to the device that receives most (of all, or along the axis)
    memory    of a value and its copies on the peak device, at the peak

Along a mesh axis, the terms are those of collectives whose groups span it. In a scope, they are those of ops in the
scope or below, of values computed there, and of graph inputs whose names begin with it. An op or value that is in both
programs belongs to a scope if it does in either: renaming a scope is no change, and a limit on the old name still
holds.

Of pipeline stages, `time` is that of the step, and its terms, which are those of all stages, add up to what these
compute. `bytes` are those of the stage whose device receives most, `memory` is that of the rank that holds most. Within
a scope, and time along an axis, are sums over all stages, of memory at the peak of each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.ir.memory_kinds import find_live_ranges
from planner.ir.program import OpCall, Reshard
from planner.judge.analysis import Analysis
from planner.judge.analyzed_plan import AnalyzedPlan
from planner.judge.check.limits import Threshold
from planner.judge.diff import PlanDiff, find_origins

Owner = tuple[str, str]
"""The word `op` or `value`, and the name of the op or value."""


@dataclass(frozen=True, slots=True)
class ChangedTerm:
    """The part of a figure that belongs to an op or value, in base and new, and why it differs.

    A name is None where the op or value was added or removed.
    """

    what: str
    base_name: str | None
    name: str | None
    base: int
    new: int
    reason: str

    @property
    def change(self) -> int:
        return self.new - self.base


@dataclass(frozen=True, slots=True)
class MeasuredChange:
    """A figure in both programs; `changed_terms` are the terms that differ, the largest rise first."""

    base: int
    new: int
    changed_terms: tuple[ChangedTerm, ...]


def measure_change(diff: PlanDiff, limit: Threshold) -> MeasuredChange:
    """Measure the figure of a limit. Raises InvalidRequest for a place that is neither a mesh axis nor a scope."""
    axis, scope = _resolve_place(diff, limit)
    is_scope = scope is not None
    base, new = (_measure_terms(each, limit.measure, axis, is_scope=is_scope) for each in (diff.base, diff.new))
    homes = [_find_scopes(each.graph) for each in (diff.base, diff.new)]
    describers = _TermDescriber(diff.base, limit.measure), _TermDescriber(diff.new, limit.measure)
    totals, changed = [0, 0], []
    for what in ("value", "op"):
        for one, other in diff.pairs(what):
            scopes = [home[what, name] for home, name in zip(homes, (one, other), strict=True) if name is not None]
            if scope is not None and not any(_is_in_scope(home, scope) for home in scopes):
                continue
            ends = base.get((what, one or ""), 0), new.get((what, other or ""), 0)
            totals = [totals[0] + ends[0], totals[1] + ends[1]]
            if ends[0] != ends[1]:
                changed.append(ChangedTerm(what, one, other, *ends, _describe_change(*describers, what, one, other)))
    if limit.measure == "time" and limit.place is None:
        totals = [diff.base.step_ps, diff.new.step_ps]
    return MeasuredChange(totals[0], totals[1], tuple(sorted(changed, key=lambda term: -term.change)))


def _resolve_place(diff: PlanDiff, limit: Threshold) -> tuple[str | None, str | None]:
    """Return the mesh axis or the scope of a limit, each None where the limit has none."""
    axes = tuple(dict.fromkeys(name for part in diff.new.parts for name in part.program.mesh.names))
    if limit.place in axes:
        if limit.measure == "memory":
            wanted = f"time[{limit.place}], bytes[{limit.place}], or memory of a scope"
            raise InvalidRequest("memory is not held along a mesh axis", where=limit.text, wanted=wanted)
        return limit.place, None
    if limit.place is not None:
        homes = [home for each in (diff.base, diff.new) for home in _find_scopes(each.graph).values()]
        if not any(_is_in_scope(home, limit.place) for home in homes):
            known = sorted({home.partition(".")[0] for home in homes} - {""})
            wanted = f"a mesh axis ({', '.join(axes)}) or a scope of the graph, such as {', '.join(known[:3])}"
            raise InvalidRequest("no such place", where=limit.text, got=limit.place, wanted=wanted)
    return None, limit.place


def _is_in_scope(home: str, scope: str) -> bool:
    return home == scope or home.startswith(f"{scope}.")


def _find_scopes(graph: Graph) -> dict[Owner, str]:
    """Return the scope of each op and value; that of an input is its name."""
    scopes = {("value", entry.id): entry.name for entry in graph.inputs}
    for op in graph.ops:
        scopes |= {("op", op.id): op.scope} | {("value", value): op.scope for value in op.values}
    return scopes


def _measure_terms(plan: AnalyzedPlan, measure: str, axis: str | None, *, is_scope: bool) -> Mapping[Owner, int]:
    """Return the terms of a measure: of all stages for time and scopes, else of the stage or rank that has most."""
    parts = [
        _measure_memory(part) if measure == "memory" else _measure_flow(part, measure, axis) for part in plan.parts
    ]
    if measure == "time" or is_scope:
        return _add_terms(parts)
    if measure == "memory":
        parts = [_add_terms(parts[rank :: plan.ranks]) for rank in range(plan.ranks)]
    return max(parts, key=lambda terms: sum(terms.values()))


def _add_terms(listed: Iterable[Mapping[Owner, int]]) -> Mapping[Owner, int]:
    totals = Counter[Owner]()
    for terms in listed:
        totals.update(terms)
    return totals


def _measure_flow(analysis: Analysis, measure: str, axis: str | None) -> Mapping[Owner, int]:
    """Return time or received bytes by op and value; along an axis, those of its collectives only."""
    program, origin, totals = analysis.program, find_origins(analysis.program), Counter[Owner]()
    number = program.mesh.names.index(axis) if axis in program.mesh.names else None
    counted = [
        place
        for place, done in enumerate(program.instructions)
        if axis is None or (isinstance(done, Reshard) and number in done.collective.axes)
    ]
    busiest = int(analysis.received[counted].sum(axis=0).argmax()) if counted else 0
    for place in counted:
        done = program.instructions[place]
        owner = ("op", done.op.id) if isinstance(done, OpCall) else ("value", origin[done.operand])
        totals[owner] += analysis.times_ps[place] if measure == "time" else int(analysis.received[place, busiest])
    return totals


def _measure_memory(analysis: Analysis) -> Mapping[Owner, int]:
    origin, totals = find_origins(analysis.program), Counter[Owner]()
    busiest = analysis.accounting.classes.find(analysis.peak_device)
    for each in find_live_ranges(analysis.accounting):
        if each.contains(analysis.peak_instruction):
            size = int(analysis.accounting.value_bytes[each.value][busiest])
            totals["value", origin[each.value]] += each.count * size
    return totals


@dataclass(frozen=True)
class _TermDescriber:
    """Describes how a program splits an op, or holds and moves a value."""

    plan: AnalyzedPlan
    measure: str

    @cached_property
    def ops(self) -> dict[str, str]:
        """Text of the option of each op."""
        options = {}
        for part in self.plan.parts:
            names = part.program.mesh.names
            for run in part.program.instructions:
                if isinstance(run, OpCall):
                    split = zip(run.op.rule.loops, run.option, strict=False)
                    axes = (f"{loop.name}:{'/'.join(names[axis] for axis in axes)}" for loop, axes in split if axes)
                    options[run.op.id] = ", ".join(axes) or "whole"
        return options

    @cached_property
    def collectives(self) -> dict[str, Counter[str]]:
        """Texts of the collectives of each value, with their numbers."""
        counts = defaultdict[str, Counter[str]](Counter)
        for part in self.plan.parts:
            origin, names = find_origins(part.program), part.program.mesh.names
            for done in part.program.instructions:
                if isinstance(done, Reshard):
                    axes = "/".join(names[axis] for axis in done.collective.axes)
                    counts[origin[done.operand]][f"{done.collective.kind.value} over {axes}"] += 1
        return counts

    def describe(self, what: str, name: str) -> str:
        if what == "op":
            return self.ops[name]
        kind = self.plan.graph.types[name]
        if self.measure == "memory":
            held, mesh = self.plan.layouts[name]
            return f"{kind} as {held.format_axes(mesh)}"
        moves = self.collectives.get(name, Counter())
        texts = (move if count == 1 else f"{count} x {move}" for move, count in moves.items())
        return f"{kind}, {', '.join(texts) or 'not moved'}"


def _describe_change(base: _TermDescriber, new: _TermDescriber, what: str, one: str | None, other: str | None) -> str:
    """Describe how an op or value is now, and how it was."""
    if one is None or other is None:
        return f"removed: {base.describe(what, one)}" if one is not None else f"new: {new.describe(what, other or '')}"
    was, now = base.describe(what, one), new.describe(what, other)
    return f"as before: {now}" if now == was else f"{now}; was {was}"
