"""What a step gains when collectives run beside computation.

Two streams, each in program order: ops and local copies on one, collectives on the other. An instruction starts
when its stream is free and what it reads is there; the step ends with the last of both. The estimate lies between
max(compute, communication), which no order beats, and their sum, the step without overlap. That computing and
sending slow each other down where they share a device's memory is not counted: the gain is at most this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.model.collectives import Kind
from planner.model.program import Instruction, Move, Program


@dataclass(frozen=True, slots=True)
class Overlap:
    """Times of a step in ps."""

    compute_ps: int
    communication_ps: int
    overlapped_ps: int

    @property
    def serial_ps(self) -> int:
        return self.compute_ps + self.communication_ps

    @property
    def floor_ps(self) -> int:
        return max(self.compute_ps, self.communication_ps)

    @property
    def gain_ps(self) -> int:
        return self.serial_ps - self.overlapped_ps


def overlap(program: Program, times_ps: Sequence[int]) -> Overlap:
    """The two-stream estimate of a program whose instructions take `times_ps`."""
    busy = {False: 0, True: 0}
    free = {False: 0, True: 0}
    ready: dict[str, int] = {}
    for done, time in zip(program.instructions, times_ps, strict=True):
        sends = communicates(done)
        end = max(free[sends], *(ready.get(name, 0) for name in done.operands), 0) + time
        busy[sends] += time
        free[sends] = end
        ready |= dict.fromkeys(done.results, end)
    return Overlap(busy[False], busy[True], max(free.values()))


def communicates(done: Instruction) -> bool:
    """Whether an instruction sends anything: an all_slice is a local copy."""
    return isinstance(done, Move) and done.collective.kind is not Kind.ALL_SLICE
