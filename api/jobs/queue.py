"""The durable queue: plans in line, each held by one worker at a time under a lease, each ended once.

A claim is a name that no other has, believed until its lease ends; a worker renews it while it works, and whoever
finds it run out takes the plan anew. Two workers may so come to work on one plan, but its outcome is inserted only
where none is yet: the first stays. Cancelling is an outcome like the others, and so is decided by the same insert.
All hosts that share the store go by the store's clock.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    union_all,
    update,
)

from api.jobs.database import Database
from api.jobs.group_commit import GroupCommit, WriteRejected
from api.jobs.tables import events, idempotency, outcomes, plans, workers
from api.settings import DAY_S
from api.webhooks.store import queue_deliveries

MAX_ATTEMPTS = 3
"""A plan at which workers or their child processes died so often is not tried again: it may be what they die of."""
COUNT_TTL_S = 1.0
"""How long a count of a line is believed."""
RETRYABLE = ("timeout", "cancelled", "failed")
"""Outcomes after which the same question may be asked anew."""


class IdempotencyConflict(WriteRejected):
    """An idempotency key came with another body than the first time."""


class QueueFull(WriteRejected):
    """A tenant has as many plans waiting as it may."""


@dataclass(frozen=True, slots=True)
class PlanJob:
    """What shall be planned: its content id, the graph's name, and the ask, packed for the child process."""

    id: str
    name: str
    ask: bytes


@dataclass(frozen=True, slots=True)
class Lease:
    """A plan in the hands of a worker; `waited_s` since it was asked for."""

    number: int
    run: int
    holder: str
    id: str
    ask: bytes
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a plan ended: its document (packed) where there is one, else the error."""

    status: str
    error: str | None = None
    document: bytes | None = None
    progress: dict[str, Any] | None = None


POISONED = JobResult("failed", f"its worker or process was killed {MAX_ATTEMPTS} times")


class JobQueue:
    """The queue in a store. Times are seconds since 1970."""

    def __init__(self, store: Database, lease_s: float) -> None:
        self.store, self.lease_s = store, lease_s
        self._group_commit, self._quota = GroupCommit(store), _QueueQuota()

    def submit(self, tenant: str, question: PlanJob, most: int, *, key: str | None = None, body: str = "") -> str:
        """The id of the plan, which is committed by now: in line, unless it was asked before.

        With an idempotency `key`, the plan that it came with first. Raises KeyReused, LineFull.
        """

        def write(connection: Connection) -> str:
            earlier = None if key is None else _find_idempotent(connection, tenant, key, body=body)
            if earlier is not None:
                return earlier
            self._enqueue(connection, tenant, question, most=most)
            if key is not None:
                kept = {"tenant": tenant, "key": key, "body": body, "plan": question.id}
                connection.execute(insert(idempotency), kept)
            return question.id

        return self._group_commit.write(write)

    def _enqueue(self, connection: Connection, tenant: str, question: PlanJob, *, most: int) -> None:
        """Into the line, where the plan is new or its last run came to nothing."""
        row = connection.execute(_LAST_RUN, {"tenant": tenant, "plan": question.id}).first()
        if row is not None and row.status not in RETRYABLE:
            return
        self._quota.reserve(connection, tenant, most)
        now = self.store.now(connection)
        fresh = {"state": "queued", "created_at": now, "attempts": 0, "progress": None, "started_at": None}
        if row is None:
            values = {"tenant": tenant, "id": question.id, "name": question.name, "ask": question.ask, "run": 1}
            number = connection.execute(_INSERT_PLAN, {**values, **fresh}).scalar_one()
        else:
            number = row.number
            connection.execute(update(plans).where(plans.c.number == number).values(run=row.run + 1, **fresh))
        _append_event(connection, number, "queued", data={"status": "queued"})

    def claim(self) -> Lease | None:
        """The plan that waits longest, taken; None where none waits."""
        with self.store.connect() as connection:
            if connection.execute(_NEXT_NUMBER, {"now": self.store.now(connection)}).scalar() is None:
                return None
        with self.store.begin() as connection:
            now = self.store.now(connection)
            row = connection.execute(_NEXT_PLAN, {"now": now}).first()
            if row is None:
                return None
            claim = Lease(row.number, row.run, uuid4().hex, row.id, row.ask, now - row.created_at)
            if row.attempts >= MAX_ATTEMPTS:
                _complete(connection, now, claim.number, run=claim.run, outcome=POISONED)
                return None
            taken = {"state": "running", "holder": claim.holder, "lease_until": now + self.lease_s, "started_at": now}
            connection.execute(_update_plan(claim).values(**taken, attempts=row.attempts + 1))
            _append_event(connection, claim.number, "running", data={"status": "running"})
        return claim

    def renew(self, claim: Lease) -> bool:
        """Holds a claim for another lease; False where it is lost, or the plan has ended."""
        with self.store.begin() as connection:
            until = self.store.now(connection) + self.lease_s
            kept = connection.execute(_update_plan(claim).where(*_is_held_by(claim)).values(lease_until=until))
        return kept.rowcount == 1

    def is_held(self, claim: Lease) -> bool:
        """Whether a claim still stands: not lost, not cancelled."""
        with self.store.connect() as connection:
            return connection.execute(select(plans.c.number).where(*_is_held_by(claim))).first() is not None

    def save_progress(self, claim: Lease, progress: dict[str, Any]) -> None:
        """Incumbent, bound and gap while it is solved."""
        with self.store.begin() as connection:
            told = connection.execute(
                _update_plan(claim).where(*_is_held_by(claim)).values(progress=json.dumps(progress))
            )
            if told.rowcount == 1:
                _append_event(connection, claim.number, "incumbent", data={"status": "running", **progress})

    def complete(self, claim: Lease, outcome: JobResult) -> bool:
        """Ends a plan, unless it has an outcome: then False, and that one stays."""
        with self.store.begin() as connection:
            return _complete(connection, self.store.now(connection), claim.number, run=claim.run, outcome=outcome)

    def release(self, claim: Lease, counted: bool = True) -> None:
        """Puts a plan back in line, where the claim still stands; `counted` as an attempt that came to nothing."""
        freed = {"state": "queued", "holder": None, "lease_until": None}
        attempts = plans.c.attempts if counted else plans.c.attempts - 1
        with self.store.begin() as connection:
            connection.execute(_update_plan(claim).where(*_is_held_by(claim)).values(**freed, attempts=attempts))

    def cancel(self, tenant: str, plan: str) -> bool:
        """Ends a plan as cancelled; False where it has ended already, or there is none."""
        with self.store.begin() as connection:
            mine = and_(plans.c.tenant == tenant, plans.c.id == plan, plans.c.state != "done")
            row = connection.execute(select(plans.c.number, plans.c.run).where(mine)).first()
            if row is None:
                return False
            return _complete(
                connection, self.store.now(connection), row.number, run=row.run, outcome=JobResult("cancelled")
            )

    def heartbeat(self, worker: str, host: str) -> None:
        """A worker is there; what was not seen for a day is forgotten."""
        with self.store.begin() as connection:
            now = self.store.now(connection)
            connection.execute(delete(workers).where(or_(workers.c.id == worker, workers.c.seen_at < now - DAY_S)))
            connection.execute(insert(workers).values(id=worker, host=host, seen_at=now))

    def deregister(self, worker: str) -> None:
        with self.store.begin() as connection:
            connection.execute(delete(workers).where(workers.c.id == worker))


class _QueueQuota:
    """How many plans of a tenant wait at most: counted at least once a second and before anybody is refused, and
    meanwhile what was let in here is added. Servers beside this one may let in their own of that second."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, float]] = {}

    def reserve(self, connection: Connection, tenant: str, most: int) -> None:
        """One more, in the writers' turn. Raises LineFull."""
        count, counted_at = self._known.get(tenant, (most, 0.0))
        if count >= most or time.monotonic() - counted_at > COUNT_TTL_S:
            count, counted_at = connection.execute(_QUEUED_COUNT, {"tenant": tenant}).scalar_one(), time.monotonic()
        if count >= most:
            raise QueueFull
        self._known[tenant] = count + 1, counted_at


