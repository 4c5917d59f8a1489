"""Waiting for a solver that does not listen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

Result = TypeVar("Result")

# Seconds between looks at whether it is still wanted.
WAIT = 0.1


def awaited(work: Callable[[], Result], exhausted: Callable[[], bool]) -> Result | None:
    """The result of work done in a thread, None if exhausted() comes first: a program does not listen, and must not
    hold up a cancelled search. It ends at its own limit; no daemon, which the interpreter's end would abort."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as failure:  # noqa: BLE001  (raised again where it is awaited)
            future.set_exception(failure)

    threading.Thread(target=run).start()
    while not wait([future], WAIT).done and not exhausted():
        pass
    return future.result() if future.done() else None
