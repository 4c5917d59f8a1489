"""What a solve knows so far, and whether it may go on: the only place that looks at the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import Evaluation, evaluate, lagrangian_value
from solvers.isolated_process import run_isolated
from solvers.model import IMPOSSIBLE
from solvers.problem import Problem
from solvers.problem_arrays import ProblemArrays
from solvers.solution import Progress

Integers = NDArray[np.int64]
Result = TypeVar("Result")

TIME_LIMIT, WORK_LIMIT = "time limit", "work limit"
WORK_PER_SECOND = 10**9
DEFAULT_WORK_SECONDS = 60.0
# Choices remembered; each is priced anew whenever they are ranked.
MAX_ELITES = 400


def pass_work(arrays: ProblemArrays) -> float:
    """Units of work (nanoseconds, about) of one pass of messages: a pair, a strategy, and the call itself."""
    return float((arrays.height * arrays.width).sum() + 20 * arrays.node_start[-1] + 100_000)


class SolveState:
    """Best choice, proven bound, strategies seen, and the budget: seconds of wall clock or units of work."""

    def __init__(
        self,
        problem: Problem,
        gap: float,
        time_limit: float | None,
        deterministic: bool,
        on_progress: Callable[[Progress], None] | None,
        cancelled: Callable[[], bool] | None,
        cutoff: int | None = None,
    ) -> None:
        self.problem, self.target_gap, self._cutoff = problem, gap, cutoff
        self._started_at = time.monotonic()
        by_clock = time_limit is not None and not deterministic
        self._deadline = self._started_at + time_limit if by_clock and time_limit is not None else None
        self.work_done = 0.0
        self._max_work = WORK_PER_SECOND * (DEFAULT_WORK_SECONDS if time_limit is None else time_limit)
        self._on_progress, self._cancelled = on_progress, cancelled
        self.assignment: Integers | None = None
        self.cost: int | None = None
        self.bound = 0
        self.min_peak: int | None = None
        self.min_peak_assignment: Integers | None = None
        self.min_feasible_limit_bound = 0
        self.largest_cost = bound_largest_cost(problem)
        self.elites: dict[bytes, int] = {}
        self.stop_reason = ""
        self.reproducible = True

    def rebase(self, problem: Problem) -> None:
        """Go on with a problem of the same costs: bounds stay, choices have to be offered anew."""
        self.assignment, self.cost, self.min_peak_assignment = None, None, None
        self.elites.clear()
        self.problem, self.largest_cost = problem, bound_largest_cost(problem)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started_at

    @property
    def seconds_left(self) -> float | None:
        """Wall clock left; None when no clock rules."""
        return None if self._deadline is None else self._deadline - time.monotonic()

    @property
    def gap(self) -> float | None:
        """Proven relative gap of the best choice."""
        if self.cost is None:
            return None
        return (self.cost - self.bound) / self.cost if self.cost else 0.0

    @property
    def upper_cutoff(self) -> int:
        """A choice that costs this much or more is of no interest, or does not exist."""
        upper_cutoff = self.largest_cost + 1 if self.cost is None else self.cost - int(self.cost * self.target_gap)
        return upper_cutoff if self._cutoff is None else min(upper_cutoff, self._cutoff)

    @property
    def is_infeasible(self) -> bool:
        """Is it proven that there is no feasible choice?"""
        limit = self.problem.limit
        too_tight = limit is not None and self.min_feasible_limit_bound > limit
        return self.cost is None and (too_tight or self.bound > self.largest_cost)

    @property
    def is_cut_off(self) -> bool:
        """Is it proven that every choice costs as much as is of no interest from the start?"""
        return self._cutoff is not None and self.bound >= self._cutoff

    @property
    def is_optimal(self) -> bool:
        """Is the gap asked for proven?"""
        return self.gap is not None and self.gap <= self.target_gap

    @property
    def is_closed(self) -> bool:
        """Is the gap asked for proven, or is it proven that there is nothing to find?"""
        return self.is_infeasible or self.is_cut_off or self.is_optimal

    @property
    def is_exhausted(self) -> bool:
        """Is it time to stop, for whatever reason?"""
        return self.is_closed or self.is_stopped

    @property
    def is_stopped(self) -> bool:
        """Is it time to stop though there may be more to prove?"""
        if self.stop_reason:
            return True
        if self._cancelled is not None and self._cancelled():
            self.stop_reason, self.reproducible = "cancelled", False
        elif self._deadline is not None and time.monotonic() >= self._deadline:
            self.stop_reason, self.reproducible = TIME_LIMIT, False
        elif self._deadline is None and self.work_done >= self._max_work:
            self.stop_reason = WORK_LIMIT
        return bool(self.stop_reason)

    @contextmanager
    def sub_budget(self, share: float) -> Iterator[None]:
        """For a while, as if only this share of the seconds or the work left were left."""
        deadline, most = self._deadline, self._max_work
        if deadline is not None:
            self._deadline = deadline - (1 - share) * max(deadline - time.monotonic(), 0.0)
        self._max_work = most - (1 - share) * max(most - self.work_done, 0.0)
        yield
        self._deadline, self._max_work = deadline, most
        if self.stop_reason in (TIME_LIMIT, WORK_LIMIT):
            self.stop_reason = ""

    def charge(self, work: float) -> None:
        """Count work done (about a nanosecond each)."""
        self.work_done += work

    def run_in_worker(self, work: Callable[[], Result], meanwhile: Callable[[], None] = lambda: None) -> Result | None:
        """The result of work in a process of its own (solvers/isolated_process.py); None where that had to be ended.

        It is when this is exhausted; where no clock rules, also when the work alone takes as many seconds of the
        processor as all the work may: this is then exhausted too. meanwhile: done while waiting, now and then.
        """

        def unwanted() -> bool:
            meanwhile()
            return self.is_exhausted

        by_clock = self._deadline is not None
        found = run_isolated(work, unwanted, None if by_clock else self._max_work / WORK_PER_SECOND)
        if found is None:
            self.mark_irreproducible()
            self.stop_reason = self.stop_reason or ("" if by_clock or self.is_closed else WORK_LIMIT)
        return found

    def mark_irreproducible(self) -> None:
        """A solver inside may have stopped at the time limit given to it."""
        self.reproducible = False

    def submit(self, assignment: Sequence[int] | Integers) -> Evaluation:
        """Judge a choice, remember it (unless it takes something forbidden), keep it if it is the best."""
        array = np.asarray(assignment, np.int64)
        found = evaluate(self.problem, array)
        better = self.cost is None or found.cost < self.cost
        if found.cost < IMPOSSIBLE and ((found.feasible and better) or len(self.elites) < MAX_ELITES):
            self.elites[array.tobytes()] = found.cost
        if found.cost < IMPOSSIBLE and (self.min_peak is None or found.peak < self.min_peak):
            self.min_peak, self.min_peak_assignment = found.peak, array.copy()
        if found.feasible and better:
            self.assignment, self.cost = array.copy(), found.cost
            self._report_progress()
        return found

    def nearest(self, multipliers: Mapping[int, float], most: int) -> list[Integers]:
        """The choices remembered that cost least at these prices, at most so many."""
        known = self.elites.items() if most else ()
        ranked = sorted(
            (lagrangian_value(self.problem, np.frombuffer(key, np.int64), cost, multipliers=multipliers), key)
            for key, cost in known
        )
        return [np.frombuffer(key, np.int64) for _, key in ranked[:most]]

    def raise_lower_bound(self, bound: int) -> None:
        """A lower bound of every feasible choice's cost (never above the best choice's: that one is then optimal)."""
        if bound > self.bound:
            self.bound = bound if self.cost is None else min(bound, self.cost)
            self._report_progress()

    def raise_min_peak_bound(self, bound: int) -> None:
        """A lower bound of every possible choice's peak usage."""
        self.min_feasible_limit_bound = max(self.min_feasible_limit_bound, bound)

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(Progress(self.elapsed_s, self.cost, self.bound, self.gap))


def bound_largest_cost(problem: Problem) -> int:
    """No choice without anything forbidden costs more."""
    arrays = problem.arrays
    finite = np.where(arrays.cost < IMPOSSIBLE, arrays.cost, 0)
    total = int(np.maximum.reduceat(finite, arrays.node_start[:-1]).sum(dtype=object)) if finite.size else 0
    pairs = np.where(arrays.pair_cost < IMPOSSIBLE, arrays.pair_cost, 0)
    at, first = np.unique(arrays.pair_start, return_inverse=True)
    return total + int(np.maximum.reduceat(pairs, at)[first].sum(dtype=object)) if at.size else total
