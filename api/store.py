"""The database: SQLite in a file, or PostgreSQL once one host is outgrown.

What has been acknowledged is committed, and a commit is on the disk (SQLite: WAL, synchronous FULL). Writers take
turns, readers never wait for them: SQLite by BEGIN IMMEDIATE, PostgreSQL by an advisory lock that lasts as long as the
transaction. So numbers rise in the order of commits, and what a writer has looked up stays true until it commits.

SQLite lets those who wait for the turn look again after ever longer pauses; threads of one process wait for a lock
instead. Statements that every request runs are made once, at import, with parameters: to make one takes longer than to
run it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, create_engine, event, make_url, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from api.migrations import migrate
from planner.errors import InvalidRequest

BUSY_MS = 10_000
"""How long a writer waits for its turn."""
TURN = 0x5_4A2D
"""The advisory lock's number: ours, whatever else is in that database."""
HUNG_MS = 60_000
"""A host of PostgreSQL's that hangs within a transaction holds up the others no longer."""


class Store:
    """One database. `writing` gives a connection in a transaction of its own; `reading` one for statements each of
    which sees what is committed by then."""

    def __init__(self, url: str) -> None:
        address = make_url(url)
        self._turn, self._closed = threading.Lock(), threading.Event()
        self.engine = _sqlite(address) if address.get_backend_name() == "sqlite" else _postgresql(address)
        event.listen(self.engine, "checkin", self._returned)
        try:
            with self.writing() as connection:
                migrate(connection)
        except DatabaseError as error:
            self.close()
            raise InvalidRequest("database cannot be used", where=str(address), got=_told(error)) from None
        except InvalidRequest as error:
            self.close()
            raise InvalidRequest(error.what, where=str(address), got=error.got, wanted=error.wanted) from None

    @property
    def is_file(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        if not self._turn.acquire(timeout=BUSY_MS / 1000):
            raise OperationalError("BEGIN", None, TimeoutError(f"no turn to write within {BUSY_MS} ms"))
        try:
            with self.engine.connect().execution_options(writes=True) as connection, connection.begin():
                yield connection
        finally:
            self._turn.release()

    def now(self, connection: Connection) -> float:
        """Seconds since 1970 by the one clock that all hosts share: the database's."""
        if self.is_file:
            return time.time()
        return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    def answers(self) -> bool:
        """Whether the database can be read now."""
        try:
            with self.reading() as connection:
                connection.execute(text("SELECT 1 FROM plans LIMIT 1"))
        except DatabaseError:
            return False
        return True

    def close(self) -> None:
        """Whoever still reads or writes ends in peace."""
        self._closed.set()
        self.engine.dispose()

    def _returned(self, _connection: object, record: ConnectionPoolEntry) -> None:
        """The pool that a connection was lent from forgets it when it is disposed of."""
        if self._closed.is_set():
            record.invalidate()


def _sqlite(address: URL) -> Engine:
    path = Path(address.database or "")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError as error:
        raise InvalidRequest("database cannot be opened", where=str(path), got=error.strerror) from None
    # The driver's own transactions begin too late to say IMMEDIATE.
    settings = {"timeout": BUSY_MS / 1000, "isolation_level": None, "check_same_thread": False}
    engine = create_engine(address, connect_args=settings, pool_size=16, max_overflow=48)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", lambda connection: _begin(connection, "BEGIN IMMEDIATE"))
    return engine


def _postgresql(address: URL) -> Engine:
    limits = {"lock_timeout": BUSY_MS, "statement_timeout": 3 * BUSY_MS, "idle_in_transaction_session_timeout": HUNG_MS}
    options = " ".join(f"-c {name}={milliseconds}" for name, milliseconds in limits.items())
    settings = {"connect_timeout": max(2, BUSY_MS // 1000), "options": options}
    driver = address.set(drivername="postgresql+psycopg")
    engine = create_engine(driver, connect_args=settings, pool_size=8, max_overflow=16, pool_pre_ping=True)
    event.listen(engine, "begin", lambda connection: _begin(connection, f"SELECT pg_advisory_xact_lock({TURN})"))
    return engine


def _prepare(connection: Any, _record: object) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_MS}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection, words: str) -> None:
    if connection.get_execution_options().get("writes"):
        connection.exec_driver_sql(words)


def _told(error: DatabaseError) -> str:
    return " ".join(str(error.orig).split())
