"""When a command has to be done, and what it reports until then."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import solvers


class TimeLimitReached(Exception):
    """Raised by `Deadline.check` when the time is up. The planner answers it with the best plan so far."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time at which a command has to be done; `seconds` after `started`, None: never."""

    seconds: float | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    @property
    def left_s(self) -> float | None:
        """The seconds that are left, 0 when the time is up; None without a limit."""
        return None if self.seconds is None else max(0.0, self.seconds - self.elapsed_s)

    def is_within(self, seconds: float) -> bool:
        """Return whether the time is up in less than these seconds."""
        return self.seconds is not None and self.seconds - self.elapsed_s < seconds

    def check(self) -> None:
        """Raise TimeLimitReached when the time is up."""
        if self.left_s == 0.0:
            raise TimeLimitReached

    def watch(self, on_progress: Callable[[int, int], None] | None = None) -> Callable[[int, int], None]:
        """Return a callback for (done, total) that passes both on, and raises TimeLimitReached when the time is up."""

        def note_progress(done: int, total: int) -> None:
            self.check()
            if on_progress is not None:
                on_progress(done, total)

        return note_progress

    def sooner(self, seconds: float) -> Deadline:
        """Return the deadline that leaves these seconds for the work that follows."""
        return self if self.seconds is None else replace(self, seconds=max(0.0, self.seconds - seconds))


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """What the planner does now, and what it knows.

    stage      such as "pricing reshards" or "searching"
    elapsed_s  seconds since the start
    incumbent  the best step so far in ps; None while no plan is known that fits
    bound      no step is shorter, in ps
    gap        (incumbent - bound) / incumbent
    """

    stage: str
    elapsed_s: float
    incumbent: int | None = None
    bound: int = 0
    gap: float | None = None


OnPlanProgress = Callable[[PlanProgress], None]


@dataclass(slots=True)
class ProgressReporter:
    """Passes on stages and the solver's progress. The best step and the best bound stay known from stage to stage."""

    deadline: Deadline
    on_progress: OnPlanProgress | None
    stage: str = ""
    is_whole: bool = True
    percent: int = 0
    incumbent: int | None = None
    bound: int = 0

    def begin(self, stage: str, *, is_whole: bool = True) -> None:
        """Report what is done from now on. `is_whole`: the solver's bounds are bounds of the whole search."""
        self.stage, self.is_whole, self.percent = stage, is_whole, 0
        self._report()

    def count(self, done: int, total: int) -> None:
        """Report how much of the stage is done, a hundred times at most."""
        percent = 100 * done // max(1, total)
        if percent > self.percent:
            self.percent = percent
            self._report(f"{self.stage} {percent} %")

    def report_solver(self, now: solvers.Progress) -> None:
        """Report the solver's incumbent and bound."""
        known = [cost for cost in (self.incumbent, now.incumbent) if cost is not None]
        self.incumbent, self.bound = min(known, default=None), max(self.bound, now.bound * self.is_whole)
        self._report()

    def report_upper(self, now: solvers.Progress) -> None:
        """Report the incumbent of a part of the search, whose bound is none of the whole."""
        self.report_solver(replace(now, bound=0))

    def report_time(self, _now: solvers.Progress) -> None:
        """Report that time passes; costs are not seconds here."""
        self._report()

    def _report(self, stage: str | None = None) -> None:
        if self.on_progress is not None:
            best = self.incumbent
            gap = None if best is None else (best - self.bound) / best if best else 0.0
            self.on_progress(PlanProgress(stage or self.stage, self.deadline.elapsed_s, best, self.bound, gap))
