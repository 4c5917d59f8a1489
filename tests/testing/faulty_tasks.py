"""Tasks that fail in every way a task can fail, run in a real child process under real limits.

The plan's name selects the failure.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from api.jobs.child_link import ParentLink
from api.jobs.child_main import serve_tasks


def exhaust() -> None:
    held = []
    while True:
        held.append(bytearray(1 << 26))


def spin() -> None:
    while True:
        pass


def fault() -> None:
    ctypes.string_at(0)


def nothing_but_noise() -> None:
    os.write(1, b"a library that prints to standard output\n")
    raise KeyError("lost")


def outlive_the_nursery() -> None:
    nursery = os.getppid()
    start_a_child()
    while os.getppid() == nursery:
        time.sleep(0.05)


def shown() -> dict[str, object]:
    """Return the environment that a child process started with."""
    held = [os.fstat(each).st_mode for each in range(64) if os.path.exists(f"/proc/self/fd/{each}")]
    return {
        "leads": os.getpid() == os.getpgid(0),
        "nice": os.nice(0),
        "cpu_s": resource.getrlimit(resource.RLIMIT_CPU)[0],
        "pipes": sum(map(stat.S_ISFIFO, held)),
        "sockets": sum(map(stat.S_ISSOCK, held)),
    }


def start_a_child() -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def leave_a_child() -> None:
    start_a_child()
    time.sleep(600)


WAYS: dict[str, Callable[[], object]] = {
    "exhaust": exhaust,
    "abort": os.abort,
    "fault": fault,
    "spin": spin,
    "hang": lambda: time.sleep(600),
    "exit": lambda: os._exit(3),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "noise": nothing_but_noise,
    "family": leave_a_child,
    "orphan": outlive_the_nursery,
    "show": shown,
}


def run_faulty_task(ask: Any, _parent: ParentLink) -> tuple[dict[str, Any], Any]:
    progress = {"incumbent_s": 1.0, "bound_s": 1.0, "gap": 0.0}
    return {"status": "optimal", "progress": progress}, WAYS[ask["graph"]["name"]]()


if __name__ == "__main__":
    serve_tasks({"plan": run_faulty_task})
