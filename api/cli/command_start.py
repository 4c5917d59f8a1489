"""When the command began: a time limit counts from there, so that it bounds imports and reading too."""

from __future__ import annotations

import time
from contextvars import ContextVar

from planner.planning.deadline import Deadline

_started_s: ContextVar[float | None] = ContextVar("command_start_s", default=None)


def note_command_start() -> None:
    """Note the present time as the start of the command."""
    _started_s.set(time.monotonic())


def command_start() -> float:
    """Return the time of the monotonic clock, in seconds, at which the command began."""
    started_s = _started_s.get()
    return time.monotonic() if started_s is None else started_s


def command_deadline(time_limit_s: float | None) -> Deadline:
    """Return when a command with this limit has to be done; None: no limit."""
    return Deadline(time_limit_s, command_start())
