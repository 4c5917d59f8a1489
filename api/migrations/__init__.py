"""Brings a database to the tables of `api/jobs/tables.py` by the migrations in `versions/`.

A database with an unknown migration was written by a newer service and is left unchanged.
"""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from planner.errors import InvalidRequest

_ALEMBIC_LOCK = threading.Lock()
"""Alembic keeps its state in module globals, so one migration runs at a time."""


def migrate(connection: Connection, to: str = "head") -> None:
    """Run the missing migrations up to a revision, by default the last one, in the connection's transaction.

    Raises InvalidRequest for a newer database.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    revisions = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is not None and revision not in revisions:
        raise InvalidRequest("database of another version", got=revision, wanted=" or ".join(sorted(revisions)))
    config.attributes["connection"] = connection
    with _ALEMBIC_LOCK:
        command.upgrade(config, to)
