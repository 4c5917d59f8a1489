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
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")

# Seconds between checks whether the result is still wanted.
POLL_S = 0.1


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

    @property
    def has_result(self) -> bool:
        """Whether a result has arrived or the process has died; waits up to POLL_S seconds for it."""
        return self._pipe.poll(POLL_S)

    def receive_result(self) -> tuple[bool, Any]:
        """Return (True, result) or (False, exception). Raises EOFError if the process has died."""
        reply: tuple[bool, Any] = self._pipe.recv()
        return reply

    def kill(self) -> None:
        """Kill the process and close the pipe."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()


_idle_processes: list[IsolatedProcess] = []
# A forked child inherits the parent's pipes and must not use them.
os.register_at_fork(after_in_child=_idle_processes.clear)


@atexit.register
def stop_idle_processes() -> None:
    """Kill the idle workers. Their CPU time and memory then count in RUSAGE_CHILDREN."""
    while _idle_processes:
        _idle_processes.pop().kill()


def run_isolated(
    work: Callable[[], Result], unwanted: Callable[[], bool], cpu_seconds: float | None = None
) -> Result | None:
    """Run `work` (picklable) in a worker process and return its result; exceptions are raised here again.

    Returns None where unwanted() becomes true first or the process dies, for example of exceeding cpu_seconds or of
    lack of memory. In every case nothing keeps running.
    """
    child = _idle_processes.pop() if _idle_processes else IsolatedProcess()
    try:
        child.send_task(work, cpu_seconds)
        while not child.has_result:
            if unwanted():
                child.kill()
                return None
        succeeded, result = child.receive_result()
    except (EOFError, ConnectionError):
        child.kill()
        return None
    except BaseException:
        child.kill()
        raise
    _idle_processes.append(child)
    if not succeeded:
        raise result
    value: Result = result
    return value


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
