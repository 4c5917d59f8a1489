"""The durable queue: each plan is leased to one worker at a time and completed once.

A worker renews its lease while it works; a lease that expires lets another worker claim the plan. Two workers may then
solve one plan, but a result is inserted only where there is none, so the first one stays. Cancelling inserts a result
too, and is decided by the same insert. All hosts use the database's clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    insert,
    or_,
    select,
    update,
)

from api.jobs.database import Database
from api.jobs.enqueue import PlanJob, append_event, enqueue
from api.jobs.group_commit import GroupCommit
from api.jobs.idempotency import find_first_plan, remember_first_plan
from api.jobs.next_plan import ANY_WAITS, LOCK_IN_TURN, LOCK_LOST
from api.jobs.queue_quota import QueueQuota
from api.jobs.tables import JobKind, outcomes, plans, workers
from api.settings import DAY_S
from api.webhooks.store import queue_deliveries

MAX_CHILD_DEATHS = 3
"""A plan whose child processes died this often is not tried again, because it is what kills them."""
MAX_ATTEMPTS = 12
"""Nor is a plan whose workers disappeared this often: they may have been stopped for other reasons, but not so often.
"""


@dataclass(frozen=True, slots=True)
class Lease:
    """A plan held by a worker; `waited_s` since it was queued."""

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


DEADLY = JobResult("failed", f"its child process was killed {MAX_CHILD_DEATHS} times")
LOST = JobResult("failed", f"its worker disappeared {MAX_ATTEMPTS} times")


class JobQueue:
    """The queue in a database; `on_submit` is called after a commit of new plans. Times are seconds since 1970."""

    def __init__(self, store: Database, lease_s: float, on_submit: Callable[[], None] = lambda: None) -> None:
        self.store, self.lease_s = store, lease_s
        self._group_commit, self._quota = GroupCommit(store, on_submit), QueueQuota()

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
            enqueue(connection, self.store, job, tenant=tenant, reserve=reserve)
            if key is not None:
                remember_first_plan(connection, tenant, key, body=body, plan=job.id)
            return job.id

        return self._group_commit.write(write)

    def submit_of_sweep(self, tenant: str, jobs: Sequence[PlanJob]) -> None:
        """Queue the plans of a sweep, unless they were queued before; return after the commit. Raises SweepEnded.

        They do not count to the tenant's limit: a sweep has as many at a time as its question allows.
        """

        def write(connection: Connection) -> None:
            for job in jobs:
                enqueue(connection, self.store, job, tenant=tenant, reserve=lambda: None)

        self._group_commit.write(write)

    def claim(self, kind: JobKind = "plan") -> Lease | None:
        """Lease the next plan or sweep (`api.jobs.next_plan`); None where none waits."""
        # Idle workers poll: while no plan waits, a read alone answers, and no worker takes the write lock.
        with self.store.connect() as connection:
            if not connection.execute(ANY_WAITS, {"kind": kind, **self._read_clock(connection)}).scalar():
                return None
        with self.store.begin() as connection:
            clock = self._read_clock(connection)
            now, parameters = clock["now"], {"kind": kind, **clock}
            row = (
                connection.execute(LOCK_LOST, parameters).first()
                or connection.execute(LOCK_IN_TURN, parameters).first()
            )
            if row is None:
                return None
            waited_s = now - row.created_at
            owner, trace = uuid4().hex, row.traceparent
            lease = Lease(row.number, row.generation, owner, row.id, row.tenant, row.request, waited_s, trace)
            failed = DEADLY if row.child_deaths >= MAX_CHILD_DEATHS else LOST if row.attempts >= MAX_ATTEMPTS else None
            if failed is not None:
                _complete(connection, now, lease.number, generation=lease.generation, outcome=failed)
                return None
            leased = {
                "state": "running",
                "lease_owner": lease.lease_owner,
                "lease_until": now + self.lease_s,
                "started_at": now,
            }
            # Counted before the work: a host that dies with its plan cannot count the attempt afterwards.
            connection.execute(_update_plan(lease).values(**leased, attempts=row.attempts + 1))
            append_event(connection, lease.number, "running", data={"status": "running"})
        return lease

    def _read_clock(self, connection: Connection) -> dict[str, float]:
        now = self.store.now(connection)
        # Twice a lease: another host's may have begun since the clock was read, and is not from before it was set back.
        return {"now": now, "latest": now + 2 * self.lease_s}

    def renew(self, lease: Lease) -> bool:
        """Extend a lease. Return False where it is lost or the plan has ended."""
        with self.store.begin() as connection:
            until = self.store.now(connection) + self.lease_s
            updated = connection.execute(_update_plan(lease).where(*_is_held_by(lease)).values(lease_until=until))
        return updated.rowcount == 1

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
            return _complete(
                connection, self.store.now(connection), lease.number, generation=lease.generation, outcome=outcome
            )

    def release(self, lease: Lease, has_died: bool = False) -> None:
        """Put a leased plan back into the queue; `has_died`: count the death of its child process."""
        unleased = {"state": "queued", "lease_owner": None, "lease_until": None}
        counts = {"child_deaths": plans.c.child_deaths + 1} if has_died else {"attempts": plans.c.attempts - 1}
        with self.store.begin() as connection:
            connection.execute(_update_plan(lease).where(*_is_held_by(lease)).values(**unleased, **counts))

    def cancel(self, tenant: str, plan: str) -> bool:
        """Cancel a plan. Return False where it has ended or does not exist."""
        with self.store.begin() as connection:
            unfinished = and_(plans.c.tenant == tenant, plans.c.id == plan, plans.c.state != "done")
            row = connection.execute(select(plans.c.number, plans.c.generation).where(unfinished)).first()
            if row is None:
                return False
            return _complete(
                connection,
                self.store.now(connection),
                row.number,
                generation=row.generation,
                outcome=JobResult("cancelled"),
            )

    def heartbeat(self, worker: str, host: str) -> None:
        """Record that a worker is alive, and delete workers that were silent for a day."""
        with self.store.begin() as connection:
            now = self.store.now(connection)
            # SQLAlchemy has no upsert that both databases understand; one transaction has both statements.
            connection.execute(delete(workers).where(or_(workers.c.id == worker, workers.c.seen_at < now - DAY_S)))
            connection.execute(insert(workers).values(id=worker, host=host, seen_at=now))

    def deregister(self, worker: str) -> None:
        with self.store.begin() as connection:
            connection.execute(delete(workers).where(workers.c.id == worker))


def _update_plan(lease: Lease) -> Any:
    return update(plans).where(plans.c.number == lease.number)


def _is_held_by(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    columns = plans.c
    return columns.number == lease.number, columns.lease_owner == lease.lease_owner, columns.state == "running"


def _complete(connection: Connection, now: float, number: int, *, generation: int, outcome: JobResult) -> bool:
    """Insert a result where there is none; the plan is locked, so no other result can come in between.

    What was requested for a sweep alone, and has not ended, is cancelled with it.
    """
    connection.execute(_LOCK_PLAN, {"number": number})
    existing = select(outcomes.c.number).where(outcomes.c.number == number, outcomes.c.generation == generation)
    if connection.execute(existing).first() is not None:
        return False
    values = {"status": outcome.status, "error": outcome.error, "document": outcome.document}
    connection.execute(insert(outcomes).values(number=number, generation=generation, ended_at=now, **values))
    ended: dict[str, Any] = {"state": "done", "lease_owner": None, "lease_until": None}
    if outcome.progress is not None:
        ended["progress"] = json.dumps(outcome.progress)
    connection.execute(update(plans).where(plans.c.number == number, plans.c.generation == generation).values(ended))
    error = {} if outcome.error is None else {"error": outcome.error}
    data = {"status": outcome.status, **(outcome.progress or {}), **error}
    append_event(connection, number, "done", data=data)
    queue_deliveries(connection, now, number, result=data)
    for plan in connection.execute(_UNFINISHED_OF_SWEEP, {"sweep": number}).all():
        _complete(connection, now, plan.number, generation=plan.generation, outcome=JobResult("cancelled"))
    return True


_LOCK_PLAN = select(plans.c.number).where(plans.c.number == bindparam("number")).with_for_update()
_UNFINISHED_OF_SWEEP = select(plans.c.number, plans.c.generation).where(
    plans.c.sweep == bindparam("sweep"), plans.c.state.in_(("queued", "running"))
)
