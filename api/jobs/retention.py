"""Purges ended plans, lists the queue, and copies the database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import and_, delete, select

from api.jobs.database import Database
from api.jobs.tables import IS_CURRENT_RESULT, events, idempotency, outcomes, plans
from api.jobs.workflows import Workflows, name_workflow
from planner.errors import InvalidRequest

BATCH_PLANS = 500
"""Plans deleted per transaction, so that no writer waits long."""


def purge(workflows: Workflows, older_than_s: float) -> int:
    """Delete plans that ended longer ago, with their events, documents and workflows; return their number."""
    deleted = 0
    while count := _purge_batch(workflows, older_than_s):
        deleted += count
    return deleted


def _purge_batch(workflows: Workflows, older_than_s: float) -> int:
    store = workflows.store
    with store.begin() as connection:
        ended_before = store.now(connection) - older_than_s
        ended = and_(plans.c.state == "done", outcomes.c.ended_at < ended_before)
        query = (
            select(plans.c.number, plans.c.generation, plans.c.tenant, plans.c.id)
            .join(outcomes, IS_CURRENT_RESULT)
            .where(ended)
            .limit(BATCH_PLANS)
            .with_for_update(of=plans, skip_locked=True)
        )
        rows = connection.execute(query).all()
        numbers = [row.number for row in rows]
        for table in (events, outcomes, plans):
            connection.execute(delete(table).where(table.c.number.in_(numbers)))
        for row in rows:
            same_plan = and_(idempotency.c.tenant == row.tenant, idempotency.c.plan == row.id)
            connection.execute(delete(idempotency).where(same_plan))
    generations = ((row.number, generation) for row in rows for generation in range(1, row.generation + 1))
    workflows.delete(name_workflow(number, generation) for number, generation in generations)
    return len(rows)


def back_up(store: Database, file: Path) -> None:
    """Copy an SQLite database that is in use to a new file that only its owner can read. Raises InvalidRequest."""
    if store.engine.dialect.name != "sqlite":
        raise InvalidRequest("backup", got="a PostgreSQL database", wanted="pg_dump")
    try:
        file.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        raise InvalidRequest("backup", where=str(file), got=error.strerror, wanted="a new file") from None
    connection = store.engine.raw_connection()  # VACUUM cannot run within a transaction
    try:
        connection.cursor().execute("VACUUM INTO ?", (str(file),))
    finally:
        connection.close()


def list_queue(store: Database) -> list[dict[str, Any]]:
    """Return plans and sweeps that wait or are being done, in order, with the seconds since they were queued."""
    names = "kind", "id", "tenant", "name", "state", "attempts", "created_at"
    columns = [plans.c[name] for name in names]
    with store.connect() as connection:
        now = store.now(connection)
        rows = connection.execute(select(*columns).where(plans.c.state != "done").order_by(plans.c.number)).mappings()
        return [{**row, "waited_s": round(now - row["created_at"], 3)} for row in rows]
