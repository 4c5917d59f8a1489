"""The workflows of plans and sweeps, in DBOS: which of them waits, runs where, and is brought back when a host dies.

A workflow is written in the transaction that queues its plan (`enqueue`), and one is enough for a plan's generation,
whose numbers are its id. DBOS hands it to one process, whose function (`api.jobs.worker`) does the rest. DBOS keeps its
own tables in the same database: in the schema `dbos` of PostgreSQL, beside ours in SQLite.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, make_url, select, text
from sqlalchemy.exc import DatabaseError

from api.jobs.database import Database, format_error
from api.jobs.tables import JobKind, plans
from planner.errors import InvalidRequest

APPLICATION = "shardplan"
WORKFLOW_VERSION = "1"
"""Executors take workflows of their own version only; another number is for functions that take other arguments."""
QUEUES: dict[JobKind, str] = {"plan": "plans", "sweep": "sweeps"}
"""The queue of each kind, in which each tenant has a line of its own (a partition)."""
BATCH = 500
MAX_PRIORITY = (1 << 31) - 1
"""DBOS's; the place in the line begins again at the front after as many events."""
REPEAT_S, MAX_MESSAGES = 30.0, 100
"""How long a warning of DBOS is not logged again, and how many are remembered for it."""
UNFINISHED = "ENQUEUED", "PENDING"
_RUNNING = """SELECT workflow_uuid, queue_name, executor_id FROM {table}
    WHERE status = 'PENDING' AND application_name = :application"""


def name_workflow(number: int, generation: int) -> str:
    """Return the id of the workflow of a plan's generation."""
    return f"{number}-{generation}"


class Workflows:
    """Writes, cancels, brings back and deletes workflows; makes DBOS's tables where they are missing.

    Raises InvalidRequest where they cannot be made.
    """

    def __init__(self, store: Database) -> None:
        quieten_dbos()
        from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer  # half a second, which no other command pays

        self.store = store
        try:
            DBOS.migrate(store.url)
        except DatabaseError as error:
            where, got = str(make_url(store.url)), format_error(error)
            wanted = "a user who may create the schema dbos, or its tables made by `dbos migrate`"
            raise InvalidRequest("tables of DBOS cannot be made", where=where, got=got, wanted=wanted) from None
        self._client = DBOSClient(
            system_database_engine=store.engine.execution_options(writes=True),
            serializer=DBOSPortableJSONSerializer(),
            application_name=APPLICATION,
            lazy=True,
            retry_connection_errors=False,
        )

    def enqueue(
        self, connection: Connection, kind: JobKind, tenant: str, *, number: int, generation: int, place: int
    ) -> None:
        """Enqueue the workflow of a plan's generation, within the caller's transaction.

        Those of a tenant are taken in the order of `place`; the times by which DBOS would order them are whole seconds
        in SQLite.
        """
        self._client.enqueue_in_transaction(
            connection,
            {
                "queue_name": QUEUES[kind],
                "workflow_name": kind,
                "workflow_id": name_workflow(number, generation),
                "queue_partition_key": tenant,
                "app_version": WORKFLOW_VERSION,
                "priority": place % MAX_PRIORITY + 1,
            },
            number,
            generation,
        )

    def enqueue_missing(self) -> int:
        """Enqueue the workflows of unfinished plans that have none, as those that a service without DBOS queued, or one
        that has ended. Return how many.
        """
        columns = plans.c.number, plans.c.generation, plans.c.kind, plans.c.tenant
        with self.store.connect() as connection:
            rows = connection.execute(select(*columns).where(plans.c.state != "done").order_by(plans.c.number)).all()
        missing = 0
        for first in range(0, len(rows), BATCH):
            batch = {name_workflow(row.number, row.generation): row for row in rows[first : first + BATCH]}
            known = self._client.list_workflows(workflow_ids=list(batch), load_input=False, load_output=False)
            lacking = batch.keys() - {workflow.workflow_id for workflow in known if workflow.status in UNFINISHED}
            self.delete(lacking)
            with self.store.begin() as connection:
                for row in (row for workflow, row in batch.items() if workflow in lacking):
                    self.enqueue(
                        connection, row.kind, row.tenant, number=row.number, generation=row.generation, place=row.number
                    )
            missing += len(lacking)
        return missing

    def list_running(self) -> dict[str, tuple[str, str]]:
        """Return the queue and the executor of each workflow that an executor has taken.

        DBOS's table is read as its documentation describes it. Its client asks for the status by a parameter, for which
        SQLite uses no partial index, and would read all workflows that ever were.
        """
        with self.store.connect() as connection:
            table = "workflow_status" if self.store.is_sqlite else "dbos.workflow_status"
            rows = connection.execute(text(_RUNNING.format(table=table)), {"application": APPLICATION})
            return {row.workflow_uuid: (row.queue_name, row.executor_id) for row in rows}

    def bring_back(self, workflow: str, queue: str) -> None:
        """Put a workflow that was taken back into its place in the queue."""
        self._client.resume_workflow(workflow, queue_name=queue)

    def cancel(self, workflows: Sequence[str]) -> None:
        """Take workflows out of the queue."""
        if workflows:
            self._client.cancel_workflows(list(workflows))

    def delete(self, workflows: Iterable[str]) -> None:
        self._client.delete_workflows(list(workflows))

    def close(self) -> None:
        self._client.destroy()


class _RepeatFilter(logging.Filter):
    """Drops what was logged a short time ago: each poll of a database that is away is a warning."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if record.created - self._logged_at.get(message, 0.0) < REPEAT_S:
            return False
        self._logged_at.pop(message, None)
        self._logged_at[message] = record.created
        if len(self._logged_at) > MAX_MESSAGES:
            del self._logged_at[next(iter(self._logged_at))]
        return True


def quieten_dbos() -> None:
    """Have DBOS log as all else does, and warnings only. It would log to a handler of its own if it had none."""
    log = logging.getLogger("dbos")
    log.setLevel(logging.WARNING)
    if not log.handlers:
        log.addHandler(logging.NullHandler())
        log.addFilter(_RepeatFilter())
