"""Simulate when each instruction of a program starts and ends where collectives overlap with computation.

There is one stream for ops and local copies, in program order, and one for each link that is the outermost of some
collective. An instruction starts when its stream is free, its operands are ready, and it has been issued. A collective
is issued

    as soon as its operand is ready   if its result is no larger than what it frees: a gradient is reduced at once;
    `ahead` ops early, else           a parameter is gathered ahead of its use; with 0, after all earlier ops.

Among the instructions that wait for a stream, the first of the program goes first. The first unfinished instruction can
always run, so no schedule is longer than the sum of all times where nothing slows down, and none is shorter than the
busiest stream. A value is
held from the start of its producer to the end of its last reader; the peak is counted on all devices, at each event.
Instructions that run at the same time slow each other down as `slowdown` says (`planner.judge.overlap`).

Of a step of several micro-batches one is simulated, and the update begins when it has ended: all micro-batches take as
long, one after the other.

The running time is O(n log n), plus O(n * device classes) for the peak.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.ir.accounting import Accounting
from planner.ir.program import Program, Reshard, is_accumulation

Stream = Hashable
Sizes = Mapping[str, NDArray[np.int64]]
Slowdown = Callable[[Stream, Collection[Stream]], float]
COMPUTE: Stream = "compute"


@dataclass(frozen=True, slots=True)
class Schedule:
    """Start and end of each instruction in ps, and the peak in bytes on the device that holds most."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    peak_bytes: int

    @property
    def length_ps(self) -> int:
        return max(self.ends, default=0)


def simulate_schedule(
    program: Program,
    times_ps: Sequence[int],
    streams: Sequence[Stream],
    *,
    ahead: int,
    sizes: Sizes | None = None,
    slowdown: Slowdown = lambda _stream, _running: 1.0,
) -> Schedule:
    """Simulate a program whose instructions take `times_ps` on `streams`.

    sizes     those of `distinct_sizes`, to share them between simulations
    slowdown  (stream, streams that run) -> how many times as long an instruction of the stream takes
    """
    sizes = sizes or distinct_sizes(Accounting(program))
    return _Simulation(program, times_ps, streams, ahead, sizes, slowdown).finish()


def distinct_sizes(account: Accounting) -> Sizes:
    """Return the bytes of each value, with one entry for devices that hold equal bytes of all values."""
    sizes = account.value_bytes
    table = np.array(list(sizes.values()), np.int64).reshape(len(sizes), -1)
    return dict(zip(sizes, np.unique(table, axis=1), strict=True))


