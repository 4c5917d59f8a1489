"""The state of a solve: incumbent, bound, elites and budget. Only this module decides whether time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import Evaluation, evaluate, lagrangian_value
from solvers.isolated_process import POLL_S, Meanwhile, RunningTask, WorkerFailed, WorkerStopped
from solvers.model import IMPOSSIBLE
from solvers.problem import Problem
from solvers.problem_arrays import ProblemArrays, sum_largest
from solvers.solution import OperatorSlice, Progress, TrajectoryPoint

Integers = NDArray[np.int64]
Result = TypeVar("Result")

TIME_LIMIT, WORK_LIMIT = "time limit", "work limit"
# A unit of work is about a nanosecond; runs without a time limit have this many seconds' worth.
WORK_PER_SECOND = 10**9
DEFAULT_WORK_SECONDS = 60.0
# Assignments remembered. Each is evaluated again whenever elites are ranked at new multipliers, so they are few.
MAX_ELITES = 400
# Seconds within which an operator's points of the trajectory are one.
POINT_S = 0.1


class UnsoundBound(RuntimeError):
    """A "proven" lower bound above the value of a known assignment: a fault of the solver, whatever the problem."""


def _require_sound(what: str, lower: int, upper: int | None) -> None:
    if upper is not None and lower > upper:
        got = f"got {lower}, wanted at most {upper}, the value of a known assignment"
        raise UnsoundBound(f"{what} of the solve: {got} (a fault of the solver)")


def pass_work(arrays: ProblemArrays) -> float:
    """Return the units of work (about nanoseconds) of one message pass: per pair, per strategy and per call."""
    return float(arrays.pairs + 20 * arrays.node_start[-1] + 100_000)


class SolveState:
    """What a solve knows so far, and its budget of wall-clock seconds or units of work.

    assignment, cost: the incumbent (None: no feasible assignment known). bound: the proven lower bound. elites: costs
    of the assignments seen, by their bytes. min_peak, min_peak_assignment: the least peak usage seen, in bytes.
    min_feasible_limit_bound: a proven lower bound of every assignment's peak. reproducible: False once the clock, a
    cancellation or a solver's time limit has decided anything. failures: what became of each worker that failed. log,
    trajectory, bound_numeric: as in Solution. meanwhile: what to do while a worker process is busy (None: wait).
    """

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
        self.failures: list[str] = []
        self.bound_numeric: float | None = None
        self.log: list[OperatorSlice] = []
        self.trajectory: list[TrajectoryPoint] = []
        self.meanwhile: Meanwhile | None = None
        self._tasks: list[RunningTask[Any]] = []
        self._operator = "start"

    def rebase(self, problem: Problem) -> None:
        """Continue with a problem of equal optimal cost: bounds are kept, assignments have to be submitted again."""
        self.assignment, self.cost, self.min_peak_assignment = None, None, None
        self.elites.clear()
        self.problem, self.largest_cost = problem, bound_largest_cost(problem)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started_at

    @property
    def seconds_left(self) -> float | None:
        """Seconds of wall clock left; None where the budget is in units of work."""
        return None if self._deadline is None else self._deadline - time.monotonic()

    def has_time_for(self, passes: int) -> bool:
        """Return whether the clock leaves time for so many message passes, as far as their work tells."""
        left = self.seconds_left
        if left is not None and left * WORK_PER_SECOND < passes * pass_work(self.problem.arrays):
            self.stop_reason, self.reproducible = TIME_LIMIT, False
        return not self.is_exhausted

    @property
    def gap(self) -> float | None:
        """The proven relative gap of the incumbent; None without one."""
        if self.cost is None:
            return None
        return (self.cost - self.bound) / self.cost if self.cost else 0.0

    @property
    def upper_cutoff(self) -> int:
        """The cost from which on assignments are of no interest: within the target gap of the incumbent, or at the
        caller's cutoff."""
        return self._closing_bound if self._cutoff is None else min(self._closing_bound, self._cutoff)

    @property
    def _closing_bound(self) -> int:
        """The bound that proves the target gap or, without an incumbent, that there is no assignment."""
        return self.largest_cost + 1 if self.cost is None else self.cost - int(self.cost * self.target_gap)

    @property
    def is_infeasible(self) -> bool:
        """Whether it is proven that there is no feasible assignment."""
        limit = self.problem.limit
        too_tight = limit is not None and self.min_feasible_limit_bound > limit
        return self.cost is None and (too_tight or self.bound > self.largest_cost)

    @property
    def is_cut_off(self) -> bool:
        """Whether it is proven that no assignment costs less than the caller's cutoff."""
        return self._cutoff is not None and self.bound >= self._cutoff

    @property
    def is_optimal(self) -> bool:
        """Whether the target gap is proven."""
        # The bound decides as well: of costs above 2**53 the gap is rounded.
        return self.gap is not None and (self.gap <= self.target_gap or self.bound >= self._closing_bound)

    @property
    def is_closed(self) -> bool:
        """Whether the target gap is proven, or that there is nothing to find."""
        return self.is_infeasible or self.is_cut_off or self.is_optimal

    @property
    def is_exhausted(self) -> bool:
        """Whether to stop, because the problem is closed or the budget is used up."""
        return self.is_closed or self.is_stopped

    @property
    def is_stopped(self) -> bool:
        """Whether the budget is used up or the caller cancelled; sets stop_reason."""
        if self.stop_reason:
            return True
        if self._cancelled is not None and self._cancelled():
            self.stop_reason, self.reproducible = "cancelled", False
        elif self._deadline is not None and time.monotonic() >= self._deadline:
            self.stop_reason, self.reproducible = TIME_LIMIT, False
        elif self._deadline is None and self.work_done >= self._max_work:
            self.stop_reason = WORK_LIMIT
        return bool(self.stop_reason)

    def charge(self, work: float) -> None:
        """Count units of work done (about a nanosecond each)."""
        self.work_done += work

    def run_in_worker(
        self,
        work: Callable[[], Result],
        meanwhile: Meanwhile | None = None,
        on_result: Callable[[Result], None] = lambda _: None,
    ) -> Result | None:
        """Run `work` in a worker process (solvers/isolated_process.py) and return its result; None if there is none.

        The worker is killed once the state is exhausted. Without a clock it is also killed when it alone uses the CPU
        seconds of the whole budget, which exhausts the state. A failure is recorded in `failures` and ends nothing.
        meanwhile: instead of the state's. on_result: called once the result is there, even while another is awaited.
        """
        by_clock = self._deadline is not None
        task = RunningTask(work, None if by_clock else self._max_work / WORK_PER_SECOND, on_result)
        self._tasks.append(task)
        try:
            while not task.poll() and self._work_meanwhile(task, meanwhile):
                pass
            return task.result()
        except WorkerFailed as failure:
            self.failures.append(str(failure))
        except WorkerStopped:
            self.stop_reason = self.stop_reason or ("" if by_clock or self.is_closed else WORK_LIMIT)
        finally:
            task.kill()
            self._tasks.remove(task)
        self.mark_irreproducible()
        return None

    def _work_meanwhile(self, task: RunningTask[Result], meanwhile: Meanwhile | None) -> bool:
        """Do something for a while in which the task runs: nothing while another one does. Return whether its result is
        still wanted."""
        others = [other for other in self._tasks if other is not task and not other.poll()]
        if self.is_exhausted:
            return False
        if meanwhile is not None:
            return meanwhile(task.poll)
        if self.meanwhile is None or others:
            task.poll(POLL_S)
            return True
        outer, self.meanwhile = self.meanwhile, None
        try:
            return outer(task.poll)
        finally:
            self.meanwhile = outer

    def mark_irreproducible(self) -> None:
        """Record that a clock may have influenced the result, for example the time limit of a solver inside."""
        self.reproducible = False

    def submit(self, assignment: Sequence[int] | Integers) -> Evaluation:
        """Evaluate an assignment; add it to the elites unless it contains something forbidden; make it the incumbent if
        it is feasible and cheaper."""
        array = np.asarray(assignment, np.int64)
        evaluation = evaluate(self.problem, array)
        better = self.cost is None or evaluation.cost < self.cost
        # New incumbents join the elites even when those are full.
        if evaluation.allowed and ((evaluation.feasible and better) or len(self.elites) < MAX_ELITES):
            self.elites[array.tobytes()] = evaluation.cost
        if evaluation.allowed and (self.min_peak is None or evaluation.peak < self.min_peak):
            self.min_peak, self.min_peak_assignment = evaluation.peak, array.copy()
            _require_sound("lower bound of the peak", self.min_feasible_limit_bound, self.min_peak)
        if evaluation.feasible and better:
            self.assignment, self.cost = array.copy(), evaluation.cost
            _require_sound("lower bound", self.bound, self.cost)
            self._report_progress()
        return evaluation

    def nearest(self, multipliers: Mapping[int, float], most: int) -> list[Integers]:
        """Return the elites with the least Lagrangian value at these multipliers, at most `most` of them."""
        elites = self.elites.items() if most else ()
        ranked = sorted(
            (lagrangian_value(self.problem, np.frombuffer(key, np.int64), cost, multipliers=multipliers), key)
            for key, cost in elites
        )
        return [np.frombuffer(key, np.int64) for _, key in ranked[:most]]

    def raise_lower_bound(self, bound: int) -> None:
        """Take in a proven lower bound of every feasible assignment's cost."""
        if bound > self.bound:
            _require_sound("lower bound", bound, self.cost)
            self.bound = bound
            self._report_progress()

    def raise_min_peak_bound(self, bound: int) -> None:
        """Take in a proven lower bound, in bytes, of the peak usage of every assignment without anything forbidden."""
        self.min_feasible_limit_bound = max(self.min_feasible_limit_bound, bound)
        _require_sound("lower bound of the peak", self.min_feasible_limit_bound, self.min_peak)

    @property
    def spent_s(self) -> float:
        """Seconds since the start: of wall clock, or of work where the budget is in units of work."""
        return self.work_done / WORK_PER_SECOND if self._deadline is None else self.elapsed_s

    @contextmanager
    def operator(self, name: str, size: int) -> Iterator[None]:
        """Log what happens within the context as a slice of this operator, which works on `size` pairs."""
        began, outer, self._operator = self.spent_s, self._operator, name
        try:
            yield
        finally:
            self._operator = outer
            self.log.append(OperatorSlice(began, name, self.spent_s - began, self.bound, self.cost, size))

    def _report_progress(self) -> None:
        point = TrajectoryPoint(self.spent_s, self.cost, self.bound, self._operator)
        last = self.trajectory[-1] if self.trajectory else None
        # Message passing raises the bound with every pass: of an operator's points a tenth of a second counts as one.
        if last is not None and last.operator == point.operator and point.seconds - last.seconds < POINT_S:
            self.trajectory.pop()
            point = replace(point, seconds=last.seconds)
        self.trajectory.append(point)
        if self._on_progress is not None:
            self._on_progress(Progress(self.elapsed_s, self.cost, self.bound, self.gap))


def bound_largest_cost(problem: Problem) -> int:
    """Return a cost that no assignment without anything forbidden exceeds: the sum of all largest costs."""
    arrays = problem.arrays
    parts = ((arrays.cost, arrays.node_start[:-1]), (arrays.pair_cost, arrays.pair_start))
    return sum(sum_largest(np.where(cost < IMPOSSIBLE, cost, 0), starts) for cost, starts in parts)
