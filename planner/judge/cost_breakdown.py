"""Break down the time and memory of a program: groups of instructions, single ops and tensors, largest first.

Every instruction is in exactly one group of ops or of collectives, and the groups add up to the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from planner.ir.memory_kinds import find_live_ranges
from planner.ir.program import OpCall
from planner.judge.analysis import Analysis


@dataclass(frozen=True, slots=True)
class InstructionGroup:
    """Instructions of one op name, or of one collective over the same mesh axes."""

    what: str
    axes: tuple[str, ...]
    count: int
    time_ps: int


@dataclass(frozen=True, slots=True)
class OpTime:
    """One op and its time."""

    id: str
    what: str
    scope: str
    time_ps: int


@dataclass(frozen=True, slots=True)
class LiveTensor:
    """A value that is live at the peak on the peak device; `producer` is the input, op or collective that made it."""

    value: str
    kind: str
    bytes: int
    producer: str


def group_ops(analysis: Analysis) -> list[InstructionGroup]:
    """Group the ops by name."""
    pairs = zip(analysis.program.instructions, analysis.times_ps, strict=True)
    return _group_terms(((done.op.op, ()), time) for done, time in pairs if isinstance(done, OpCall))


def group_collectives(analysis: Analysis) -> list[InstructionGroup]:
    """Group the collectives by kind and mesh axes."""
    names = analysis.program.mesh.names
    pairs = zip(analysis.program.instructions, analysis.times_ps, strict=True)
    return _group_terms(
        ((done.collective.kind.value, tuple(names[axis] for axis in done.collective.axes)), time)
        for done, time in pairs
        if not isinstance(done, OpCall)
    )


def _group_terms(terms: Iterable[tuple[tuple[str, tuple[str, ...]], int]]) -> list[InstructionGroup]:
    times_by_key: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    for key, time in terms:
        times_by_key[key].append(time)
    groups = [InstructionGroup(*key, len(times), sum(times)) for key, times in times_by_key.items()]
    return sorted(groups, key=lambda group: -group.time_ps)


def find_slowest_ops(analysis: Analysis, most: int) -> list[OpTime]:
    """Return the `most` slowest ops."""
    pairs = zip(analysis.program.instructions, analysis.times_ps, strict=True)
    runs = [OpTime(run.op.id, run.op.op, run.op.scope, time) for run, time in pairs if isinstance(run, OpCall)]
    return sorted(runs, key=lambda single: -single.time_ps)[:most]


def find_largest_tensors(analysis: Analysis, most: int) -> list[LiveTensor]:
    """Return the `most` largest values that are live at the peak."""
    program, sizes = analysis.program, analysis.accounting.value_bytes
    busiest = analysis.accounting.classes.find(analysis.peak_device)
    producers = {entry.id: entry.name for entry in program.graph.inputs}
    for done in program.instructions:
        producers |= dict.fromkeys(
            done.results, done.op.id if isinstance(done, OpCall) else str(done.collective.kind.value)
        )
    live = [
        LiveTensor(each.value, each.kind, each.count * int(sizes[each.value][busiest]), producers[each.value])
        for each in find_live_ranges(analysis.accounting)
        if each.contains(analysis.peak_instruction)
    ]
    return sorted(live, key=lambda tensor: -tensor.bytes)[:most]
