"""Group commit: what comes to be written while a transaction is under way is written by the next one, all of it.

A commit costs a wait for the disk, whatever is in it. Whoever comes first writes for all who wait by then, and hands
the turn to the first who came later; nobody's word is given before the commit that holds it. (DeWitt et al.,
Implementation techniques for main memory database systems, 1984.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from api.jobs.database import Database

Result = TypeVar("Result")


class WriteRejected(Exception):
    """What a piece of writing raises where it is not to be done, before it has written anything."""


class _PendingWrite:
    """Somebody's writing, and what came of it; `told` when that is known, or when it is theirs to write for all."""

    def __init__(self, write: Callable[[Connection], Any]) -> None:
        self.write, self.ready = write, threading.Event()
        self.result: Any = None
        self.error: Exception | None = None
        self.is_done = False


class GroupCommit:
    """Writes to a store in the transactions of whoever is first."""

    def __init__(self, store: Database) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._waiting: list[_PendingWrite] = []
        self._is_led = False

    def write(self, write: Callable[[Connection], Result]) -> Result:
        """What `write` gives, committed by now. Raises what it raises, and the database's errors."""
        mine = _PendingWrite(write)
        with self._lock:
            self._waiting.append(mine)
            leads, self._is_led = not self._is_led, True
        if not leads:
            mine.ready.wait()
        if not mine.is_done:
            self._lead()
        if mine.error is not None:
            raise mine.error
        result: Result = mine.result
        return result

    def _lead(self) -> None:
        with self._lock:
            pieces, self._waiting = self._waiting, []
        self._commit(pieces)
        for piece in pieces:
            piece.is_done = True
            piece.ready.set()
        with self._lock:
            self._is_led = bool(self._waiting)
            if self._waiting:
                self._waiting[0].ready.set()

    def _commit(self, pieces: list[_PendingWrite]) -> None:
        """All pieces in one transaction; where one of them spoils it, each in its own."""
        try:
            with self.store.begin() as connection:
                for piece in pieces:
                    try:
                        piece.result = piece.write(connection)
                    except WriteRejected as refused:
                        piece.error = refused
        except Exception as error:  # noqa: BLE001 - raised again, to whoever asked for it
            if len(pieces) == 1 or isinstance(error, OperationalError):
                for piece in pieces:
                    piece.error = error
                return
            for piece in pieces:
                piece.error = None
                self._commit([piece])
