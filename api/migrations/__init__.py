"""Brings a database to the tables of `api/jobs/tables.py` by the migrations in `versions/`.

A database with an unknown migration was written by a newer service and is left unchanged.
"""

from __future__ import annotations

import threading
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from planner.errors import InvalidRequest

_FOLDER = Path(__file__).parent
REVISIONS = sorted(file.name.split("_")[0] for file in (_FOLDER / "versions").glob("[0-9]*.py"))
"""In order; a migration's file is named after its revision."""
_ALEMBIC_LOCK = threading.Lock()
"""Alembic keeps its state in module globals, so one migration runs at a time."""


def is_current(connection: Connection) -> bool:
    """Return whether a database has the last revision."""
    return _read_revision(connection) == REVISIONS[-1]


def migrate(connection: Connection, to: str = REVISIONS[-1]) -> None:
    """Run the missing migrations up to a revision, by default the last one, in the connection's transaction.

    Raises InvalidRequest for a newer database.
    """
    revision = _read_revision(connection)
    if revision is not None and revision not in REVISIONS:
        raise InvalidRequest("database of another version", got=revision, wanted=" or ".join(REVISIONS))
    if revision == to:
        return
    from alembic import command  # a tenth of a second, which a process that starts again does not pay
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    with _ALEMBIC_LOCK:
        command.upgrade(config, to)


def _read_revision(connection: Connection) -> str | None:
    """Return the revision that alembic has noted in a database, or None for a new one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision
