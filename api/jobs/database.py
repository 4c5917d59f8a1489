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

LOCK_TIMEOUT_MS = 10_000
"""How long a writer waits for its turn."""
ADVISORY_LOCK_ID = 0x5_4A2D
"""The advisory lock's number: ours, whatever else is in that database."""
IDLE_TRANSACTION_MS = 60_000
"""A host of PostgreSQL's that hangs within a transaction holds up the others no longer."""


class Database:
    """One database. `writing` gives a connection in a transaction of its own; `reading` one for statements each of
    which sees what is committed by then."""

    def __init__(self, url: str) -> None:
        address = make_url(url)
        self._write_lock, self._closed = threading.Lock(), threading.Event()
        self.engine = _create_sqlite(address) if address.get_backend_name() == "sqlite" else _create_postgresql(address)
        event.listen(self.engine, "checkin", self._invalidate_returned)
        try:
            with self.begin() as connection:
                migrate(connection)
        except DatabaseError as error:
            self.close()
            raise InvalidRequest("database cannot be used", where=str(address), got=_format_error(error)) from None
        except InvalidRequest as error:
            self.close()
            raise InvalidRequest(error.what, where=str(address), got=error.got, wanted=error.wanted) from None

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            yield connection

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        if not self._write_lock.acquire(timeout=LOCK_TIMEOUT_MS / 1000):
            raise OperationalError("BEGIN", None, TimeoutError(f"no turn to write within {LOCK_TIMEOUT_MS} ms"))
        try:
            with self.engine.connect().execution_options(writes=True) as connection, connection.begin():
                yield connection
        finally:
            self._write_lock.release()

    def now(self, connection: Connection) -> float:
        """Seconds since 1970 by the one clock that all hosts share: the database's."""
        if self.is_sqlite:
            return time.time()
        return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    def is_reachable(self) -> bool:
        """Whether the database can be read now."""
        try:
            with self.connect() as connection:
                connection.execute(text("SELECT 1 FROM plans LIMIT 1"))
        except DatabaseError:
            return False
        return True

    def close(self) -> None:
        """Whoever still reads or writes ends in peace."""
        self._closed.set()
        self.engine.dispose()

    def _invalidate_returned(self, _connection: object, record: ConnectionPoolEntry) -> None:
        """The pool that a connection was lent from forgets it when it is disposed of."""
        if self._closed.is_set():
            record.invalidate()


def _create_sqlite(address: URL) -> Engine:
    path = Path(address.database or "")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError as error:
        raise InvalidRequest("database cannot be opened", where=str(path), got=error.strerror) from None
    # The driver's own transactions begin too late to say IMMEDIATE.
    settings = {"timeout": LOCK_TIMEOUT_MS / 1000, "isolation_level": None, "check_same_thread": False}
    engine = create_engine(address, connect_args=settings, pool_size=16, max_overflow=48)
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "begin", lambda connection: _begin_write(connection, "BEGIN IMMEDIATE"))
    return engine


def _create_postgresql(address: URL) -> Engine:
    limits = {
        "lock_timeout": LOCK_TIMEOUT_MS,
        "statement_timeout": 3 * LOCK_TIMEOUT_MS,
        "idle_in_transaction_session_timeout": IDLE_TRANSACTION_MS,
    }
    options = " ".join(f"-c {name}={milliseconds}" for name, milliseconds in limits.items())
    settings = {"connect_timeout": max(2, LOCK_TIMEOUT_MS // 1000), "options": options}
    driver = address.set(drivername="postgresql+psycopg")
    engine = create_engine(driver, connect_args=settings, pool_size=8, max_overflow=16, pool_pre_ping=True)
    event.listen(
        engine,
        "begin",
        lambda connection: _begin_write(connection, f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK_ID})"),
    )
    return engine


def _set_pragmas(connection: Any, _record: object) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={LOCK_TIMEOUT_MS}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_write(connection: Connection, words: str) -> None:
    if connection.get_execution_options().get("writes"):
        connection.exec_driver_sql(words)


def _format_error(error: DatabaseError) -> str:
    return " ".join(str(error.orig).split())
