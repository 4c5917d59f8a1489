"""A hybrid for problems of thousands of nodes: dual ascent, tree search at its multipliers, and restricted MIPs.

The three feed each other. Dual ascent (solvers/dual_ascent.py) gives the bound, the multipliers and assignments decoded
from its messages. Tree search (solvers/tree_lns) walks and polishes from those assignments and from the incumbent. A
restricted MIP (solvers/mip.py) combines the strategies of the polished elites and each node's few cheapest, over the
whole problem at once.

With two workers the dual runs in a thread of its own (the numba kernels release the GIL) and posts its results. With
one, cycles of the dual and rounds of the rest alternate by steps, not by the clock, so the result is reproducible.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from solvers.dual_ascent import DualAscent
from solvers.mip import RestrictedMip
from solvers.model import IMPOSSIBLE
from solvers.problem import Problem
from solvers.restriction import Restriction
from solvers.solve_state import SolveState, pass_work
from solvers.tree_lns import TreeLns

Integers = NDArray[np.int64]

# Steps of the dual's first cycle; the progress (of step size and temperature) at which later, longer cycles start.
CYCLE_STEPS, RESTART_PROGRESS = 600, 0.5
# Steps between posts; posts in the second half of a cycle include a decoded assignment.
POST_EVERY = 20
# Temperatures of the walks in turn, as shares of a node's mean cost; batches per walk; walks before each MIP.
TEMPERATURES = (0.001, 0.01, 0.03, 0.1, 0.3)
BATCHES, WALKS_PER_MIP = 4, 6
# A MIP's cheapest strategies per node (by breadth), most columns, seconds and branch-and-bound nodes; units of work per
# column.
CHEAPEST_PER_NODE, MAX_COLUMNS, MIP_SECONDS, MIP_NODES, COLUMN_WORK = (1, 2, 4, 8), 250_000, 20.0, 50, 2e5
# Most columns where no clock can end a MIP.
MAX_COLUMNS_WITHOUT_CLOCK = 40_000
# The latest decoded assignments, whose strategies a MIP includes; the work of a batch, in message passes.
MAX_DECODED, BATCH_PASSES = 12, 60


class DualWorker:
    """Runs cycles of dual ascent, in a thread or inline, and holds its latest bound, multipliers and assignments."""

    def __init__(self, state: SolveState) -> None:
        self._dual, self._cycle, self._lock = DualAscent(state.problem), 0, threading.Lock()
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._run_cycles)
        self.bound, self.multipliers = 0, dict[int, float]()
        self._assignments: list[Integers] = []
        self._failure: BaseException | None = None
        self.threaded = False

    def start(self) -> None:
        """Start running cycles in a thread."""
        self.threaded = True
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end and wait for it, at most a second; it ends within a step or two."""
        self._stop.set()
        if self.threaded:
            self._thread.join(1.0)

    def run_cycle(self, stopped: Callable[[], bool]) -> int:
        """Run one cycle until stopped() is true; return the number of steps made."""
        dual, number = self._dual, self._cycle
        self._cycle += 1
        steps = CYCLE_STEPS * (1 + number)
        if number == 0:
            dual.begin()
        else:
            dual.restart()
        for step in range(steps):
            if stopped():
                return step
            # Later cycles start with smaller steps and temperatures than the first: they refine its multipliers.
            progress = (
                step / steps if number == 0 else RESTART_PROGRESS + (1 - RESTART_PROGRESS) * step / steps + 0.1 * number
            )
            dual.advance(progress)
            if step % POST_EVERY == POST_EVERY - 1:
                self._post(dual.decode() if step * 2 >= steps else None)
        return steps

    def take_assignments(self) -> list[Integers]:
        """Return the assignments posted since the last call. Raises what the thread has raised."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            assignments, self._assignments = self._assignments, []
        return assignments

    @property
    def work(self) -> float:
        """Units of work of one step."""
        return self._dual.work

    def _post(self, assignment: Integers | None) -> None:
        with self._lock:
            self.bound, self.multipliers = self._dual.bound, self._dual.multipliers
            if assignment is not None:
                self._assignments.append(assignment)

    def _run_cycles(self) -> None:
        try:
            while not self._stop.is_set():
                self.run_cycle(self._stop.is_set)
        except BaseException as failure:  # noqa: BLE001  (raised again by take_assignments)
            self._failure = failure


class DualLnsHybrid:
    """One run of the hybrid on a state's problem."""

    def __init__(self, state: SolveState, seed: int) -> None:
        self._state, self._seed = state, seed
        self._worker = DualWorker(state)
        if state.assignment is None:
            state.submit(find_min_usage_assignment(state.problem))
        start = find_min_usage_assignment(state.problem) if state.assignment is None else state.assignment
        self._search = TreeLns(state.problem, start, seed, self._should_stop)
        self._decoded, self._fresh = list[Integers](), False
        self._start = start
        self._round = self._breadth = 0
        self._batch_work = BATCH_PASSES * pass_work(state.problem.arrays)

    def run(self, processes: int) -> dict[int, float]:
        """Run until the state is exhausted; return the best multipliers."""
        state, worker = self._state, self._worker
        if processes > 1:
            state.mark_irreproducible()
            worker.start()
        try:
            while not state.is_exhausted:
                if not worker.threaded:
                    state.charge(worker.work * worker.run_cycle(lambda: state.is_exhausted))
                for _ in range(WALKS_PER_MIP):
                    self._walk()
                    if state.is_exhausted:
                        break
                else:
                    self._solve_mip()
        finally:
            worker.stop()
        self._collect()
        return worker.multipliers

    def _should_stop(self) -> bool:
        """Charge a batch of the search and publish the results so far; return whether the search is to stop."""
        self._state.charge(self._batch_work)
        self._publish()
        return self._state.is_exhausted

    def _publish(self) -> None:
        assignment = self._search.assignment
        if assignment is not None and (self._state.cost is None or (self._search.cost or 0) < self._state.cost):
            self._state.submit(assignment)
        self._state.raise_lower_bound(self._worker.bound)

    def _collect(self) -> None:
        """Submit the assignments that the dual has posted."""
        for assignment in self._worker.take_assignments():
            self._search.submit(assignment)
            self._fresh, self._decoded = True, [*self._decoded[1 - MAX_DECODED :], assignment]
        self._publish()

    def _walk(self) -> None:
        """Walk and polish from the latest decoded assignment if it is new, else from the incumbent and the elites in
        turn."""
        self._collect()
        search, turn = self._search, self._round
        search.set_multipliers(self._worker.multipliers)
        if self._fresh:
            start, self._fresh = self._decoded[-1], False
        elif turn % 2 or not search.elites:
            start = self._start if search.assignment is None else search.assignment
        else:
            start = search.elites[turn // 2 % len(search.elites)]
        search.run(start, TEMPERATURES[turn % len(TEMPERATURES)], BATCHES)
        self._round += 1

    def _solve_mip(self) -> None:
        """Solve the MIP of the elites' and each node's cheapest strategies, more of them after each failure."""
        state, search, before = self._state, self._search, self._search.cost
        if search.assignment is None:
            return
        flags, best, time_steps, left = (
            search.select_strategies(CHEAPEST_PER_NODE[self._breadth], self._decoded),
            search.assignment,
            search.time_steps,
            self._mip_seconds(),
        )
        columns = _count_columns(state.problem, flags)
        if columns > (MAX_COLUMNS if left is not None else MAX_COLUMNS_WITHOUT_CLOCK):
            self._breadth = 0
            return

        restriction = Restriction.identity(state.problem).restricted_to(flags)
        unit, hint, gap = max((before or 1) / 1e6, 1e-6), restriction.crush(best), state.target_gap / 2
        task = RestrictedMip(restriction.problem, unit, hint, time_steps, left, MIP_NODES, gap, self._seed)
        result = state.run_in_worker(task, lambda: state.raise_lower_bound(self._worker.bound))
        state.charge(COLUMN_WORK * columns)
        if result is not None and result.assignment is not None:
            search.submit(restriction.postsolve(result.assignment))
        self._breadth = 0 if search.cost != before else (self._breadth + 1) % len(CHEAPEST_PER_NODE)
        self._publish()

    def _mip_seconds(self) -> float | None:
        left = self._state.seconds_left
        return None if left is None else min(left, MIP_SECONDS)


def find_min_usage_assignment(problem: Problem) -> Integers:
    """Return each node's permitted strategy of least usage (bytes times time steps), then least cost: a first guess."""
    arrays = problem.arrays
    sizes = np.diff(arrays.node_start)[arrays.span_node]
    strategy = np.arange(arrays.span_usage.size) + np.repeat(
        arrays.node_start[arrays.span_node] - arrays.span_at, sizes
    )
    duration = np.repeat(arrays.span_stop - arrays.span_start, sizes).astype(np.float64)
    # The cast is for empty problems: of no entries bincount makes integers, which cannot hold inf.
    usage = np.bincount(strategy, arrays.span_usage * duration, arrays.cost.size).astype(np.float64)
    usage[arrays.cost >= IMPOSSIBLE] = np.inf
    node = np.repeat(np.arange(arrays.node_start.size - 1), np.diff(arrays.node_start))
    order = np.lexsort((arrays.cost, usage, node))
    least: Integers = order[arrays.node_start[:-1]] - arrays.node_start[:-1]
    return least


def _count_columns(problem: Problem, flags: NDArray[np.bool_]) -> int:
    """Return an upper bound of the columns of the MIP of these strategies: every strategy its own class."""
    arrays = problem.arrays
    counts = np.add.reduceat(flags, arrays.node_start[:-1], dtype=np.int64)
    return int(counts.sum() + (counts[arrays.source] * counts[arrays.target]).sum())


def run_lns(state: SolveState, seed: int = 0, processes: int = 2) -> dict[int, float]:
    """Improve the state's incumbent and bound until it is exhausted; return the best multipliers (cost units per byte).

    processes: 2 or more run the dual in a thread; 1 alternates by steps, so a state without a clock is reproducible.
    """
    return DualLnsHybrid(state, seed).run(processes)
