"""The queue: each plan is in the hands of one worker at a time, and completed once.

Who does which plan next is for DBOS to say (`api.jobs.workflows`). This says what was requested, who holds it, and how
it ended. A worker that begins a plan takes it over from one that had it before, which notices and stops. Two may then
solve one plan for a while, but a result is inserted only where there is none, so the first one stays. Cancelling
inserts a result too, and is decided by the same insert. All hosts use the database's clock.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, insert, or_, select, update

from api.jobs.database import UNAVAILABLE, Database
from api.jobs.enqueue import PlanJob, append_event, enqueue
from api.jobs.group_commit import GroupCommit
from api.jobs.idempotency import find_first_plan, remember_first_plan
from api.jobs.queue_quota import QueueQuota
from api.jobs.tables import is_recent, outcomes, plans, workers
from api.jobs.workflows import Workflows, name_workflow
from api.settings import DAY_S
from api.webhooks.store import queue_deliveries

log = logging.getLogger("shardplan.queue")

MAX_CHILD_DEATHS = 3
"""A plan whose child processes died this often is not tried again, because it is what kills them."""
MAX_ATTEMPTS = 12
"""Nor is a plan whose workers disappeared this often: they may have been stopped for other reasons, but not so often.
"""


@dataclass(frozen=True, slots=True)
class Lease:
    """A plan held by a worker; `lease_owner` is new with each lease, `waited_s` since it was queued."""

    number: int
    generation: int
    lease_owner: str
    id: str
    tenant: str
    request: bytes
    waited_s: float = 0.0
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a plan ended: its compressed document where there is one, else the error."""

    status: str
    error: str | None = None
    document: bytes | None = None
    progress: dict[str, Any] | None = None


class LeaseLost(BaseException):
    """Ends the work on a plan that another worker holds now, or is to do later.

    No Exception, because DBOS takes one for the end of the workflow.
    """


DEADLY = JobResult("failed", f"its child process was killed {MAX_CHILD_DEATHS} times")
LOST = JobResult("failed", f"its worker disappeared {MAX_ATTEMPTS} times")


class JobQueue:
    """The queue in a database. Times are seconds since 1970."""

    def __init__(self, store: Database) -> None:
        self.store, self.workflows = store, Workflows(store)
        self._group_commit, self._quota = GroupCommit(store), QueueQuota()

    def submit(self, tenant: str, job: PlanJob, max_queued: int, *, key: str | None = None, body: str = "") -> str:
        """Queue a plan, unless it was queued before; return its id after the commit.

        With an idempotency `key`, return the plan that the key was first used for. Raises IdempotencyConflict,
        QueueFull.
        """

        def write(connection: Connection) -> str:
            first_plan = None if key is None else find_first_plan(connection, tenant, key, body=body)
            if first_plan is not None:
                return first_plan
            reserve = partial(self._quota.reserve, connection, tenant, max_queued)
            enqueue(connection, self.workflows, [job], tenant=tenant, reserve=reserve)
            if key is not None:
                remember_first_plan(connection, tenant, key, body=body, plan=job.id)
            return job.id

        return self._group_commit.write(write)

    def submit_of_sweep(self, tenant: str, jobs: Sequence[PlanJob]) -> None:
        """Queue the plans of a sweep, unless they were queued before; return after the commit. Raises SweepEnded.

        They do not count to the tenant's limit: a sweep has as many at a time as its question allows.
        """

        def write(connection: Connection) -> None:
            enqueue(connection, self.workflows, jobs, tenant=tenant, reserve=lambda: None)

        self._group_commit.write(write)

    def begin(self, number: int, generation: int, previous: Lease | None = None) -> Lease | None:
        """Hold a plan from now on, or a sweep; None where it has ended, or may not be tried again.

        `previous` is the lease under which the caller tried it before. Raises LeaseLost where that was taken over.
        """
        with self.store.begin() as connection:
            row = connection.execute(_LOCK_PLAN, {"number": number}).first()
            if row is None or row.generation != generation or row.state == "done":
                return None
            if previous is not None and row.state == "running" and row.lease_owner != previous.lease_owner:
                raise LeaseLost
            now = self.store.now(connection)
            failed = DEADLY if row.child_deaths >= MAX_CHILD_DEATHS else LOST if row.attempts >= MAX_ATTEMPTS else None
            if failed is not None:
                _complete(connection, now, number, generation=generation, outcome=failed)
                return None
            waited_s = max(0.0, now - row.created_at)
            lease = Lease(
                number, generation, uuid4().hex, row.id, row.tenant, row.request, waited_s, traceparent=row.traceparent
            )
            # Counted before the work: a host that dies with its plan cannot count the attempt afterwards.
            leased = {"state": "running", "lease_owner": lease.lease_owner, "started_at": now}
            connection.execute(_update_plan(lease).values(**leased, attempts=row.attempts + 1))
            append_event(connection, number, "running", data={"status": "running"})
        return lease

    def is_held(self, lease: Lease) -> bool:
        """Return whether a lease still holds: neither lost nor cancelled."""
        with self.store.connect() as connection:
            return connection.execute(select(plans.c.number).where(*_is_held_by(lease))).first() is not None

    def save_progress(self, lease: Lease, progress: dict[str, Any], event: str = "incumbent") -> None:
        """Store incumbent, bound and gap of a plan that is being solved, or a sweep's frontier, with an event."""
        with self.store.begin() as connection:
            updated = connection.execute(
                _update_plan(lease).where(*_is_held_by(lease)).values(progress=json.dumps(progress))
            )
            if updated.rowcount == 1:
                append_event(connection, lease.number, event, data={"status": "running", **progress})

    def complete(self, lease: Lease, outcome: JobResult) -> bool:
        """Store a plan's result. Return False where it has one already; that one stays."""
        with self.store.begin() as connection:
            now = self.store.now(connection)
            unneeded = _complete(connection, now, lease.number, generation=lease.generation, outcome=outcome)
        self._cancel_workflows(unneeded)
        return unneeded is not None

    def release(self, lease: Lease, has_died: bool = False) -> None:
        """Put a plan back; `has_died`: count the death of its child process."""
        unleased = {"state": "queued", "lease_owner": None}
        counts = {"child_deaths": plans.c.child_deaths + 1} if has_died else {"attempts": plans.c.attempts - 1}
        with self.store.begin() as connection:
            connection.execute(_update_plan(lease).where(*_is_held_by(lease)).values(**unleased, **counts))

    def cancel(self, tenant: str, plan: str) -> bool:
        """Cancel a plan. Return False where it has ended or does not exist."""
        with self.store.begin() as connection:
            unfinished = and_(plans.c.tenant == tenant, plans.c.id == plan, plans.c.state != "done")
            columns = plans.c.number, plans.c.generation, plans.c.state
            row = connection.execute(select(*columns).where(unfinished).with_for_update()).first()
            if row is None:
                return False
            now, cancelled = self.store.now(connection), JobResult("cancelled")
            unneeded = _complete(connection, now, row.number, generation=row.generation, outcome=cancelled)
            if unneeded is not None and row.state == "queued":
                unneeded.append(name_workflow(row.number, row.generation))
        self._cancel_workflows(unneeded)
        return unneeded is not None

    def _cancel_workflows(self, workflows: Sequence[str] | None) -> None:
        """Take workflows that have nothing to do out of the queue. They would end by themselves when they are begun."""
        try:
            self.workflows.cancel(workflows or ())
        except UNAVAILABLE as error:
            log.warning("%d workflows of cancelled plans stay in the queue: %s", len(workflows or ()), error)

    def heartbeat(self, executor: str, host: str, slots: int) -> None:
        """Record that an executor of as many workers is alive, and delete those that were silent for a day."""
        with self.store.begin() as connection:
            now = self.store.now(connection)
            # SQLAlchemy has no upsert that both databases understand; one transaction has both statements.
            connection.execute(delete(workers).where(or_(workers.c.id == executor, workers.c.seen_at < now - DAY_S)))
            connection.execute(insert(workers).values(id=executor, host=host, seen_at=now, slots=slots))

    def deregister(self, executor: str) -> None:
        with self.store.begin() as connection:
            connection.execute(delete(workers).where(workers.c.id == executor))

    def list_alive(self, within_s: float) -> set[str]:
        """Return the executors that sent a heartbeat in the last seconds."""
        with self.store.connect() as connection:
            alive = select(workers.c.id).where(is_recent(self.store.now(connection), within_s))
            return set(connection.execute(alive).scalars())


