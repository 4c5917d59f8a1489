"""Brings a database to the tables of `api/jobs/tables.py`, by the steps in `versions/`, each in the one order.

A database that knows a step which is not here was made by a newer service, and is left alone.
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

_ALONE = threading.Lock()
"""Alembic keeps what it is at in globals of its modules."""


def migrate(connection: Connection) -> None:
    """Takes the steps that are missing, within the connection's transaction. Raises InvalidRequest for a newer
    database."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and found not in known:
        raise InvalidRequest("database of another version", got=found, wanted=" or ".join(sorted(known)))
    config.attributes["connection"] = connection
    with _ALONE:
        command.upgrade(config, "head")
