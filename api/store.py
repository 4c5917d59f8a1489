"""The database: every plan that was asked for, what is heard of it, and its one outcome.

A row of `plans` is one question of one tenant, by its content id; `run` counts how often it was asked anew after it
was cancelled or had failed. What has been acknowledged is committed, and a commit is on the disk (WAL, synchronous
FULL). Writers take turns (BEGIN IMMEDIATE), readers never wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    create_engine,
    event,
    text,
)
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DatabaseError, OperationalError

from planner.errors import InvalidRequest

SCHEMA = 1
BUSY_MS = 10_000

metadata = MetaData()

plans = Table(
    "plans",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("id", String(64), nullable=False),
    Column("name", String, nullable=False),
    Column("ask", LargeBinary, nullable=False),
    Column("run", Integer, nullable=False),
    Column("state", String, nullable=False),  # queued, running, done
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("holder", String),  # the claim of a worker, and until when it is believed
    Column("lease_until", Float),
    Column("attempts", Integer, nullable=False),
    Column("progress", String),
    UniqueConstraint("tenant", "id"),
    Index("plans_in_line", "state", "lease_until", "number"),
    sqlite_autoincrement=True,  # a number is never given twice, so that pages stay in order
)

outcomes = Table(
    "outcomes",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("run", Integer, primary_key=True),
    Column("status", String, nullable=False),  # optimal, feasible, infeasible, timeout, cancelled, failed
    Column("cause", String),
    Column("document", LargeBinary),
    Column("ended_at", Float, nullable=False),
    ForeignKeyConstraint(["number"], ["plans.number"]),
)

events = Table(
    "events",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("kind", String, nullable=False),
    Column("data", String, nullable=False),
    ForeignKeyConstraint(["number"], ["plans.number"]),
    Index("events_of", "number", "seq"),
    sqlite_autoincrement=True,
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("body", String(64), nullable=False),  # digest of what was sent with it
    Column("plan", String(64), nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("scope", String, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("revoked_at", Float),
)


class Store:
    """One database. `reading` and `writing` each give a connection in a transaction of its own."""

    def __init__(self, path: Path) -> None:
        self.engine = _engine(path)
        try:
            with self.writing() as connection:
                _migrate(connection, path)
        except DatabaseError as error:
            self.close()
            raise InvalidRequest("database cannot be used", where=str(path), got=error.orig) from None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self.engine.connect().execution_options(writes=True) as connection, connection.begin():
            yield connection

    def answers(self) -> bool:
        """Whether the database can be read now."""
        try:
            with self.reading() as connection:
                connection.execute(text("SELECT 1 FROM plans LIMIT 1"))
        except OperationalError:
            return False
        return True

    def close(self) -> None:
        self.engine.dispose()


def _engine(path: Path) -> Engine:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError as error:
        raise InvalidRequest("database cannot be opened", where=str(path), got=error.strerror) from None
    # The driver's own transactions begin too late to say IMMEDIATE.
    settings = {"timeout": BUSY_MS / 1000, "isolation_level": None, "check_same_thread": False}
    engine = create_engine(f"sqlite:///{path}", connect_args=settings, pool_size=16, max_overflow=48)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: Any, _record: object) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_MS}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _migrate(connection: Connection, path: Path) -> None:
    """Makes the tables; a file of another version is left alone."""
    version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    if version not in (0, SCHEMA):
        raise InvalidRequest("database of another version", where=str(path), got=version, wanted=SCHEMA)
    metadata.create_all(connection)
    connection.exec_driver_sql(f"PRAGMA user_version={SCHEMA}")
