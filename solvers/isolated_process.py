"""Worker processes that can be killed: HiGHS, GLOP and CP-SAT may ignore interrupts and time limits for minutes.

A worker is a fresh interpreter that runs this module and receives pickled tasks over a pipe, one after another: a
module-level function with its arguments (functools.partial). Unlike a fork it shares no memory, threads or locks with
its parent. Starting one takes about half a second, so idle workers are kept for the next task. Workers end with their
parent.
"""

from __future__ import annotations

import atexit
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")
Meanwhile = Callable[[Callable[[], bool]], bool]
"""What to do for a while in the time in which a worker is busy. It is given a function that says whether the result is
there, and returns whether that is still wanted."""

# Seconds between checks whether the result is still wanted.
POLL_S = 0.1
# Most seconds that a dying process takes from closing its pipe to its end.
DEATH_S = 5.0


class WorkerFailed(Exception):
    """A task that failed for no fault of its own: its process died, or lacked memory or a module, or a solver refused
    it. The message says which."""


class WorkerStopped(Exception):
    """A task that was killed because its result was not wanted any more or it exceeded its CPU seconds."""


class IsolatedProcess:
    """A worker process and the pipe to it."""

    def __init__(self) -> None:
        self._pipe, child_end = Pipe()
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        with child_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(child_end.fileno())],
                env={**os.environ, "PYTHONPATH": paths},
                pass_fds=[child_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def send_task(self, work: Callable[[], Any], cpu_seconds: float | None) -> None:
        """Send a task. The process is killed by the kernel when it uses more than `cpu_seconds` (None: no limit)."""
        self._pipe.send((work, cpu_seconds))

    def has_result(self, wait: float = 0.0) -> bool:
        """Return whether a result has arrived or the process has died, after waiting up to `wait` seconds for it."""
        return self._pipe.poll(wait)

    def receive_result(self) -> tuple[bool, Any]:
        """Return (True, result) or (False, exception). Raises EOFError if the process has died."""
        reply: tuple[bool, Any] = self._pipe.recv()
        return reply

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def kill(self) -> int:
        """Kill the process and close the pipe; return its exit code, that of its own death if it was dead already."""
        self._process.kill()
        self._pipe.close()
        return self._process.wait()

    def wait_for_death(self) -> int:
        """Return the exit code of a process that has closed its pipe, and so is about to end."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(DEATH_S)
        return self.kill()


_idle_processes: list[IsolatedProcess] = []
# A forked child inherits the parent's pipes and must not use them.
os.register_at_fork(after_in_child=_idle_processes.clear)


@atexit.register
def stop_idle_processes() -> None:
    """Kill the idle workers. Their CPU time and memory then count in RUSAGE_CHILDREN."""
    while _idle_processes:
        _idle_processes.pop().kill()


class RunningTask(Generic[Result]):
    """A task in a worker process, from its start until its result has arrived or it is killed.

    poll() has to be called for the result to be taken in. Whoever starts a task kills it in the end.
    """

    def __init__(
        self,
        work: Callable[[], Result],
        cpu_seconds: float | None = None,
        on_result: Callable[[Result], None] = lambda _: None,
    ) -> None:
        """Start `work` (picklable). cpu_seconds: as in IsolatedProcess.send_task. on_result: called with the result by
        the call of poll() that takes it in."""
        self._name, self._cpu_seconds, self._on_result = _name_task(work), cpu_seconds, on_result
        self._reply: tuple[bool, Any] | None = None
        self._child: IsolatedProcess | None = _take_process()
        try:
            self._child.send_task(work, cpu_seconds)
        except ConnectionError:
            pass  # The process has just died, which poll() says.
        except BaseException:
            self.kill()
            raise

    def poll(self, wait: float = 0.0) -> bool:
        """Return whether the task has ended, after waiting up to `wait` seconds for it."""
        if self._child is not None and self._child.has_result(wait):
            self._reply, self._child = self._receive(self._child), None
            if self._reply[0]:
                self._on_result(self._reply[1])
        return self._child is None

    def _receive(self, child: IsolatedProcess) -> tuple[bool, Any]:
        """Return (True, the task's result), or (False, what is to be raised)."""
        try:
            succeeded, result = child.receive_result()
        except (EOFError, ConnectionError):
            code = child.wait_for_death()
            if self._cpu_seconds is not None and code == -signal.SIGXCPU:
                return False, WorkerStopped()
            return False, WorkerFailed(f"{self._name}: the worker process died, {_describe_exit(code)}")
        _idle_processes.append(child)
        if isinstance(result, ImportError | MemoryError):
            return False, WorkerFailed(f"{self._name}: {type(result).__name__} in the worker process: {result}")
        return succeeded, result

    def result(self) -> Result:
        """Return the result of a task that has ended. An exception in the task is raised here again: WorkerStopped
        where it exceeded its CPU seconds, and WorkerFailed where its process died otherwise, or lacked memory or a
        module."""
        if self._reply is None:
            raise WorkerStopped
        succeeded, result = self._reply
        if not succeeded:
            raise result
        value: Result = result
        return value

    def kill(self) -> None:
        """Kill the process of a task that has not ended: nothing keeps running."""
        if self._child is not None:
            self._child.kill()
            self._child = None


def run_isolated(work: Callable[[], Result], unwanted: Callable[[], bool], cpu_seconds: float | None = None) -> Result:
    """Run `work` in a worker process and return its result, or raise what RunningTask.result() does: WorkerStopped also
    where it is not wanted any more."""
    task = RunningTask(work, cpu_seconds)
    try:
        while not task.poll(POLL_S) and not unwanted():
            pass
    finally:
        task.kill()
    return task.result()


def _take_process() -> IsolatedProcess:
    """Return an idle worker that is alive (the system may have killed some), or a new one."""
    while _idle_processes:
        child = _idle_processes.pop()
        if child.is_alive:
            return child
        child.kill()
    return IsolatedProcess()


def _name_task(work: Callable[[], Any]) -> str:
    """Return the name of the function, or of the class of the callable."""
    function = work.func if isinstance(work, partial) else work
    return getattr(function, "__name__", type(function).__name__)


def _describe_exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def _limit_cpu_time(seconds: float | None) -> None:
    """Let the kernel kill this process after `seconds` more CPU seconds; None lifts the limit of an earlier task."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = hard if seconds is None else int(time.process_time() + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _serve(pipe: Connection) -> None:
    """Run tasks one after another, while a thread receives the next one and notices when the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive_requests, args=(pipe, requests), daemon=True).start()
    while True:
        try:
            work, seconds = pickle.loads(requests.get())
            _limit_cpu_time(seconds)
            reply = (True, work())
        except Exception as failure:  # noqa: BLE001  (raised again in the parent)
            reply = (False, failure)
        pipe.send(reply)


def _receive_requests(pipe: Connection, requests: SimpleQueue[bytes]) -> None:
    """Queue requests until the parent closes the pipe, then end the process at once, in the middle of any task."""
    with suppress(EOFError, OSError):
        while True:
            requests.put(pipe.recv_bytes())
    os._exit(0)


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
