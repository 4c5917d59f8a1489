"""What a limit is on, in both programs, as terms of ops and values that add up to it exactly, in whole units.

    time      an op's own, and that of a value's collectives; in picoseconds
    bytes     what a value's collectives bring to the device that receives most (of all, or along the axis)
    memory    what is held of a value and its copies on the busiest device, at the peak

Along a mesh axis: the collectives whose groups span it. In a scope: ops of the scope or below, and values made there
or, of graph inputs, named so. What is in both programs belongs to a scope if it does in either: a scope by another name
is no change, and a limit on the old name still holds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.ir.memory_kinds import find_live_ranges
from planner.ir.program import OpCall, Reshard
from planner.judge.analysis import Analysis
from planner.judge.check.limits import Threshold
from planner.judge.diff import PlanDiff, find_origins

Owner = tuple[str, str]
"""`op` or `value`, and its name."""


@dataclass(frozen=True, slots=True)
class ChangedTerm:
    """What an op or value, by its names in base and new, has of a figure in both, and why that differs."""

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
    """A figure in both programs; `moved`: its terms that differ, those that rose most first."""

    base: int
    new: int
    changed_terms: tuple[ChangedTerm, ...]


def measure_change(found: PlanDiff, limit: Threshold) -> MeasuredChange:
    """What a limit is on. Raises InvalidRequest for a place that is neither an axis of the mesh nor a scope."""
    axis, scope = _resolve_place(found, limit)
    base, new = (_measure_terms(each, limit.measure, axis) for each in (found.base, found.new))
    homes = [_find_scopes(each.program.graph) for each in (found.base, found.new)]
    tellings = _TermDescriber(found.base, limit.measure), _TermDescriber(found.new, limit.measure)
    totals, moved = [0, 0], []
    for what in ("value", "op"):
        for one, other in found.pairs(what):
            there = [home[what, name] for home, name in zip(homes, (one, other), strict=True) if name is not None]
            if scope is not None and not any(_is_in_scope(home, scope) for home in there):
                continue
            ends = base.get((what, one or ""), 0), new.get((what, other or ""), 0)
            totals = [totals[0] + ends[0], totals[1] + ends[1]]
            if ends[0] != ends[1]:
                moved.append(ChangedTerm(what, one, other, *ends, _describe_change(*tellings, what, one, other)))
    return MeasuredChange(totals[0], totals[1], tuple(sorted(moved, key=lambda term: -term.change)))


def _resolve_place(found: PlanDiff, limit: Threshold) -> tuple[str | None, str | None]:
    """The axis or the scope of a limit."""
    axes = found.new.program.mesh.names
    if limit.place in axes:
        if limit.measure == "memory":
            wanted = f"time[{limit.place}], bytes[{limit.place}], or memory of a scope"
            raise InvalidRequest("memory is not held along a mesh axis", where=limit.text, wanted=wanted)
        return limit.place, None
    if limit.place is not None:
        homes = [home for each in (found.base, found.new) for home in _find_scopes(each.program.graph).values()]
        if not any(_is_in_scope(home, limit.place) for home in homes):
            known = sorted({home.partition(".")[0] for home in homes} - {""})
            wanted = f"a mesh axis ({', '.join(axes)}) or a scope of the graph, such as {', '.join(known[:3])}"
            raise InvalidRequest("no such place", where=limit.text, got=limit.place, wanted=wanted)
    return None, limit.place


def _is_in_scope(home: str, scope: str) -> bool:
    return home == scope or home.startswith(f"{scope}.")


def _find_scopes(graph: Graph) -> dict[Owner, str]:
    """The scope of every op and value; of an input its name."""
    found = {("value", entry.id): entry.name for entry in graph.inputs}
    for op in graph.ops:
        found |= {("op", op.id): op.scope} | {("value", value): op.scope for value in op.values}
    return found


def _measure_terms(analysis: Analysis, measure: str, axis: str | None) -> Mapping[Owner, int]:
    return _measure_memory(analysis) if measure == "memory" else _measure_flow(analysis, measure, axis)


def _measure_flow(analysis: Analysis, measure: str, axis: str | None) -> Mapping[Owner, int]:
    """Time or received bytes, of ops and values."""
    program, origin, found = analysis.program, find_origins(analysis.program), Counter[Owner]()
    number = None if axis is None else program.mesh.axis(axis)
    kept = [
        place
        for place, done in enumerate(program.instructions)
        if axis is None or (isinstance(done, Reshard) and number in done.collective.axes)
    ]
    busiest = int(analysis.received[kept].sum(axis=0).argmax()) if kept else 0
    for place in kept:
        done = program.instructions[place]
        owner = ("op", done.op.id) if isinstance(done, OpCall) else ("value", origin[done.operand])
        found[owner] += analysis.times_ps[place] if measure == "time" else int(analysis.received[place, busiest])
    return found


def _measure_memory(analysis: Analysis) -> Mapping[Owner, int]:
    program, origin, found = analysis.program, find_origins(analysis.program), Counter[Owner]()
    busiest = analysis.accounting.classes.find(analysis.peak_device)
    for each in find_live_ranges(program):
        if each.contains(analysis.peak_instruction):
            found["value", origin[each.value]] += int(analysis.accounting.value_bytes[each.value][busiest])
    return found


@dataclass(frozen=True)
class _TermDescriber:
    """How ops are split, values held and moved in a program."""

    analysis: Analysis
    measure: str

    @cached_property
    def ops(self) -> dict[str, str]:
        names = self.analysis.program.mesh.names
        found = {}
        for run in self.analysis.program.instructions:
            if isinstance(run, OpCall):
                split = zip(run.op.rule.loops, run.option, strict=False)
                told = (f"{loop.name}:{'/'.join(names[axis] for axis in axes)}" for loop, axes in split if axes)
                found[run.op.id] = ", ".join(told) or "whole"
        return found

    @cached_property
    def count_moves(self) -> dict[str, Counter[str]]:
        program, found = self.analysis.program, defaultdict[str, Counter[str]](Counter)
        origin, names = find_origins(program), program.mesh.names
        for done in program.instructions:
            if isinstance(done, Reshard):
                axes = "/".join(names[axis] for axis in done.collective.axes)
                found[origin[done.operand]][f"{done.collective.kind.value} over {axes}"] += 1
        return found

    def describe(self, what: str, name: str) -> str:
        program = self.analysis.program
        if what == "op":
            return self.ops[name]
        kind = program.graph.types[name]
        if self.measure == "memory":
            return f"{kind} as {program.values[name].sharding.format_axes(program.mesh)}"
        moves = self.count_moves.get(name, Counter())
        told = (move if count == 1 else f"{count} x {move}" for move, count in moves.items())
        return f"{kind}, {', '.join(told) or 'not moved'}"


def _describe_change(base: _TermDescriber, new: _TermDescriber, what: str, one: str | None, other: str | None) -> str:
    """How it is now, and how it was."""
    if one is None or other is None:
        return f"gone: {base.describe(what, one)}" if one is not None else f"new: {new.describe(what, other or '')}"
    was, now = base.describe(what, one), new.describe(what, other)
    return f"as before: {now}" if now == was else f"{now}; was {was}"
