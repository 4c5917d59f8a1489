"""Compute what a step gains when collectives overlap with computation.

A schedule (`planner.judge.overlap_schedule`) is simulated for each prefetch distance of LOOKAHEADS, and the shortest
one that fits the memory limit is used; where none fits, or none gains, instructions run one after the other. Its length
lies between that of the busiest stream, a lower bound for any order, and the sum of all, the step without overlap.
Collectives with the same outermost link do not overlap each other. Ops and the collectives of each link slow each other
down as the profile's interference says (`planner.choose.hardware.interference`); links do not slow each other down.

While ops and collectives run, they do at most

    1 / (slow-down of ops) + sum over links of 1 / (slow-down of its collectives)

seconds of work a second. With W the most of this over all sets of links of the mesh (`most_work_per_second`), no plan
whose instructions take S seconds in all has a schedule shorter than S / W. So where no plan's sum is below B, none has
a schedule below B / W (`bound_overlapped_s`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from planner.choose.cost import CostModel
from planner.choose.hardware import Hardware, interference
from planner.choose.hardware.interference import NO_INTERFERENCE
from planner.ir.program import Instruction, Program, Reshard
from planner.judge.analysis import Analysis
from planner.judge.overlap_schedule import COMPUTE, Schedule, Stream, distinct_sizes, simulate_schedule

LOOKAHEADS = (64, 16, 4, 0)
"""Numbers of ops by which a collective that needs more memory than it frees is issued early."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Times of a step in ps, of ops and of the collectives of each link; `schedule` is None where nothing overlaps."""

    compute_ps: int
    link_ps: tuple[int, ...]
    schedule: Schedule | None

    @property
    def communication_ps(self) -> int:
        return sum(self.link_ps)

    @property
    def serial_ps(self) -> int:
        return self.compute_ps + self.communication_ps

    @property
    def floor_ps(self) -> int:
        return max(self.compute_ps, *self.link_ps, 0)

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
    busy: dict[Stream, int] = defaultdict(int)
    for time, stream in zip(times, listed, strict=True):
        busy[stream] += time
    links = tuple(time for stream, time in busy.items() if stream != COMPUTE)
    sizes = distinct_sizes(analysis.accounting)
    slowdown = partial(slowdown_of, analysis.model.hardware)
    schedules = (
        [simulate_schedule(program, times, listed, ahead=ahead, sizes=sizes, slowdown=slowdown) for ahead in LOOKAHEADS]
        if sum(links)
        else []
    )
    fitting = [each for each in schedules if each.peak_bytes <= limit_bytes and each.length_ps <= sum(times)]
    best = min(fitting, key=lambda each: (each.length_ps, each.peak_bytes), default=None)
    return Overlap(busy[COMPUTE], links, best)


def order_by_schedule(analysis: Analysis, limit_bytes: int) -> Program:
    """Return a program with its instructions in the order in which its schedule starts them.

    A collective is issued as early as the schedule has it, and waited for where its result is first read. Nothing
    changes where the profile does not overlap, and in a step of several micro-batches.
    """
    program = analysis.program
    schedule = schedule_overlap(analysis, limit_bytes).schedule
    if schedule is None or not analysis.model.hardware.overlap or program.graph.microbatches > 1:
        return program
    order = sorted(range(len(program.instructions)), key=lambda place: (schedule.starts[place], place))
    return replace(program, instructions=tuple(program.instructions[place] for place in order))


def slowdown_of(hardware: Hardware, stream: Stream, running: Collection[Stream]) -> float:
    """Return how many times as long an instruction of a stream takes while instructions of all these streams run."""
    if not hardware.interference:
        return 1.0
    if stream == COMPUTE:
        links = (hardware.interference.get(str(link), NO_INTERFERENCE) for link in running if link != COMPUTE)
        return 1.0 + sum(each.share(interference.COMPUTE, interference.COLLECTIVE) for each in links)
    own = hardware.interference.get(str(stream), NO_INTERFERENCE)
    return 1.0 + (own.share(interference.COLLECTIVE, interference.COMPUTE) if COMPUTE in running else 0.0)


def most_work_per_second(model: CostModel) -> float:
    """Return the most seconds of instructions that a device gets done in a second, whatever runs at the same time."""
    links = {name for name, link in model.hardware.links.items() if link in model.links}
    streams = (COMPUTE, *sorted(links))
    together = (some for count in range(1, len(streams) + 1) for some in combinations(streams, count))
    return max(sum(1 / slowdown_of(model.hardware, each, some) for each in some) for some in together)


def bound_overlapped_s(model: CostModel, bound_s: float, least_compute_s: float) -> float:
    """Return a lower bound on the step of any plan with the profile's overlap.

    bound_s          of the sum of its instructions
    least_compute_s  of its ops alone
    """
    share, serial_s = model.hardware.overlap, max(bound_s, least_compute_s)
    scheduled_s = max(serial_s / most_work_per_second(model), least_compute_s)
    return (1 - share) * serial_s + share * scheduled_s


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
