"""Where the time and the memory of a program go: its terms together and one by one, the dearest first.

Every instruction is in one group of ops, or of collectives, and the groups add up to the step exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from planner.judge.analysis import Analysis
from planner.model.accounts import value_bytes
from planner.model.kinds import held
from planner.model.program import Run


@dataclass(frozen=True, slots=True)
class Group:
    """Instructions that do the same: an op's name, or a collective's and its mesh axes."""

    what: str
    axes: tuple[str, ...]
    count: int
    time_ps: int


@dataclass(frozen=True, slots=True)
class Single:
    """One op."""

    id: str
    what: str
    scope: str
    time_ps: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value live at the peak, on the busiest device; `by`: the op or collective that made it."""

    value: str
    kind: str
    bytes: int
    by: str


def op_groups(analysis: Analysis) -> list[Group]:
    """Ops of one name together."""
    pairs = zip(analysis.program.instructions, analysis.times_ps, strict=True)
    return _grouped(((done.op.op, ()), time) for done, time in pairs if isinstance(done, Run))


def collective_groups(analysis: Analysis) -> list[Group]:
    """Collectives of one kind over the same mesh axes together."""
    names = analysis.program.mesh.names
    pairs = zip(analysis.program.instructions, analysis.times_ps, strict=True)
    return _grouped(
        ((done.collective.kind.value, tuple(names[axis] for axis in done.collective.axes)), time)
        for done, time in pairs
        if not isinstance(done, Run)
    )


def _grouped(terms: Iterable[tuple[tuple[str, tuple[str, ...]], int]]) -> list[Group]:
    found: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    for key, time in terms:
        found[key].append(time)
    groups = [Group(*key, len(times), sum(times)) for key, times in found.items()]
    return sorted(groups, key=lambda group: -group.time_ps)


def dearest_ops(analysis: Analysis, most: int) -> list[Single]:
    """The ops that take longest."""
    pairs = zip(analysis.program.instructions, analysis.times_ps, strict=True)
    runs = [Single(run.op.id, run.op.op, run.op.scope, time) for run, time in pairs if isinstance(run, Run)]
    return sorted(runs, key=lambda single: -single.time_ps)[:most]


def largest_tensors(analysis: Analysis, most: int) -> list[Tensor]:
    """The largest values live at the peak."""
    program, device = analysis.program, analysis.busiest
    by = {entry.id: entry.name for entry in program.graph.inputs}
    for done in program.instructions:
        by |= dict.fromkeys(done.results, done.op.id if isinstance(done, Run) else str(done.collective.kind.value))
    live = [
        Tensor(each.value, each.kind, int(value_bytes(program, each.value)[device]), by[each.value])
        for each in held(program)
        if each.covers(analysis.peak_at)
    ]
    return sorted(live, key=lambda tensor: -tensor.bytes)[:most]
