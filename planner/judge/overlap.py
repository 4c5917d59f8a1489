"""Compute what a step gains when collectives overlap with computation.

A schedule (`planner.judge.overlap_schedule`) is simulated for each prefetch distance of LOOKAHEADS, and the shortest
one that fits the memory limit is used; where none fits, instructions run one after the other. Its length lies between
max(compute, communication), a lower bound for any order, and their sum, the step without overlap. Collectives with the
same outermost link do not overlap each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.choose.cost import CostModel
from planner.ir.program import Instruction, Program, Reshard
from planner.judge.analysis import Analysis
from planner.judge.overlap_schedule import COMPUTE, Schedule, Stream, distinct_sizes, simulate_schedule

LOOKAHEADS = (64, 16, 4, 0)
"""Numbers of ops by which a collective that needs more memory than it frees is issued early."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Times of a step in ps; `schedule` is None where nothing overlaps."""

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
    """Find the shortest schedule of a program whose peak is within the memory limit."""
    program, times = analysis.program, analysis.times_ps
    listed = assign_streams(program, analysis.model)
    communication = sum(time for time, stream in zip(times, listed, strict=True) if stream != COMPUTE)
    sizes = distinct_sizes(analysis.accounting)
    schedules = (
        [simulate_schedule(program, times, listed, ahead=ahead, sizes=sizes) for ahead in LOOKAHEADS]
        if communication
        else []
    )
    fitting = [each for each in schedules if each.peak_bytes <= limit_bytes]
    best = min(fitting, key=lambda each: (each.length_ps, each.peak_bytes), default=None)
    return Overlap(sum(times) - communication, communication, best)


def assign_streams(program: Program, model: CostModel) -> list[Stream]:
    """Return the stream of each instruction: COMPUTE, or the outermost link that a collective crosses."""
    links = list(model.hardware.links.values())
    rank = [links.index(link) for link in model.links]
    names = list(model.hardware.links)

    def stream(done: Instruction) -> Stream:
        if not isinstance(done, Reshard) or not is_communication(done):
            return COMPUTE
        return names[max(rank[axis] for axis in done.collective.axes)]

    return [stream(done) for done in program.instructions]


def is_communication(done: Instruction) -> bool:
    """Return whether an instruction sends data; an all_slice, for one, is a local copy."""
    return isinstance(done, Reshard) and done.collective.definition.sends
