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

from api.hooks.register import notify
from api.settings import DAY_S
from api.store import Store
from api.tables import events, idempotency, outcomes, plans, workers
from api.together import Refused, Together

ATTEMPTS = 3
"""A plan at which workers or their child processes died so often is not tried again: it may be what they die of."""
COUNT_S = 1.0
"""How long a count of a line is believed."""
AGAIN = ("timeout", "cancelled", "failed")
"""Outcomes after which the same question may be asked anew."""


class KeyReused(Refused):
    """An idempotency key came with another body than the first time."""


class LineFull(Refused):
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
        self._together, self._room = Together(store), _Room()

    def submit(self, tenant: str, question: Question, most: int, key: str | None = None, body: str = "") -> str:
        """The id of the plan, which is committed by now: in line, unless it was asked before.

        With an idempotency `key`, the plan that it came with first. Raises KeyReused, LineFull.
        """

        def write(connection: Connection) -> str:
            earlier = None if key is None else _earlier(connection, tenant, key, body)
            if earlier is not None:
                return earlier
            self._enter(connection, tenant, question, most)
            if key is not None:
                kept = {"tenant": tenant, "key": key, "body": body, "plan": question.id}
                connection.execute(insert(idempotency), kept)
            return question.id

        return self._together.write(write)

    def _enter(self, connection: Connection, tenant: str, question: Question, most: int) -> None:
        """Into the line, where the plan is new or its last run came to nothing."""
        row = connection.execute(_LAST, {"tenant": tenant, "plan": question.id}).first()
        if row is not None and row.status not in AGAIN:
            return
        self._room.take(connection, tenant, most)
        now = self.store.now(connection)
        fresh = {"state": "queued", "created_at": now, "attempts": 0, "progress": None, "started_at": None}
        if row is None:
            values = {"tenant": tenant, "id": question.id, "name": question.name, "ask": question.ask, "run": 1}
            number = connection.execute(_NEW, {**values, **fresh}).scalar_one()
        else:
            number = row.number
            connection.execute(update(plans).where(plans.c.number == number).values(run=row.run + 1, **fresh))
        _tell(connection, number, "queued", {"status": "queued"})

    def claim(self) -> Claim | None:
        """The plan that waits longest, taken; None where none waits."""
        with self.store.reading() as connection:
            if connection.execute(_NEXT_NUMBER, {"now": self.store.now(connection)}).scalar() is None:
                return None
        with self.store.writing() as connection:
            now = self.store.now(connection)
            row = connection.execute(_NEXT, {"now": now}).first()
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


class _Room:
    """How many plans of a tenant wait at most: counted at least once a second and before anybody is refused, and
    meanwhile what was let in here is added. Servers beside this one may let in their own of that second."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, float]] = {}

    def take(self, connection: Connection, tenant: str, most: int) -> None:
        """One more, in the writers' turn. Raises LineFull."""
        count, counted_at = self._known.get(tenant, (most, 0.0))
        if count >= most or time.monotonic() - counted_at > COUNT_S:
            count, counted_at = connection.execute(_IN_LINE, {"tenant": tenant}).scalar_one(), time.monotonic()
        if count >= most:
            raise LineFull
        self._known[tenant] = count + 1, counted_at


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
    connection.execute(_EVENT, {"number": number, "kind": kind, "data": json.dumps(data)})


def _first(*free: ColumnElement[bool]) -> Select[Any]:
    chosen = select(plans.c.number).where(*free).order_by(plans.c.number).limit(1).subquery()
    return select(chosen.c.number)


_FREE = union_all(  # each found by the index, however long the line
    _first(plans.c.state == "queued", plans.c.lease_until.is_(None)),
    _first(plans.c.state == "running", plans.c.lease_until < bindparam("now")),
).subquery()
_NEXT_NUMBER = select(func.min(_FREE.c.number))
"""Of the plan that waits longest."""
_NEXT = select(plans).where(plans.c.number == _NEXT_NUMBER.scalar_subquery())
_LAST = (
    select(plans.c.number, plans.c.run, outcomes.c.status)
    .select_from(plans.outerjoin(outcomes, and_(outcomes.c.number == plans.c.number, outcomes.c.run == plans.c.run)))
    .where(plans.c.tenant == bindparam("tenant"), plans.c.id == bindparam("plan"))
)
_IN_LINE = (
    select(func.count()).select_from(plans).where(plans.c.tenant == bindparam("tenant"), plans.c.state == "queued")
)
_NEW = insert(plans).returning(plans.c.number)
_EVENT = insert(events)
