"""Where the time and the memory of a program go: its terms together and one by one, the dearest first.

Every instruction is in one group of ops, or of collectives, and the groups add up to the step exactly.
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
    """Instructions that do the same: an op's name, or a collective's and its mesh axes."""

    what: str
    axes: tuple[str, ...]
    count: int
    time_ps: int


@dataclass(frozen=True, slots=True)
class OpTime:
    """One op."""

    id: str
    what: str
    scope: str
    time_ps: int


@dataclass(frozen=True, slots=True)
class LiveTensor:
    """A value live at the peak, on the busiest device; `producer`: the op or collective that made it."""

    value: str
    kind: str
    bytes: int
    producer: str


def group_ops(analysis: Analysis) -> list[InstructionGroup]:
    """Ops of one name together."""
    pairs = zip(analysis.program.instructions, analysis.times_ps, strict=True)
    return _group_terms(((done.op.op, ()), time) for done, time in pairs if isinstance(done, OpCall))


def group_collectives(analysis: Analysis) -> list[InstructionGroup]:
    """Collectives of one kind over the same mesh axes together."""
    names = analysis.program.mesh.names
    pairs = zip(analysis.program.instructions, analysis.times_ps, strict=True)
    return _group_terms(
        ((done.collective.kind.value, tuple(names[axis] for axis in done.collective.axes)), time)
        for done, time in pairs
        if not isinstance(done, OpCall)
    )


def _group_terms(terms: Iterable[tuple[tuple[str, tuple[str, ...]], int]]) -> list[InstructionGroup]:
    found: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    for key, time in terms:
        found[key].append(time)
    groups = [InstructionGroup(*key, len(times), sum(times)) for key, times in found.items()]
    return sorted(groups, key=lambda group: -group.time_ps)


def find_slowest_ops(analysis: Analysis, most: int) -> list[OpTime]:
    """The ops that take longest."""
    pairs = zip(analysis.program.instructions, analysis.times_ps, strict=True)
    runs = [OpTime(run.op.id, run.op.op, run.op.scope, time) for run, time in pairs if isinstance(run, OpCall)]
    return sorted(runs, key=lambda single: -single.time_ps)[:most]


def find_largest_tensors(analysis: Analysis, most: int) -> list[LiveTensor]:
    """The largest values live at the peak."""
    program, sizes = analysis.program, analysis.accounting.value_bytes
    busiest = analysis.accounting.classes.find(analysis.peak_device)
    by = {entry.id: entry.name for entry in program.graph.inputs}
    for done in program.instructions:
        by |= dict.fromkeys(done.results, done.op.id if isinstance(done, OpCall) else str(done.collective.kind.value))
    live = [
        LiveTensor(each.value, each.kind, int(sizes[each.value][busiest]), by[each.value])
        for each in find_live_ranges(program)
        if each.contains(analysis.peak_instruction)
    ]
    return sorted(live, key=lambda tensor: -tensor.bytes)[:most]