def _update_plan(lease: Lease) -> Any:
    return update(plans).where(plans.c.number == lease.number)


def _is_held_by(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    columns = plans.c
    return columns.number == lease.number, columns.lease_owner == lease.lease_owner, columns.state == "running"


def _complete(
    connection: Connection, now: float, number: int, *, generation: int, outcome: JobResult
) -> list[str] | None:
    """Insert a result where there is none; the plan is locked, so no other result can come in between.

    What was requested for a sweep alone, and has not ended, is cancelled with it. Return the workflows that nobody has
    begun and nobody needs any more, or None where the plan has a result.
    """
    connection.execute(_LOCK_PLAN, {"number": number})
    existing = select(outcomes.c.number).where(outcomes.c.number == number, outcomes.c.generation == generation)
    if connection.execute(existing).first() is not None:
        return None
    values = {"status": outcome.status, "error": outcome.error, "document": outcome.document}
    connection.execute(insert(outcomes).values(number=number, generation=generation, ended_at=now, **values))
    ended: dict[str, Any] = {"state": "done", "lease_owner": None}
    if outcome.progress is not None:
        ended["progress"] = json.dumps(outcome.progress)
    connection.execute(update(plans).where(plans.c.number == number, plans.c.generation == generation).values(ended))
    error = {} if outcome.error is None else {"error": outcome.error}
    data = {"status": outcome.status, **(outcome.progress or {}), **error}
    append_event(connection, number, "done", data=data)
    queue_deliveries(connection, now, number, result=data)
    unneeded = []
    for plan in connection.execute(_UNFINISHED_OF_SWEEP, {"sweep": number}).all():
        _complete(connection, now, plan.number, generation=plan.generation, outcome=JobResult("cancelled"))
        if plan.state == "queued":
            unneeded.append(name_workflow(plan.number, plan.generation))
    return unneeded


_LOCK_PLAN = select(plans).where(plans.c.number == bindparam("number")).with_for_update()
_UNFINISHED_OF_SWEEP = select(plans.c.number, plans.c.generation, plans.c.state).where(
    plans.c.sweep == bindparam("sweep"), plans.c.state.in_(("queued", "running"))
)
