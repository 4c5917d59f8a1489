"""Group commit: writes that arrive during a transaction are committed together by the next one.

A commit waits for the disk, whatever its size. The first writer commits for all who wait by then, and hands over to the
first who came later; no writer returns before the commit that contains its write. (DeWitt et al., Implementation
techniques for main memory database systems, 1984.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection

from api.jobs.database import UNAVAILABLE, Database, is_conflict

Result = TypeVar("Result")
MAX_RETRIES = 5
"""How often a write in conflict with others is done again; alone, it conflicts only by another's group."""


class WriteRejected(Exception):
    """Raised by a write that must not happen, before it has written anything."""


class _PendingWrite:
    """A write and its result; `ready` is set when the result is known, or when this writer becomes the leader."""

    def __init__(self, write: Callable[[Connection], Any]) -> None:
        self.write, self.ready = write, threading.Event()
        self.result: Any = None
        self.error: Exception | None = None
        self.is_done = False


class GroupCommit:
    """Commits the writes of many threads to a database in shared transactions."""

    def __init__(self, store: Database) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._waiting: list[_PendingWrite] = []
        self._is_led = False

    def write(self, write: Callable[[Connection], Result]) -> Result:
        """Return what `write` returns, after it is committed. Raises what it raises, and the database's errors."""
        pending = _PendingWrite(write)
        with self._lock:
            self._waiting.append(pending)
            leads, self._is_led = not self._is_led, True
        if not leads:
            pending.ready.wait()
        if not pending.is_done:  # no leader was at work, or the last one handed over
            self._lead()
        if pending.error is not None:
            raise pending.error
        result: Result = pending.result
        return result

    def _lead(self) -> None:
        with self._lock:
            writes, self._waiting = self._waiting, []
        self._commit(writes)
        for write in writes:
            write.is_done = True
            write.ready.set()
        # Under the lock: a writer that arrives now either is in the list, or sees that nobody leads.
        with self._lock:
            self._is_led = bool(self._waiting)
            if self._waiting:
                self._waiting[0].ready.set()

    def _commit(self, writes: list[_PendingWrite], retries: int = MAX_RETRIES) -> None:
        """Commit all writes in one transaction; where one of them breaks it, or it is in conflict with another
        process's, each in a transaction of its own.
        """
        try:
            with self.store.begin() as connection:
                for write in writes:
                    try:
                        write.result = write.write(connection)
                    except WriteRejected as rejection:
                        write.error = rejection
        except Exception as error:  # noqa: BLE001 - raised again in the thread that called write()
            if is_conflict(error) and retries:
                self._commit_singly(writes, retries - 1)
                return
            # A database that is locked or gone would make every single write wait again.
            if len(writes) == 1 or isinstance(error, UNAVAILABLE):
                for write in writes:
                    write.error = error
                return
            self._commit_singly(writes, retries)

    def _commit_singly(self, writes: list[_PendingWrite], retries: int) -> None:
        for write in writes:
            write.error = None
            self._commit([write], retries)
