"""Takes plans from the queue as an executor does, without one."""

from __future__ import annotations

from sqlalchemy import select, text

from api.jobs.queue import JobQueue, Lease
from api.jobs.tables import plans


def begin_next(jobs: JobQueue) -> Lease | None:
    """Begin the first plan that is queued; None where none is, or where it may not be tried again."""
    first = (
        select(plans.c.number, plans.c.generation).where(plans.c.state == "queued").order_by(plans.c.number).limit(1)
    )
    with jobs.store.connect() as connection:
        row = connection.execute(first).first()
    return None if row is None else jobs.begin(row.number, row.generation)


def begin_again(jobs: JobQueue, lease: Lease) -> Lease:
    """Begin a plan that another worker holds, as who brings it back does."""
    taken_over = jobs.begin(lease.number, lease.generation)
    assert taken_over is not None
    return taken_over


def list_workflows(jobs: JobQueue) -> dict[str, str]:
    """Return the status of every workflow that DBOS has, by its id."""
    table = "workflow_status" if jobs.store.is_sqlite else "dbos.workflow_status"
    with jobs.store.connect() as connection:
        rows = connection.execute(text(f"SELECT workflow_uuid, status FROM {table}"))
        return {row.workflow_uuid: row.status for row in rows}
