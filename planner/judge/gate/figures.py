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
from planner.judge.analysis import Analysis
from planner.judge.gate.thresholds import Threshold
from planner.judge.regression import Regression, origins
from planner.model.accounts import value_bytes
from planner.model.graph import Graph
from planner.model.kinds import held
from planner.model.program import Move, Run

Owner = tuple[str, str]
"""`op` or `value`, and its name."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What an op or value, by its names in base and new, has of a figure in both, and why that differs."""

    what: str
    was: str | None
    name: str | None
    base: int
    new: int
    reason: str

    @property
    def change(self) -> int:
        return self.new - self.base


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure in both programs; `moved`: its terms that differ, those that rose most first."""

    base: int
    new: int
    moved: tuple[Moved, ...]


def figure(found: Regression, limit: Threshold) -> Figure:
    """What a limit is on. Raises InvalidRequest for a place that is neither an axis of the mesh nor a scope."""
    axis, scope = _place(found, limit)
    base, new = (_amounts(each, limit.measure, axis) for each in (found.base, found.new))
    homes = [_homes(each.program.graph) for each in (found.base, found.new)]
    tellings = _Telling(found.base, limit.measure), _Telling(found.new, limit.measure)
    totals, moved = [0, 0], []
    for what in ("value", "op"):
        for one, other in found.pairs(what):
            there = [home[what, name] for home, name in zip(homes, (one, other), strict=True) if name is not None]
            if scope is not None and not any(_within(home, scope) for home in there):
                continue
            ends = base.get((what, one or ""), 0), new.get((what, other or ""), 0)
            totals = [totals[0] + ends[0], totals[1] + ends[1]]
            if ends[0] != ends[1]:
                moved.append(Moved(what, one, other, *ends, _reason(*tellings, what, one, other)))
    return Figure(totals[0], totals[1], tuple(sorted(moved, key=lambda term: -term.change)))


def _place(found: Regression, limit: Threshold) -> tuple[str | None, str | None]:
    """The axis or the scope of a limit."""
    axes = found.new.program.mesh.names
    if limit.place in axes:
        if limit.measure == "memory":
            wanted = f"time[{limit.place}], bytes[{limit.place}], or memory of a scope"
            raise InvalidRequest("memory is not held along a mesh axis", where=limit.text, wanted=wanted)
        return limit.place, None
    if limit.place is not None:
        homes = [home for each in (found.base, found.new) for home in _homes(each.program.graph).values()]
        if not any(_within(home, limit.place) for home in homes):
            known = sorted({home.partition(".")[0] for home in homes} - {""})
            wanted = f"a mesh axis ({', '.join(axes)}) or a scope of the graph, such as {', '.join(known[:3])}"
            raise InvalidRequest("no such place", where=limit.text, got=limit.place, wanted=wanted)
    return None, limit.place


def _within(home: str, scope: str) -> bool:
    return home == scope or home.startswith(f"{scope}.")


def _homes(graph: Graph) -> dict[Owner, str]:
    """The scope of every op and value; of an input its name."""
    found = {("value", entry.id): entry.name for entry in graph.inputs}
    for op in graph.ops:
        found |= {("op", op.id): op.scope} | {("value", value): op.scope for value in op.values}
    return found


def _amounts(analysis: Analysis, measure: str, axis: str | None) -> Mapping[Owner, int]:
    return _held(analysis) if measure == "memory" else _spent(analysis, measure, axis)


def _spent(analysis: Analysis, measure: str, axis: str | None) -> Mapping[Owner, int]:
    """Time or received bytes, of ops and values."""
    program, origin, found = analysis.program, origins(analysis.program), Counter[Owner]()
    number = None if axis is None else program.mesh.axis(axis)
    kept = [
        place
        for place, done in enumerate(program.instructions)
        if axis is None or (isinstance(done, Move) and number in done.collective.axes)
    ]
    busiest = int(analysis.received[kept].sum(axis=0).argmax()) if kept else 0
    for place in kept:
        done = program.instructions[place]
        owner = ("op", done.op.id) if isinstance(done, Run) else ("value", origin[done.operand])
        found[owner] += analysis.times_ps[place] if measure == "time" else int(analysis.received[place, busiest])
    return found


def _held(analysis: Analysis) -> Mapping[Owner, int]:
    program, origin, found = analysis.program, origins(analysis.program), Counter[Owner]()
    for each in held(program):
        if each.covers(analysis.peak_at):
            found["value", origin[each.value]] += int(value_bytes(program, each.value)[analysis.busiest])
    return found


@dataclass(frozen=True)
class _Telling:
    """How ops are split, values held and moved in a program."""

    analysis: Analysis
    measure: str

    @cached_property
    def ops(self) -> dict[str, str]:
        names = self.analysis.program.mesh.names
        found = {}
        for run in self.analysis.program.instructions:
            if isinstance(run, Run):
                split = zip(run.op.rule.loops, run.option, strict=False)
                told = (f"{loop.name}:{'/'.join(names[axis] for axis in axes)}" for loop, axes in split if axes)
                found[run.op.id] = ", ".join(told) or "whole"
        return found

    @cached_property
    def moves(self) -> dict[str, Counter[str]]:
        program, found = self.analysis.program, defaultdict[str, Counter[str]](Counter)
        origin, names = origins(program), program.mesh.names
        for done in program.instructions:
            if isinstance(done, Move):
                axes = "/".join(names[axis] for axis in done.collective.axes)
                found[origin[done.operand]][f"{done.collective.kind.value} over {axes}"] += 1
        return found

    def of(self, what: str, name: str) -> str:
        program = self.analysis.program
        if what == "op":
            return self.ops[name]
        kind = program.graph.types[name]
        if self.measure == "memory":
            return f"{kind} as {program.values[name].sharding.named(program.mesh)}"
        moves = self.moves.get(name, Counter())
        told = (move if count == 1 else f"{count} x {move}" for move, count in moves.items())
        return f"{kind}, {', '.join(told) or 'not moved'}"


def _reason(base: _Telling, new: _Telling, what: str, one: str | None, other: str | None) -> str:
    """How it is now, and how it was."""
    if one is None or other is None:
        return f"gone: {base.of(what, one)}" if one is not None else f"new: {new.of(what, other or '')}"
    was, now = base.of(what, one), new.of(what, other)
    return f"as before: {now}" if now == was else f"{now}; was {was}"
