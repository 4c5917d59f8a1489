"""The durable queue: plans in line, each held by one worker at a time under a lease, each ended once.

A claim is a name that no other has, believed until its lease ends; a worker renews it while it works, and whoever
finds it run out takes the plan anew. Two workers may so come to work on one plan, but its outcome is inserted only
where none is yet: the first stays. Cancelling is an outcome like the others, and so is decided by the same insert.
All hosts that share the store go by the store's clock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, func, insert, or_, select, update

from api.hooks.register import notify
from api.settings import DAY_S
from api.store import Store
from api.tables import events, idempotency, outcomes, plans, workers

ATTEMPTS = 3
"""A plan at which workers or their child processes died so often is not tried again: it may be what they die of."""
AGAIN = ("timeout", "cancelled", "failed")
"""Outcomes after which the same question may be asked anew."""


class KeyReused(Exception):
    """An idempotency key came with another body than the first time."""


class LineFull(Exception):
    """A tenant has as many plans waiting as it may."""


@dataclass(frozen=True, slots=True)
class Question:
    """What shall be planned: its content id, the graph's name, and the ask, packed for the child process."""

    id: str
    name: str
    ask: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """A plan in the hands of a worker; `waited_s` since it was asked for."""

    number: int
    run: int
    holder: str
    id: str
    ask: bytes
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a plan ended: its document (packed) where there is one, else the cause."""

    status: str
    cause: str | None = None
    document: bytes | None = None
    progress: dict[str, Any] | None = None


DEADLY = Outcome("failed", f"its worker or process was killed {ATTEMPTS} times")


class Jobs:
    """The queue in a store. Times are seconds since 1970."""

    def __init__(self, store: Store, lease_s: float) -> None:
        self.store, self.lease_s = store, lease_s

    def submit(self, tenant: str, question: Question, most: int, key: str | None = None, body: str = "") -> str:
        """The id of the plan, which is committed by now: in line, unless it was asked before.

        With an idempotency `key`, the plan that it came with first. Raises KeyReused, LineFull.
        """
        with self.store.writing() as connection:
            if key is not None:
                earlier = _earlier(connection, tenant, key, body)
                if earlier is not None:
                    return earlier
                values = {"tenant": tenant, "key": key, "body": body, "plan": question.id}
                connection.execute(insert(idempotency).values(values))
            _enter(connection, self.store.now(connection), tenant, question, most)
        return question.id

    def claim(self) -> Claim | None:
        """The plan that waits longest, taken; None where none waits."""
        with self.store.reading() as connection:
            if connection.execute(_waiting(self.store.now(connection), plans.c.number)).first() is None:
                return None
        with self.store.writing() as connection:
            now = self.store.now(connection)
            row = connection.execute(_waiting(now, plans)).first()
            if row is None:
                return None
            claim = Claim(row.number, row.run, uuid4().hex, row.id, row.ask, now - row.created_at)
            if row.attempts >= ATTEMPTS:
                _end(connection, now, claim.number, claim.run, DEADLY)
                return None
            taken = {"state": "running", "holder": claim.holder, "lease_until": now + self.lease_s, "started_at": now}
            connection.execute(_row(claim).values(**taken, attempts=row.attempts + 1))
            _tell(connection, claim.number, "running", {"status": "running"})
        return claim

    def renew(self, claim: Claim) -> bool:
        """Holds a claim for another lease; False where it is lost, or the plan has ended."""
        with self.store.writing() as connection:
            until = self.store.now(connection) + self.lease_s
            kept = connection.execute(_row(claim).where(*_held(claim)).values(lease_until=until))
        return kept.rowcount == 1

    def holds(self, claim: Claim) -> bool:
        """Whether a claim still stands: not lost, not cancelled."""
        with self.store.reading() as connection:
            return connection.execute(select(plans.c.number).where(*_held(claim))).first() is not None

    def report(self, claim: Claim, progress: dict[str, Any]) -> None:
        """Incumbent, bound and gap while it is solved."""
        with self.store.writing() as connection:
            told = connection.execute(_row(claim).where(*_held(claim)).values(progress=json.dumps(progress)))
            if told.rowcount == 1:
                _tell(connection, claim.number, "incumbent", {"status": "running", **progress})

    def finish(self, claim: Claim, outcome: Outcome) -> bool:
        """Ends a plan, unless it has an outcome: then False, and that one stays."""
        with self.store.writing() as connection:
            return _end(connection, self.store.now(connection), claim.number, claim.run, outcome)

    def release(self, claim: Claim, counted: bool = True) -> None:
        """Puts a plan back in line, where the claim still stands; `counted` as an attempt that came to nothing."""
        freed = {"state": "queued", "holder": None, "lease_until": None}
        attempts = plans.c.attempts if counted else plans.c.attempts - 1
        with self.store.writing() as connection:
            connection.execute(_row(claim).where(*_held(claim)).values(**freed, attempts=attempts))

    def cancel(self, tenant: str, plan: str) -> bool:
        """Ends a plan as cancelled; False where it has ended already, or there is none."""
        with self.store.writing() as connection:
            mine = and_(plans.c.tenant == tenant, plans.c.id == plan, plans.c.state != "done")
            row = connection.execute(select(plans.c.number, plans.c.run).where(mine)).first()
            if row is None:
                return False
            return _end(connection, self.store.now(connection), row.number, row.run, Outcome("cancelled"))

    def seen(self, worker: str, host: str) -> None:
        """A worker is there; what was not seen for a day is forgotten."""
        with self.store.writing() as connection:
            now = self.store.now(connection)
            connection.execute(delete(workers).where(or_(workers.c.id == worker, workers.c.seen_at < now - DAY_S)))
            connection.execute(insert(workers).values(id=worker, host=host, seen_at=now))

    def gone(self, worker: str) -> None:
        with self.store.writing() as connection:
            connection.execute(delete(workers).where(workers.c.id == worker))


def _waiting(now: float, *columns: Any) -> Select[Any]:
    """The plan that waits longest."""
    free = or_(plans.c.state == "queued", and_(plans.c.state == "running", plans.c.lease_until < now))
    return select(*columns).where(free).order_by(plans.c.number).limit(1)


def _row(claim: Claim) -> Any:
    return update(plans).where(plans.c.number == claim.number)


def _held(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    columns = plans.c
    return columns.number == claim.number, columns.holder == claim.holder, columns.state == "running"


def _earlier(connection: Connection, tenant: str, key: str, body: str) -> str | None:
    mine = and_(idempotency.c.tenant == tenant, idempotency.c.key == key)
    row = connection.execute(select(idempotency).where(mine)).first()
    if row is None:
        return None
    if row.body != body:
        raise KeyReused(key)
    return str(row.plan)


def _enter(connection: Connection, now: float, tenant: str, question: Question, most: int) -> None:
    """Into the line, where the plan is new or its last run came to nothing."""
    mine = and_(plans.c.tenant == tenant, plans.c.id == question.id)
    last = and_(outcomes.c.number == plans.c.number, outcomes.c.run == plans.c.run)
    chosen = select(plans.c.number, plans.c.run, outcomes.c.status).select_from(plans.outerjoin(outcomes, last))
    row = connection.execute(chosen.where(mine)).first()
    if row is not None and row.status not in AGAIN:
        return
    waiting = and_(plans.c.tenant == tenant, plans.c.state == "queued")
    if connection.execute(select(func.count()).select_from(plans).where(waiting)).scalar_one() >= most:
        raise LineFull
    fresh = {"state": "queued", "created_at": now, "attempts": 0, "progress": None, "started_at": None}
    if row is None:
        values = {"tenant": tenant, "id": question.id, "name": question.name, "ask": question.ask, "run": 1, **fresh}
        number = connection.execute(insert(plans).values(values).returning(plans.c.number)).scalar_one()
    else:
        number = row.number
        connection.execute(update(plans).where(plans.c.number == number).values(run=row.run + 1, **fresh))
    _tell(connection, number, "queued", {"status": "queued"})


def _end(connection: Connection, now: float, number: int, run: int, outcome: Outcome) -> bool:
    """Inserts an outcome where there is none; writers take turns, so that none comes between."""
    earlier = select(outcomes.c.number).where(outcomes.c.number == number, outcomes.c.run == run)
    if connection.execute(earlier).first() is not None:
        return False
    values = {"status": outcome.status, "cause": outcome.cause, "document": outcome.document}
    connection.execute(insert(outcomes).values(number=number, run=run, ended_at=now, **values))
    ended: dict[str, Any] = {"state": "done", "holder": None, "lease_until": None}
    if outcome.progress is not None:
        ended["progress"] = json.dumps(outcome.progress)
    connection.execute(update(plans).where(plans.c.number == number, plans.c.run == run).values(ended))
    cause = {} if outcome.cause is None else {"cause": outcome.cause}
    told = {"status": outcome.status, **(outcome.progress or {}), **cause}
    _tell(connection, number, "done", told)
    notify(connection, now, number, told)
    return True


def _tell(connection: Connection, number: int, kind: str, data: dict[str, Any]) -> None:
    connection.execute(insert(events).values(number=number, kind=kind, data=json.dumps(data)))
