"""Problems of thousands of nodes: the dual first, then tree search at its prices, and restricted programs over both.

Three things feed each other. The dual (solvers/dual.py) gives the bound, prices, and choices decoded from its
messages. The tree search (solvers/treesearch) walks and polishes from those choices and from the best one. A
restricted program (solvers/ilp.py) takes the strategies of the pool of polished choices and each node's few cheapest,
over the whole problem at once. With two workers the dual runs in a thread of its own (the kernels hold no
lock, so both cores are busy) and posts what it has; with one, cycles of the dual and rounds of the rest alternate, by
steps and not by the clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from solvers.dual import Dual
from solvers.ilp import Task
from solvers.ledger import Ledger, pass_work
from solvers.parts import IMPOSSIBLE
from solvers.problem import Problem
from solvers.restrict import Restricted
from solvers.treesearch import TreeSearch

Integers = NDArray[np.int64]

# Steps of the first cycle of the dual; later ones are longer and start further down in step and temperature.
CYCLE, LATER = 600, 0.5
# Steps between posts, of which those in the later half of a cycle bring a choice.
POST = 20
# Temperatures tried in turn, as shares of a node's mean cost; batches of a walk; rounds before a program.
LADDER = (0.001, 0.01, 0.03, 0.1, 0.3)
BATCHES, ROUNDS = 4, 6
# A program's cheapest strategies per node, most columns, seconds and nodes; work of a column (deterministic runs).
NEAR, COLUMNS, SECONDS, NODES, COLUMN_WORK = (1, 2, 4, 8), 250_000, 20.0, 50, 2e5
# Most columns where no clock ends a program.
UNTIMED_COLUMNS = 40_000
# Decoded choices whose strategies a program gets; work of a batch, in passes.
DECODED, BATCH_PASSES = 12, 60


class DualWorker:
    """Cycles of the dual; what it has last found, for whoever asks."""

    def __init__(self, ledger: Ledger) -> None:
        self._dual, self._cycle, self._lock = Dual(ledger.problem), 0, threading.Lock()
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._forever)
        self.bound, self.prices = 0, dict[int, float]()
        self._choices: list[Integers] = []
        self._failure: BaseException | None = None
        self.threaded = False

    def start(self) -> None:
        """Run in a thread from now on."""
        self.threaded = True
        self._thread.start()

    def stop(self) -> None:
        """End the thread (within a step or two)."""
        self._stop.set()
        if self.threaded:
            self._thread.join(1.0)

    def cycle(self, stopped: Callable[[], bool]) -> int:
        """One cycle; returns the steps made."""
        dual, number = self._dual, self._cycle
        self._cycle += 1
        steps = CYCLE * (1 + number)
        if number == 0:
            dual.begin()
        else:
            dual.restart()
        for step in range(steps):
            if stopped():
                return step
            progress = step / steps if number == 0 else LATER + (1 - LATER) * step / steps + 0.1 * number
            dual.advance(progress)
            if step % POST == POST - 1:
                self._post(dual.decode() if step * 2 >= steps else None)
        return steps

    def take(self) -> list[Integers]:
        """The choices posted since the last time."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            choices, self._choices = self._choices, []
        return choices

    @property
    def work(self) -> float:
        """Of a step."""
        return self._dual.work

    def _post(self, choice: Integers | None) -> None:
        with self._lock:
            self.bound, self.prices = self._dual.bound, self._dual.prices
            if choice is not None:
                self._choices.append(choice)

    def _forever(self) -> None:
        try:
            while not self._stop.is_set():
                self.cycle(self._stop.is_set)
        except BaseException as failure:  # noqa: BLE001  (handed to the thread that waits)
            self._failure = failure


