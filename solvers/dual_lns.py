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
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from solvers.dual_ascent import DualAscent
from solvers.model import IMPOSSIBLE
from solvers.problem import Problem
from solvers.restricted_mip import solve_restricted_mip
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
# A MIP's cheapest strategies per node (by breadth), most columns, seconds and branch-and-bound nodes.
CHEAPEST_PER_NODE, MAX_COLUMNS, MIP_SECONDS, MIP_NODES = (1, 2, 4, 8), 250_000, 20.0, 50
# Most columns where no clock can end a MIP.
MAX_COLUMNS_WITHOUT_CLOCK = 40_000
# The latest decoded assignments, whose strategies a MIP includes; the work of a batch, in message passes.
MAX_DECODED, BATCH_PASSES = 12, 60
# Walks of a round before the search has settled, which it has where a round leaves more than this share of the gap.
SETTLING_WALKS, SETTLED = 2, 0.75


class DualWorker:
    """Runs cycles of dual ascent, in a thread or inline, and holds its latest bound, multipliers and assignments."""

    def __init__(self, dual: DualAscent) -> None:
        self._dual, self._cycle, self._lock = dual, 0, threading.Lock()
        self._stop, self._thread = threading.Event(), threading.Thread()
        self.bound, self.multipliers, self.cycles = 0, dict[int, float](), 0
        self._assignments: list[Integers] = []
        self._failure: BaseException | None = None
        self.threaded = False

    def start(self) -> None:
        """Start running cycles in a thread."""
        self.threaded = True
        self._stop.clear()
        self._thread = threading.Thread(target=self._run_cycles)
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end and wait for it; it ends within a step or two."""
        self._stop.set()
        if self.threaded:
            self._thread.join()
        self.threaded = False

    def run_cycle(self, stopped: Callable[[], bool]) -> None:
        """Run one cycle, until stopped() is true."""
        dual, number = self._dual, self._cycle
        self._cycle += 1
        steps = CYCLE_STEPS * (1 + number)
        if number == 0:
            dual.begin()
        else:
            dual.restart()
        for step in range(steps):
            if stopped():
                return
            # Later cycles start with smaller steps and temperatures than the first: they refine its multipliers.
            progress = (
                step / steps if number == 0 else RESTART_PROGRESS + (1 - RESTART_PROGRESS) * step / steps + 0.1 * number
            )
            dual.advance(progress)
            if step % POST_EVERY == POST_EVERY - 1:
                self._post(dual.decode() if step * 2 >= steps else None)
        self.cycles += 1

    def take_assignments(self) -> list[Integers]:
        """Return the assignments posted since the last call. Raises what the thread has raised."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            assignments, self._assignments = self._assignments, []
        return assignments

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
    """The hybrid on a state's problem, which can be left and continued: nothing that it has found is lost.

    dual: the ascent that it was given.
    """

    def __init__(self, state: SolveState, dual: DualAscent, seed: int) -> None:
        self._state, self._seed, self.dual, self._worker = state, seed, dual, DualWorker(dual)
        self._pairs, self._interrupted = state.problem.arrays.pairs, _never
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
        with self._parallel_dual(processes):
            while not self._state.is_exhausted:
                self.run_round(WALKS_PER_MIP)
                if not self._state.is_exhausted:
                    self._solve_next_mip()
        return self._worker.multipliers

    def settle(self, processes: int) -> dict[int, float]:
        """Run until the dual's first cycle has ended and a round of walks closes little of the gap; return the best
        multipliers."""
        state, before = self._state, 1.0
        with self._parallel_dual(processes):
            while not state.is_exhausted:
                self.run_round(SETTLING_WALKS)
                gap = 1.0 if state.gap is None else state.gap
                if gap > SETTLED * before and self._worker.cycles:
                    break
                before = gap
        return self._worker.multipliers

    def begin(self) -> dict[int, float]:
        """Run the dual's first cycle and one walk; return the best multipliers."""
        self.run_round(1)
        self._collect()
        return self._worker.multipliers

    @contextmanager
    def _parallel_dual(self, processes: int) -> Iterator[None]:
        """Run the dual in a thread within the context, with two processes or more."""
        state, worker = self._state, self._worker
        if processes > 1:
            state.mark_irreproducible()
            worker.start()
        try:
            yield
        finally:
            worker.stop()
        self._collect()

    def run_round(self, walks: int) -> None:
        """Run a cycle of the dual where it has no thread, and then so many walks."""
        state, worker = self._state, self._worker
        if not worker.threaded:
            with state.operator("dual", self._pairs):
                worker.run_cycle(lambda: state.is_exhausted)
                self._publish()
        for _ in range(walks):
            if not state.is_exhausted:
                self._walk()

    def walk_while(self, has_result: Callable[[], bool]) -> bool:
        """Walk once, or until has_result() is true; return True (see isolated_process.Meanwhile)."""
        self._interrupted = has_result
        self._walk()
        self._interrupted = _never
        return True

    def _should_stop(self) -> bool:
        """Charge a batch of the search and publish the results so far; return whether the search is to stop."""
        self._state.charge(self._batch_work)
        self._publish()
        return self._state.is_exhausted or self._interrupted()

    def _publish(self) -> None:
        assignment = self._search.assignment
        if assignment is not None and (self._state.cost is None or (self._search.cost or 0) < self._state.cost):
            self._state.submit(assignment)
        self._state.raise_lower_bound(self._worker.bound)

    def _collect(self) -> None:
        """Submit the assignments that the dual has posted."""
        for assignment in self._worker.take_assignments():
            self._search.submit(assignment)
            self._state.submit(assignment)
            self._fresh, self._decoded = True, [*self._decoded[1 - MAX_DECODED :], assignment]
        self._publish()

    def _walk(self) -> None:
        """Walk and polish from the latest decoded assignment if it is new, else from the incumbent and the elites in
        turn."""
        self._collect()
        state, search, turn = self._state, self._search, self._round
        if state.assignment is not None and (search.cost is None or (state.cost or 0) < search.cost):
            search.submit(state.assignment)
        search.set_multipliers(self._worker.multipliers)
        if self._fresh:
            start, self._fresh = self._decoded[-1], False
        elif turn % 2 or not search.elites:
            start = self._start if search.assignment is None else search.assignment
        else:
            start = search.elites[turn // 2 % len(search.elites)]
        with state.operator("tree search", self._pairs):
            search.run(start, TEMPERATURES[turn % len(TEMPERATURES)], BATCHES)
        self._round += 1

    def recombine(self, most: int) -> None:
        """Solve the MIPs of the elites' and ever more of each node's cheapest strategies, while these have at most so
        many columns."""
        for breadth in range(len(CHEAPEST_PER_NODE)):
            if self._state.is_exhausted or not self._solve_mip(breadth, most):
                break

    def _solve_next_mip(self) -> None:
        """Solve the MIP of the elites' and each node's cheapest strategies, more of them after each failure."""
        before, by_clock = self._search.cost, self._state.seconds_left is not None
        fits = self._solve_mip(self._breadth, MAX_COLUMNS if by_clock else MAX_COLUMNS_WITHOUT_CLOCK)
        self._breadth = (self._breadth + 1) % len(CHEAPEST_PER_NODE) if fits and self._search.cost == before else 0

    def _solve_mip(self, breadth: int, most: int) -> bool:
        """Solve the MIP of the elites' and so many of each node's cheapest strategies; return whether it had at most
        `most` columns (and an assignment to start from)."""
        state, search = self._state, self._search
        if search.assignment is None:
            return False
        flags = search.select_strategies(CHEAPEST_PER_NODE[breadth], self._decoded)
        columns, left = _count_columns(state.problem, flags), state.seconds_left
        if columns > most:
            return False
        restriction = Restriction.identity(state.problem).restricted_to(flags)
        share = 1.0 if left is None else MIP_SECONDS / max(left, MIP_SECONDS)
        with state.operator("MIP of elites", restriction.problem.arrays.pairs):
            result = solve_restricted_mip(
                state,
                restriction,
                search.time_steps,
                share=share,
                nodes=MIP_NODES,
                gap=state.target_gap / 2,
                seed=self._seed,
            )
            if result is not None and result.assignment is not None:
                search.submit(restriction.postsolve(result.assignment))
            self._publish()
        return True


def find_min_usage_assignment(problem: Problem) -> Integers:
    """Return each node's permitted strategy of least usage (bytes times time steps), then least cost: a first guess."""
    arrays = problem.arrays
    strategy = arrays.strategies_at(arrays.span_node)
    duration = np.repeat(arrays.span_stop - arrays.span_start, arrays.counts[arrays.span_node]).astype(np.float64)
    # The cast is for empty problems: of no entries bincount makes integers, which cannot hold inf.
    usage = np.bincount(strategy, arrays.span_usage * duration, arrays.cost.size).astype(np.float64)
    usage[arrays.cost >= IMPOSSIBLE] = np.inf
    order = np.lexsort((arrays.cost, usage, arrays.node_of))
    least: Integers = order[arrays.node_start[:-1]] - arrays.node_start[:-1]
    return least


def _count_columns(problem: Problem, flags: NDArray[np.bool_]) -> int:
    """Return an upper bound of the columns of the MIP of these strategies: every strategy its own class."""
    arrays = problem.arrays
    counts = np.add.reduceat(flags, arrays.node_start[:-1], dtype=np.int64)
    return int(counts.sum() + (counts[arrays.source] * counts[arrays.target]).sum())


def _never() -> bool:
    return False
