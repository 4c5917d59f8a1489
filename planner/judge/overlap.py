"""What a step gains when collectives run beside computation.

A schedule (`planner.judge.overlap_schedule`) is made for every prefetch distance of AHEAD and for none, and the
shortest that fits the memory limit counts; where none fits, instructions run one after the other. Its length lies
between max(compute, communication), which no order beats, and their sum, the step without overlap. Collectives whose
outermost link is the same take turns.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.choose.cost import CostModel
from planner.ir.program import Instruction, Program, Reshard
from planner.judge.analysis import Analysis
from planner.judge.overlap_schedule import COMPUTE, Schedule, Stream, distinct_sizes, simulate_schedule

LOOKAHEADS = (64, 16, 4, 0)
"""Ops by which a collective that grows is issued early."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Times of a step in ps; `schedule` is None where nothing runs beside another."""

    compute_ps: int
    communication_ps: int
    schedule: Schedule | None

    @property
    def serial_ps(self) -> int:
        return self.compute_ps + self.communication_ps

    @property
    def floor_ps(self) -> int:
        return max(self.compute_ps, self.communication_ps)

    @property
    def scheduled_ps(self) -> int:
        return self.serial_ps if self.schedule is None else self.schedule.length_ps

    @property
    def gain_ps(self) -> int:
        return self.serial_ps - self.scheduled_ps


def schedule_overlap(analysis: Analysis, limit_bytes: int) -> Overlap:
    """The shortest schedule of a program that holds no more than the limit at any time."""
    program, times = analysis.program, analysis.times_ps
    listed = assign_streams(program, analysis.model)
    communication = sum(time for time, stream in zip(times, listed, strict=True) if stream != COMPUTE)
    sizes = distinct_sizes(program)
    found = (
        [simulate_schedule(program, times, listed, ahead=ahead, sizes=sizes) for ahead in LOOKAHEADS]
        if communication
        else []
    )
    fitting = [each for each in found if each.peak_bytes <= limit_bytes]
    best = min(fitting, key=lambda each: (each.length_ps, each.peak_bytes), default=None)
    return Overlap(sum(times) - communication, communication, best)


def assign_streams(program: Program, model: CostModel) -> list[Stream]:
    """The stream of every instruction: that of ops, or the outermost link a collective crosses."""
    links = list(model.hardware.links.values())
    rank = [links.index(link) for link in model.links]
    names = list(model.hardware.links)

    def stream(done: Instruction) -> Stream:
        if not isinstance(done, Reshard) or not is_communication(done):
            return COMPUTE
        return names[max(rank[axis] for axis in done.collective.axes)]

    return [stream(done) for done in program.instructions]


def is_communication(done: Instruction) -> bool:
    """Whether an instruction sends anything: an all_slice is a local copy."""
    return isinstance(done, Reshard) and done.collective.definition.sends
