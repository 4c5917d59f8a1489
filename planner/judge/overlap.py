"""Compute what a step gains when collectives overlap with computation.

A schedule (`planner.judge.overlap_schedule`) is simulated for each prefetch distance of LOOKAHEADS, and the shortest
one that fits the memory limit is used; where none fits, or none gains, instructions run one after the other. Its length
lies between that of the busiest stream, a lower bound for any order, and the sum of all, the step without overlap.
Collectives with the same outermost link do not overlap each other. Ops and the collectives of each link slow each other
down as the profile's interference says (`planner.choose.hardware.interference`); links do not slow each other down.

In a second in which a set of streams runs, r seconds of ops and q of collectives are done, as their slow-downs say.
With W the most r + q of any set, and V the least (1 - r) / q of any set with a link, a schedule of C seconds of ops and
N of collectives takes T >= (C + N) / W and T >= C + V N. So where no plan's sum C + N is below B, nor its ops below L,
none has a schedule below B / W or L + V (B - L) (`bound_overlapped_s`).
"""

from __future__ import annotations

import math
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
    return max(ops + collectives for ops, collectives in _list_rates(model))


def least_paid_share(model: CostModel) -> float:
    """Return the least share of the time of collectives by which a step is longer than its ops alone."""
    return min(((1 - ops) / collectives for ops, collectives in _list_rates(model) if collectives), default=1.0)


def _list_rates(model: CostModel) -> list[tuple[float, float]]:
    """Return the seconds of ops and of collectives done in a second, for each set of streams that may run together."""
    names = sorted(name for name, link in model.hardware.links.items() if link in model.links)
    sets = [links for count in range(len(names) + 1) for links in combinations(names, count)]
    slower = partial(slowdown_of, model.hardware)
    alone = [(0.0, float(len(links))) for links in sets if links]
    beside = [
        (1 / slower(COMPUTE, running), sum(1 / slower(link, running) for link in links))
        for links in sets
        if (running := (COMPUTE, *links))
    ]
    return [*alone, *beside]


def bound_overlapped_s(model: CostModel, bound_s: float, least_compute_s: float) -> float:
    """Return a lower bound on the step of any plan with the profile's overlap.

    bound_s          of the sum of its instructions
    least_compute_s  of its ops alone
    """
    share, paid, serial_s = model.hardware.overlap, least_paid_share(model), max(bound_s, least_compute_s)
    scheduled_s = max(serial_s / most_work_per_second(model), least_compute_s + paid * (serial_s - least_compute_s))
    return (1 - share) * serial_s + share * scheduled_s


def find_serial_cutoff_s(model: CostModel, step_s: float, least_compute_s: float) -> float:
    """Return the sum of instructions from which on no plan's step with the profile's overlap is below `step_s`.

    With it for `bound_s`, `bound_overlapped_s` is `step_s`. Where that is no more than the ops alone take, any sum is.
    """
    share, paid = model.hardware.overlap, least_paid_share(model)
    by_work = step_s / (1 - share + share / most_work_per_second(model))
    rest, slope = step_s - share * (1 - paid) * least_compute_s, 1 - share * (1 - paid)
    by_compute = rest / slope if slope else math.inf
    return max(0.0, min(by_work, by_compute))


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