def _update_plan(claim: Lease) -> Any:
    return update(plans).where(plans.c.number == claim.number)


def _is_held_by(claim: Lease) -> tuple[ColumnElement[bool], ...]:
    columns = plans.c
    return columns.number == claim.number, columns.holder == claim.holder, columns.state == "running"


def _find_idempotent(connection: Connection, tenant: str, key: str, *, body: str) -> str | None:
    mine = and_(idempotency.c.tenant == tenant, idempotency.c.key == key)
    row = connection.execute(select(idempotency).where(mine)).first()
    if row is None:
        return None
    if row.body != body:
        raise IdempotencyConflict(key)
    return str(row.plan)


def _complete(connection: Connection, now: float, number: int, *, run: int, outcome: JobResult) -> bool:
    """Inserts an outcome where there is none; writers take turns, so that none comes between."""
    earlier = select(outcomes.c.number).where(outcomes.c.number == number, outcomes.c.run == run)
    if connection.execute(earlier).first() is not None:
        return False
    values = {"status": outcome.status, "error": outcome.error, "document": outcome.document}
    connection.execute(insert(outcomes).values(number=number, run=run, ended_at=now, **values))
    ended: dict[str, Any] = {"state": "done", "holder": None, "lease_until": None}
    if outcome.progress is not None:
        ended["progress"] = json.dumps(outcome.progress)
    connection.execute(update(plans).where(plans.c.number == number, plans.c.run == run).values(ended))
    error = {} if outcome.error is None else {"error": outcome.error}
    told = {"status": outcome.status, **(outcome.progress or {}), **error}
    _append_event(connection, number, "done", data=told)
    queue_deliveries(connection, now, number, told=told)
    return True


def _append_event(connection: Connection, number: int, kind: str, *, data: dict[str, Any]) -> None:
    connection.execute(_INSERT_EVENT, {"number": number, "kind": kind, "data": json.dumps(data)})


def _first_where(*free: ColumnElement[bool]) -> Select[Any]:
    chosen = select(plans.c.number).where(*free).order_by(plans.c.number).limit(1).subquery()
    return select(chosen.c.number)


_CLAIMABLE = union_all(  # each found by the index, however long the line
    _first_where(plans.c.state == "queued", plans.c.lease_until.is_(None)),
    _first_where(plans.c.state == "running", plans.c.lease_until < bindparam("now")),
).subquery()
_NEXT_NUMBER = select(func.min(_CLAIMABLE.c.number))
"""Of the plan that waits longest."""
_NEXT_PLAN = select(plans).where(plans.c.number == _NEXT_NUMBER.scalar_subquery())
_LAST_RUN = (
    select(plans.c.number, plans.c.run, outcomes.c.status)
    .select_from(plans.outerjoin(outcomes, and_(outcomes.c.number == plans.c.number, outcomes.c.run == plans.c.run)))
    .where(plans.c.tenant == bindparam("tenant"), plans.c.id == bindparam("plan"))
)
_QUEUED_COUNT = (
    select(func.count()).select_from(plans).where(plans.c.tenant == bindparam("tenant"), plans.c.state == "queued")
)
_INSERT_PLAN = insert(plans).returning(plans.c.number)
_INSERT_EVENT = insert(events)
