"""Work in another process: answers and errors come back, and no process outlives its use."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from solvers import evaluate, solve
from solvers.isolated_process import IsolatedProcess, WorkerFailed, WorkerStopped, run_isolated, stop_idle_processes
from solvers.mip import RestrictedMip
from solvers.solve_state import SolveState
from tests.testing.random_problems import grid

HOUR = 3600.0
# Far more than any of these takes, far less than the work would.
CEILING = 30.0


def _after(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_answer_comes_back_and_the_next_comes_from_the_same_process() -> None:
    first, again = (run_isolated(os.getpid, lambda: False) for _ in range(2))
    assert first == again != os.getpid()
    assert run_isolated(partial(max, 3, 4), lambda: False) == 4


def test_a_failing_task_is_reported_and_harms_no_other() -> None:
    process = run_isolated(os.getpid, lambda: False)
    with pytest.raises(ValueError, match="invalid literal"):
        run_isolated(partial(int, "broken"), lambda: False)
    assert run_isolated(os.getpid, lambda: False) == process


def test_a_task_that_is_no_longer_needed_is_killed() -> None:
    process = run_isolated(os.getpid, lambda: False)
    assert process is not None
    with pytest.raises(WorkerStopped):
        run_isolated(partial(time.sleep, HOUR), _after(0.2))
    assert not _runs(process)


def test_a_task_that_exceeds_its_cpu_limit_is_stopped() -> None:
    with pytest.raises(WorkerStopped):
        run_isolated(partial(sum, range(10**12)), lambda: False, cpu_seconds=1.0)
    assert run_isolated(partial(max, 3, 4), lambda: False) == 4


# What a task does, and what is told of it. Only the kernel's signal for CPU seconds that were asked for is no failure.
FAILED: list[tuple[Callable[[], object], str]] = [
    (partial(os._exit, 3), "_exit: the worker process died, exit code 3"),
    (partial(os.abort), "abort: the worker process died, killed by SIGABRT"),
    (partial(signal.raise_signal, signal.SIGKILL), "raise_signal: the worker process died, killed by SIGKILL"),
    (partial(signal.raise_signal, signal.SIGXCPU), "raise_signal: the worker process died, killed by SIGXCPU"),
    (partial(import_module, "no_such_module"), "import_module: ModuleNotFoundError in the worker process: No module"),
    (partial(bytes, 1 << 60), "bytes: MemoryError in the worker process"),
]


@pytest.mark.parametrize(("task", "message"), FAILED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_task_that_fails_through_no_fault_of_its_own_says_what_became_of_it(
    task: Callable[[], object], message: str
) -> None:
    with pytest.raises(WorkerFailed, match=message):
        run_isolated(task, lambda: False)
    assert run_isolated(partial(max, 3, 4), lambda: False) == 4


def test_an_idle_process_that_was_killed_is_replaced() -> None:
    process = run_isolated(os.getpid, lambda: False)
    os.kill(process, signal.SIGKILL)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    assert run_isolated(os.getpid, lambda: False) != process


def test_a_worker_that_fails_is_recorded_and_ends_nothing() -> None:
    for deterministic in (False, True):
        state = SolveState(LONG(), 0.0, 60.0, deterministic, None, None)
        assert state.run_in_worker(partial(os._exit, 3)) is None
        assert state.failures == ["_exit: the worker process died, exit code 3"]
        assert (state.stop_reason, state.is_exhausted, state.reproducible) == ("", False, False)


def test_a_task_without_a_result_ends_nothing() -> None:
    state = SolveState(LONG(), 0.0, 60.0, True, None, None)
    assert state.run_in_worker(partial(print, end="")) is None
    assert (state.failures, state.stop_reason, state.reproducible) == ([], "", True)


def test_a_worker_killed_in_the_middle_of_a_solve_costs_time_alone_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send_task, killing = IsolatedProcess.send_task, list[threading.Timer]()

    def send_and_kill(worker: IsolatedProcess, work: Callable[[], Any], cpu_seconds: float | None) -> None:
        if not killing:
            os.kill(worker._process.pid, signal.SIGSTOP)
            killing.append(threading.Timer(1.0, os.kill, (worker._process.pid, signal.SIGKILL)))
            killing[0].start()
        send_task(worker, work, cpu_seconds)

    monkeypatch.setattr(IsolatedProcess, "send_task", send_and_kill)
    solution = solve(grid(7, 8, seed=1), time_limit=8.0)
    killing[0].join()
    assert solution.failures == ("RestrictedMip: the worker process died, killed by SIGKILL",)
    assert solution.assignment is not None


def test_a_worker_that_dies_before_it_has_its_task_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    send_task = IsolatedProcess.send_task

    def kill_and_send(worker: IsolatedProcess, work: Callable[[], Any], cpu_seconds: float | None) -> None:
        os.kill(worker._process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, worker._process.pid, os.WEXITED | os.WNOWAIT)
        send_task(worker, work, cpu_seconds)

    state = SolveState(LONG(), 0.0, 60.0, False, None, None)
    with monkeypatch.context() as patched:
        patched.setattr(IsolatedProcess, "send_task", kill_and_send)
        assert state.run_in_worker(partial(max, 3, 4)) is None
    assert state.failures == ["max: the worker process died, killed by SIGKILL"]
    assert state.run_in_worker(partial(max, 3, 4)) == 4


def test_a_task_that_cannot_be_sent_harms_no_other() -> None:
    with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
        run_isolated(lambda: 3, lambda: False)
    assert run_isolated(partial(max, 3, 4), lambda: False) == 4


def _kill_workers(ended: threading.Event) -> None:
    """Kill every worker process of this one again and again."""
    tasks = Path(f"/proc/{os.getpid()}/task")
    while not ended.wait(0.5):
        for child in [pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()]:
            with suppress(OSError):
                if b"solvers.isolated_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(int(child), signal.SIGKILL)


def test_a_solve_whose_workers_are_all_killed_still_proves_what_it_says() -> None:
    problem, ended = grid(7, 8, seed=1), threading.Event()
    killing = threading.Thread(target=_kill_workers, args=(ended,))
    killing.start()
    disturbed = solve(problem, time_limit=6.0)
    ended.set()
    killing.join()
    quiet = solve(problem, time_limit=6.0)
    assert disturbed.failures
    assert all(failure.endswith("the worker process died, killed by SIGKILL") for failure in disturbed.failures)
    assert disturbed.assignment is not None
    assert quiet.cost is not None
    assert evaluate(problem, disturbed.assignment).cost == disturbed.cost
    assert disturbed.bound <= quiet.cost
    assert disturbed.wall_s < 6.0 + CEILING


def test_closed_processes_end() -> None:
    process = run_isolated(os.getpid, lambda: False)
    stop_idle_processes()
    assert process is not None
    assert not _runs(process)


def _abandon(told: multiprocessing.Queue[int]) -> None:
    told.put(run_isolated(os.getpid, lambda: False) or 0)
    run_isolated(partial(time.sleep, HOUR), lambda: os._exit(0))


def test_a_process_ends_with_its_parent_even_in_the_middle_of_work() -> None:
    spawned = multiprocessing.get_context("spawn")
    told = spawned.Queue()
    parent = spawned.Process(target=_abandon, args=(told,))
    parent.start()
    process = told.get(timeout=CEILING)
    parent.join()
    late = _after(CEILING)
    while _runs(process) and not late():
        time.sleep(0.05)
    assert not _runs(process)


# A program that HiGHS does not finish in minutes, nor looks up from.
LONG = partial(grid, 14, 10, seed=1)


def test_a_program_that_would_run_for_minutes_is_cancelled_within_its_bound() -> None:
    problem = LONG()
    ledger = SolveState(problem, 0.0, None, False, None, _after(1.0))
    began = time.monotonic()
    found = ledger.run_in_worker(RestrictedMip(problem, 1.0, None, [], None, None, 0.0, 0))
    assert found is None
    assert (ledger.stop_reason, ledger.reproducible) == ("cancelled", False)
    assert time.monotonic() - began < CEILING


def test_without_a_clock_a_program_is_limited_by_work() -> None:
    problem = LONG()
    ledger = SolveState(problem, 0.0, 2.0, True, None, None)
    assert ledger.run_in_worker(RestrictedMip(problem, 1.0, None, [], None, None, 0.0, 0)) is None
    assert (ledger.stop_reason, ledger.reproducible) == ("work limit", False)
