"""Opens the database that a command works on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from api.cli.options import requires_extra
from api.settings import database_url

with requires_extra("service", "the service"):
    from api.jobs.database import Database


@contextmanager
def open_database(database: str | None) -> Iterator[Database]:
    """Open a database, and close it at the end of the block."""
    store = Database(database_url(database))
    try:
        yield store
    finally:
        store.close()