@dataclass
class _Simulation:
    """State of the simulation; instructions are named by their numbers.

    needs    conditions that an instruction still waits for: operands, and being issued
    waiting  by stream, a heap of the instructions that can start
    running  by stream, the instruction that runs and the ps of its work that are left
    left     by value, readers that have not ended
    issues   by number of ended ops, the collectives that are issued then
    changes  the row in `sizes` of each value that is held from then on, or ~row where it is freed
    """

    program: Program
    times: Sequence[int]
    streams: Sequence[Stream]
    ahead: int
    sizes: Sizes
    slowdown: Slowdown
    now: int = 0
    running: dict[Stream, tuple[int, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        listed = self.program.instructions
        self.times = [time // trips for time, trips in zip(self.times, self.program.trips, strict=True)]
        self.starts, self.ends = [0] * len(listed), [0] * len(listed)
        self.computes = [place for place, stream in enumerate(self.streams) if stream == COMPUTE]
        self.begun = self.ended = 0
        self.waiting: dict[Stream, list[int]] = defaultdict(list)
        maker = {name: place for place, done in enumerate(listed) for name in done.results}
        self.needs = [sum(name in maker for name in set(done.operands)) for done in listed]
        self.readers: dict[str, list[int]] = defaultdict(list)
        for place, done in enumerate(listed):
            for name in set(done.operands):
                self.readers[name].append(place)
        self.left = {name: len(places) for name, places in self.readers.items()}
        self.sums = {name for done in listed if is_accumulation(done) for name in done.results}
        self.rows = {name: row for row, name in enumerate(self.sizes)}
        first = (*(name for name, _ in self.program.arguments), *self.sums)
        self.changes = [self.rows[name] for name in first]
        self.kept = {*(name for name, _ in self.program.arguments), *self.program.outputs}
        self.issues: dict[int, list[int]] = defaultdict(list)
        self.unfinished = self.program.loop_end if self.program.graph.microbatches > 1 else 0
        for place in self._update if self.unfinished else ():
            self.needs[place] += 1
        self._issue()

    @property
    def _update(self) -> range:
        """The instructions that run once in a step."""
        return range(self.program.loop_end, len(self.program.instructions))

    def _issue(self) -> None:
        """Make collectives that grow memory wait for an earlier op, and queue instructions that wait for nothing."""
        # Issuing by ops that ended, not by time, is what a framework does: it prefetches so many layers ahead.
        earlier = np.cumsum([stream == COMPUTE for stream in self.streams])
        for place, stream in enumerate(self.streams):
            after = int(earlier[place]) - self.ahead
            if stream != COMPUTE and after > 0 and self._grows_memory(place):
                self.needs[place] += 1
                self.issues[after].append(place)
        for place, count in enumerate(self.needs):
            if not count:
                self._mark_ready(place)

    def _grows_memory(self, place: int) -> bool:
        done = self.program.instructions[place]
        assert isinstance(done, Reshard)
        frees = done.operand not in self.kept and len(self.readers[done.operand]) == 1
        return not frees or bool((self.sizes[done.result] > self.sizes[done.operand]).any())

    def finish(self) -> Schedule:
        while self._start() or self.running:
            for place in self._advance():
                self._end(place)
        loop, others = max(self.ends[: self.program.loop_end], default=0), self.program.graph.microbatches - 1
        starts, ends = (tuple(time + others * min(time, loop) for time in each) for each in (self.starts, self.ends))
        return Schedule(starts, ends, self._find_peak())

    def _find_peak(self) -> int:
        """Return the most bytes that a device holds after any of the changes."""
        table, changes = np.array([*self.sizes.values()]), np.array(self.changes, np.int64)
        taken = np.where(changes >= 0, 1, -1)[:, None] * table[np.where(changes >= 0, changes, ~changes)]
        return int(taken.cumsum(axis=0).max(initial=0))

    def _advance(self) -> list[int]:
        """Let time pass until an instruction ends. Return all that end then, which no longer run."""
        slower = {stream: self.slowdown(stream, self.running) for stream in self.running}
        needed = {stream: math.ceil(left * slower[stream]) for stream, (_, left) in self.running.items()}
        passed = min(needed.values())
        ended = sorted(self.running[stream][0] for stream in needed if needed[stream] == passed)
        self.running = {
            stream: (place, left - passed / slower[stream])
            for stream, (place, left) in self.running.items()
            if needed[stream] > passed
        }
        self.now += passed
        return ended

    def _mark_ready(self, place: int) -> None:
        heapq.heappush(self.waiting[self.streams[place]], place)

    def _start(self) -> bool:
        """Start the instructions that can start. Return whether any did."""
        ready = [stream for stream in self.waiting if self._next(stream) is not None]
        for stream in ready:
            self._begin(stream)
        return bool(ready)

    def _next(self, stream: Stream) -> int | None:
        waiting = self.waiting[stream]
        if stream in self.running or not waiting:
            return None
        # Ops run in program order even where a later one is ready first, as on one stream of a GPU.
        in_turn = stream != COMPUTE or waiting[0] == self.computes[self.begun]
        return waiting[0] if in_turn else None

    def _begin(self, stream: Stream) -> None:
        place = heapq.heappop(self.waiting[stream])
        self.begun += stream == COMPUTE
        self.starts[place] = self.now
        self.running[stream] = place, self.times[place]
        # Memory is taken at the start, before the operands are freed at the end: while it runs both are held.
        made = self.program.instructions[place].results
        self.changes += [self.rows[name] for name in made if name not in self.sums]

    def _end(self, place: int) -> None:
        done = self.program.instructions[place]
        self.ends[place] = self.now
        for name in done.results:
            for reader in self.readers[name]:
                self._operand_ready(reader)
            if name not in self.left:
                self._release(name)
        for name in set(done.operands):
            self.left[name] -= 1
            if not self.left[name]:
                self._release(name)
        if place < self.program.loop_end and self.unfinished:
            self.unfinished -= 1
            for waiting in self._update if not self.unfinished else ():
                self._operand_ready(waiting)
        if self.streams[place] == COMPUTE:
            self.ended += 1
            for issued in self.issues.pop(self.ended, ()):
                self._operand_ready(issued)

    def _operand_ready(self, place: int) -> None:
        self.needs[place] -= 1
        if not self.needs[place]:
            self._mark_ready(place)

    def _release(self, name: str) -> None:
        if name not in self.kept:
            self.changes.append(~self.rows[name])
