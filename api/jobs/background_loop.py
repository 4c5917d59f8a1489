"""A thread that repeats a step until it is stopped, whatever the step raises.

A step that fails is logged and repeated after a pause, so that no error of a database, a file or a child process ends
the work of a process that goes on living. The probes of servers and workers ask `is_alive` and `error`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy.exc import DBAPIError

log = logging.getLogger("shardplan.loop")

AFTER_ERROR_S = 1.0


class BackgroundLoop:
    """Repeats `step`, which returns the seconds to wait before it is called again.

    `finish` is called once in the same thread after the last step; what it raises is logged.
    """

    def __init__(self, name: str, step: Callable[[], float], finish: Callable[[], None] = lambda: None) -> None:
        self.name, self.error = name, ""
        self._step, self._finish = step, finish
        self._stopping, self._woken = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Call the next step without waiting."""
        self._woken.set()

    def stop(self) -> None:
        """Let the step that is running be the last; `join` waits for its end."""
        self._stopping.set()
        self._woken.set()

    def join(self) -> None:
        self._thread.join()

    def pause(self) -> bool:
        """Wait as after an error, within a step. Return whether the loop was stopped."""
        return self._stopping.wait(AFTER_ERROR_S)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def is_alive(self) -> bool:
        """Return whether the thread is there to call the next step, or was told to stop."""
        return self.is_stopping or self._thread.is_alive()

    def _run(self) -> None:
        while not self.is_stopping:
            if not self._attempt(self._step_and_wait):
                self.pause()
        self._attempt(self._finish)

    def _step_and_wait(self) -> None:
        seconds = self._step()
        self.error = ""
        if seconds:
            self._woken.wait(seconds)
            self._woken.clear()

    def _attempt(self, work: Callable[[], None]) -> bool:
        """Return whether the work was done. What it raises is logged and kept in `error`."""
        try:
            work()
        except DBAPIError as error:
            self.error = f"database: {error.orig}"
            log.warning("%s: %s", self.name, self.error)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
            log.exception("%s: a step failed", self.name)
        else:
            return True
        return False
