"""Work that goes wrong in every way work can, done in a real child process under its real limits.

The plan's name says how.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from api.work import Report, serve


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


def leave_a_child() -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
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
}


def work(ask: Any, _report: Report) -> tuple[dict[str, Any], Any]:
    WAYS[ask["graph"]["name"]]()
    return {"status": "optimal", "incumbent": 1.0, "bound": 1.0, "gap": 0.0}, {}


if __name__ == "__main__":
    serve({"plan": work})
