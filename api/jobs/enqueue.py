"""Queueing a plan, within the write transaction of the caller."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from api.jobs.database import Database
from api.jobs.group_commit import WriteRejected
from api.jobs.tables import IS_CURRENT_RESULT, JobKind, events, outcomes, plans

RETRYABLE = ("timeout", "incomplete", "cancelled", "failed")
"""Results after which the same request may be queued again."""


class SweepEnded(WriteRejected):
    """A plan is requested for a sweep that has ended, or that nobody leads."""


@dataclass(frozen=True, slots=True)
class PlanJob:
    """A plan to solve: its id, the graph's name, and the compressed request for the child process.

    `traceparent` is the span of the request that it came with (`api.tracing`), `sweep` the number of the sweep that it
    is requested for.
    """

    id: str
    name: str
    request: bytes
    traceparent: str | None = None
    kind: JobKind = "plan"
    sweep: int | None = None


def enqueue(connection: Connection, store: Database, job: PlanJob, *, tenant: str, reserve: Callable[[], None]) -> None:
    """Queue the plan where it is new, or where its last generation ended without an answer.

    `reserve` is called before it is queued, and raises where it may not be. A sweep takes no answer of a plan of its
    own for an answer too, so that it ends when it is led again.
    """
    if job.sweep is not None and connection.execute(_LED_SWEEP, {"sweep": job.sweep}).first() is None:
        raise SweepEnded
    row = connection.execute(_LAST_GENERATION, {"tenant": tenant, "plan": job.id}).first()
    if row is not None:
        is_own = job.sweep is not None and row.sweep == job.sweep
        if row.status not in RETRYABLE or (is_own and row.status != "cancelled"):
            if row.sweep is not None and not is_own:  # the plan is wanted for itself too, and outlives its sweep
                connection.execute(update(plans).where(plans.c.number == row.number).values(sweep=None))
            return
    reserve()
    now = store.now(connection)
    counted = {"attempts": 0, "child_deaths": 0}
    initial = {"state": "queued", "created_at": now, "progress": None, "started_at": None, **counted}
    initial |= {"traceparent": job.traceparent, "kind": job.kind, "sweep": job.sweep}
    if row is None:
        values = {"tenant": tenant, "id": job.id, "name": job.name, "request": job.request, "generation": 1}
        number = connection.execute(_INSERT_PLAN, {**values, **initial}).scalar_one()
    else:
        number = row.number
        connection.execute(
            update(plans).where(plans.c.number == number).values(generation=row.generation + 1, **initial)
        )
    append_event(connection, number, "queued", data={"status": "queued"})


def append_event(connection: Connection, number: int, kind: str, *, data: dict[str, Any]) -> None:
    connection.execute(_INSERT_EVENT, {"number": number, "kind": kind, "data": json.dumps(data)})


_LAST_GENERATION = (
    select(plans.c.number, plans.c.generation, plans.c.sweep, outcomes.c.status)
    .select_from(plans.outerjoin(outcomes, IS_CURRENT_RESULT))
    .where(plans.c.tenant == bindparam("tenant"), plans.c.id == bindparam("plan"))
    .with_for_update(of=plans)
)
_LED_SWEEP = (
    select(plans.c.number)
    .where(plans.c.number == bindparam("sweep"), plans.c.state == "running")
    .with_for_update(read=True)
)
_INSERT_PLAN = insert(plans).returning(plans.c.number)
_INSERT_EVENT = insert(events)
