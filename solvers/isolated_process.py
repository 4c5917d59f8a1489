"""Work in a process beside, which can be killed: HiGHS, GLOP and CP-SAT may not listen for minutes.

A process runs this module and takes one piece of work after another over a socket, pickled: a function of a
module with its arguments (functools.partial), so nothing of the parent's memory, threads or locks is in it, as there
would be after a fork. Loading takes half a second, so one whose work is done waits for more. It ends with its parent.
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

# Seconds between looks at whether the work is still wanted.
POLL_S = 0.1


class IsolatedProcess:
    """A process that waits for work."""

    def __init__(self) -> None:
        self._line, far = Pipe()
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        with far:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(far.fileno())],
                env={**os.environ, "PYTHONPATH": paths},
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def send_task(self, work: Callable[[], Any], cpu_seconds: float | None) -> None:
        """Begin; with a limit of processor seconds the process dies of taking more."""
        self._line.send((work, cpu_seconds))

    @property
    def has_result(self) -> bool:
        """Is there an answer, or will there never be one? Waits a little for it."""
        return self._line.poll(POLL_S)

    def receive_result(self) -> tuple[bool, Any]:
        """Whether it went well, and the result or what was raised; EOFError if the process has died."""
        told: tuple[bool, Any] = self._line.recv()
        return told

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        self._line.close()


_idle_processes: list[IsolatedProcess] = []
# A fork has the parent's lines, which are not its own.
os.register_at_fork(after_in_child=_idle_processes.clear)


@atexit.register
def stop_idle_processes() -> None:
    """End the processes that wait for work: their use of the machine then counts as that of this process's children."""
    while _idle_processes:
        _idle_processes.pop().kill()


def run_isolated(
    work: Callable[[], Result], unwanted: Callable[[], bool], cpu_seconds: float | None = None
) -> Result | None:
    """The result of work (picklable) done in a process beside; raises what it raises.

    None if unwanted() comes first or the process dies: of more than so many seconds of the processor, or for want of
    memory. Whichever it is, nothing of it runs on.
    """
    child = _idle_processes.pop() if _idle_processes else IsolatedProcess()
    try:
        child.send_task(work, cpu_seconds)
        while not child.has_result:
            if unwanted():
                child.kill()
                return None
        well, result = child.receive_result()
    except (EOFError, ConnectionError):
        child.kill()
        return None
    except BaseException:
        child.kill()
        raise
    _idle_processes.append(child)
    if not well:
        raise result
    done: Result = result
    return done


def _limit_cpu_time(seconds: float | None) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = hard if seconds is None else int(time.process_time() + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _serve(line: Connection) -> None:
    """Work, one piece after another, while a thread listens for the next or for the parent's end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    asked: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive_requests, args=(line, asked), daemon=True).start()
    while True:
        try:
            work, seconds = pickle.loads(asked.get())
            _limit_cpu_time(seconds)
            told = (True, work())
        except Exception as failure:  # noqa: BLE001  (raised again where it is awaited)
            told = (False, failure)
        line.send(told)


def _receive_requests(line: Connection, asked: SimpleQueue[bytes]) -> None:
    with suppress(EOFError, OSError):
        while True:
            asked.put(line.recv_bytes())
    os._exit(0)


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
