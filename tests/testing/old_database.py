"""Databases as an older service left them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, create_engine

from api.migrations import migrate


@contextmanager
def old_database(url: str, revision: str) -> Iterator[Connection]:
    """Make a new database with the tables of a revision, and yield a connection that writes to it."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        migrate(connection, revision)
        yield connection
    engine.dispose()