class Large:
    """One improvement of a ledger's choice and bound."""

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self._ledger, self._seed = ledger, seed
        self._worker = DualWorker(ledger)
        if ledger.choice is None:
            ledger.offer(frugal(ledger.problem))
        start = frugal(ledger.problem) if ledger.choice is None else ledger.choice
        self._search = TreeSearch(ledger.problem, start, seed, self._pause)
        self._decoded, self._fresh = list[Integers](), False
        self._start = start
        self._round = self._near = 0
        self._batch_work = BATCH_PASSES * pass_work(ledger.problem.layout)

    def run(self, processes: int) -> dict[int, float]:
        """Until the ledger is exhausted; the best prices."""
        ledger, worker = self._ledger, self._worker
        if processes > 1:
            ledger.stopped_by_clock()
            worker.start()
        try:
            while not ledger.exhausted:
                if not worker.threaded:
                    ledger.spend(worker.work * worker.cycle(lambda: ledger.exhausted))
                for _ in range(ROUNDS):
                    self._walk()
                    if ledger.exhausted:
                        break
                else:
                    self._program()
        finally:
            worker.stop()
        self._learn()
        return worker.prices

    def _pause(self) -> bool:
        """Between batches: tell what is new; time to stop?"""
        self._ledger.spend(self._batch_work)
        self._tell()
        return self._ledger.exhausted

    def _tell(self) -> None:
        choice = self._search.choice
        if choice is not None and (self._ledger.cost is None or (self._search.cost or 0) < self._ledger.cost):
            self._ledger.offer(choice)
        self._ledger.prove(self._worker.bound)

    def _learn(self) -> None:
        """Take over what the dual has found."""
        for choice in self._worker.take():
            self._search.offer(choice)
            self._fresh, self._decoded = True, [*self._decoded[1 - DECODED :], choice]
        self._tell()

    def _walk(self) -> None:
        """From the latest decoded choice if there is a new one, else from the best or one of the pool."""
        self._learn()
        search, turn = self._search, self._round
        search.price(self._worker.prices)
        if self._fresh:
            start, self._fresh = self._decoded[-1], False
        elif turn % 2 or not search.pool:
            start = self._start if search.choice is None else search.choice
        else:
            start = search.pool[turn // 2 % len(search.pool)]
        search.run(start, LADDER[turn % len(LADDER)], BATCHES)
        self._round += 1

    def _program(self) -> None:
        """The best choice among the strategies near to what is known; more of them each time this finds nothing."""
        ledger, search, before = self._ledger, self._search, self._search.cost
        if search.choice is None:
            return
        flags, best, moments, left = (
            search.near(NEAR[self._near], self._decoded),
            search.choice,
            search.moments,
            self._seconds(),
        )
        columns = _columns(ledger.problem, flags)
        if columns > (COLUMNS if left is not None else UNTIMED_COLUMNS):
            self._near = 0
            return

        narrow = Restricted.nothing(ledger.problem).narrowed(flags)
        unit, hint, gap = max((before or 1) / 1e6, 1e-6), narrow.lower(best), ledger.gap_asked / 2
        task = Task(narrow.problem, unit, hint, moments, left, NODES, gap, self._seed)
        found = ledger.beside(task, lambda: ledger.prove(self._worker.bound))
        ledger.spend(COLUMN_WORK * columns)
        if found is not None and found.choice is not None:
            search.offer(narrow.lift(found.choice))
        self._near = 0 if search.cost != before else (self._near + 1) % len(NEAR)
        self._tell()

    def _seconds(self) -> float | None:
        left = self._ledger.seconds_left
        return None if left is None else min(left, SECONDS)


def frugal(problem: Problem) -> Integers:
    """Each node's possible strategy of the least usage (bytes times moments), where nothing else is known."""
    layout = problem.layout
    sizes = np.diff(layout.node_start)[layout.span_node]
    strategy = np.arange(layout.span_usage.size) + np.repeat(
        layout.node_start[layout.span_node] - layout.span_at, sizes
    )
    lasting = np.repeat(layout.span_stop - layout.span_start, sizes).astype(np.float64)
    # Of nothing at all bincount makes integers.
    room = np.bincount(strategy, layout.span_usage * lasting, layout.cost.size).astype(np.float64)
    room[layout.cost >= IMPOSSIBLE] = np.inf
    node = np.repeat(np.arange(layout.node_start.size - 1), np.diff(layout.node_start))
    order = np.lexsort((layout.cost, room, node))
    least: Integers = order[layout.node_start[:-1]] - layout.node_start[:-1]
    return least


def _columns(problem: Problem, flags: NDArray[np.bool_]) -> int:
    """Of the program of these strategies, at most."""
    layout = problem.layout
    kept = np.add.reduceat(flags, layout.node_start[:-1], dtype=np.int64)
    return int(kept.sum() + (kept[layout.source] * kept[layout.target]).sum())


def improve(ledger: Ledger, seed: int = 0, processes: int = 2) -> dict[int, float]:
    """Improve the ledger's choice and bound until it is exhausted; the best prices found (cost units per byte).

    processes: 1 alternates by steps, so that a ledger without a clock gives the same answer every time.
    """
    return Large(ledger, seed).run(processes)
