"""The database: an SQLite file, or PostgreSQL where several hosts share it.

Every acknowledged write is committed and on disk (SQLite: WAL, synchronous FULL), and readers never wait for writers.
SQLite has one writer at a time (BEGIN IMMEDIATE). It makes waiting writers poll with growing pauses, so threads of one
process wait for a lock instead. PostgreSQL has many: a writer first locks the rows that it decides about, so that what
it has read of them stays true until it commits (SELECT ... FOR UPDATE, which SQLite needs not and SQLAlchemy leaves out
there). Who comes too late is ended by an error that `is_conflict` tells, and writes again.

Statements that every request runs are built once at import, because building one takes longer than running it.
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
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry

from api.migrations import is_current, migrate
from planner.errors import InvalidRequest

UNAVAILABLE = (OperationalError, InternalError, InterfaceError, PoolTimeout)
"""What a database raises that cannot be used now: gone, locked, read-only, or out of connections."""
LOCK_TIMEOUT_MS = 10_000
"""How long a writer waits for the write lock."""
ADVISORY_LOCK_ID = 0x5_4A2D
"""The advisory lock's number; it is this service's own in a shared database."""
IDLE_TRANSACTION_MS = 60_000
"""PostgreSQL ends a transaction that is idle for this long, so that a hung host does not block the others."""


class Database:
    """One database.

    `begin` gives a connection within a write transaction, and `begin_alone` within one that runs beside no other of its
    kind; `connect` gives one whose statements each see the latest committed state. Raises InvalidRequest where the
    database cannot be used.
    """

    def __init__(self, url: str) -> None:
        address, self.url = make_url(url), url
        self._write_lock, self._closed = threading.Lock(), threading.Event()
        self.engine = _create_sqlite(address) if address.get_backend_name() == "sqlite" else _create_postgresql(address)
        event.listen(self.engine, "checkin", self._invalidate_returned)
        try:
            self._migrate()
        except DatabaseError as error:
            self.close()
            raise InvalidRequest("database cannot be used", where=str(address), got=format_error(error)) from None
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
        with self._turn(), self.engine.connect().execution_options(writes=True) as connection, connection.begin():
            yield connection

    @contextmanager
    def begin_alone(self) -> Iterator[Connection]:
        with self.begin() as connection:
            if not self.is_sqlite:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK_ID})"))
            yield connection

    def _migrate(self) -> None:
        with self.connect() as connection:
            if is_current(connection):  # a process that starts again waits for no writer
                return
        with self.begin_alone() as connection:
            migrate(connection)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until no other thread of this process writes to an SQLite database."""
        if not self.is_sqlite:
            yield
            return
        if not self._write_lock.acquire(timeout=LOCK_TIMEOUT_MS / 1000):
            raise OperationalError("BEGIN", None, TimeoutError(f"write lock not acquired within {LOCK_TIMEOUT_MS} ms"))
        try:
            yield
        finally:
            self._write_lock.release()

    def now(self, connection: Connection) -> float:
        """Return seconds since 1970 by the clock that all hosts share: the database's."""
        if self.is_sqlite:
            return time.time()
        return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    def is_reachable(self) -> bool:
        """Return whether the database can be read now."""
        try:
            with self.connect() as connection:
                connection.execute(text("SELECT 1 FROM plans LIMIT 1"))
        except DatabaseError:
            return False
        return True

    def close(self) -> None:
        """Close the database. Connections in use are closed when they are returned."""
        self._closed.set()
        self.engine.dispose()

    def _invalidate_returned(self, _connection: object, record: ConnectionPoolEntry) -> None:
        """Close a connection that is returned after `close()`; the pool keeps it otherwise."""
        if self._closed.is_set():
            record.invalidate()


def _create_sqlite(address: URL) -> Engine:
    path = Path(address.database or "")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError as error:
        raise InvalidRequest("database cannot be opened", where=str(path), got=error.strerror) from None
    # isolation_level None: the driver would begin transactions by itself, and never IMMEDIATE.
    # hide_parameters: no request is shown where an error is logged.
    settings = {"timeout": LOCK_TIMEOUT_MS / 1000, "isolation_level": None, "check_same_thread": False}
    engine = create_engine(address, connect_args=settings, pool_size=16, max_overflow=48, hide_parameters=True)
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "begin", _begin_immediately)
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
    pool = {"pool_size": 8, "max_overflow": 16, "pool_pre_ping": True}
    return create_engine(driver, connect_args=settings, hide_parameters=True, **pool)


def _set_pragmas(connection: Any, _record: object) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={LOCK_TIMEOUT_MS}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_immediately(connection: Connection) -> None:
    if connection.get_execution_options().get("writes"):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def is_conflict(error: Exception) -> bool:
    """Return whether PostgreSQL ended a transaction because of another at the same time: by a deadlock, or because both
    inserted the same row.
    """
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in ("40P01", "23505")


def format_error(error: DatabaseError) -> str:
    return " ".join(str(error.orig).split())
