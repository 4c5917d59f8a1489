"""Queueing a plan, within the write transaction of the caller."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from api.jobs.group_commit import WriteRejected
from api.jobs.tables import IS_CURRENT_RESULT, JobKind, events, outcomes, plans
from api.jobs.workflows import Workflows

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


def enqueue(
    connection: Connection, workflows: Workflows, jobs: Sequence[PlanJob], *, tenant: str, reserve: Callable[[], None]
) -> None:
    """Queue plans and their workflows, where they are new or their last generation ended without an answer.

    All are requested for one sweep, or for none. `reserve` is called before each is queued, and raises where it may not
    be. A sweep takes no answer of a plan of its own for an answer too, so that it ends when it is led again.
    """
    sweep = jobs[0].sweep
    if sweep is not None and connection.execute(_LED_SWEEP, {"sweep": sweep}).first() is None:
        raise SweepEnded
    found = connection.execute(_LAST_GENERATIONS, {"tenant": tenant, "ids": [job.id for job in jobs]})
    last = {row.id: row for row in found}
    queued = [job for job in jobs if _is_wanted(connection, job, last.get(job.id))]
    for _ in queued:
        reserve()
    initial = {"state": "queued", "created_at": workflows.store.now(connection), "progress": None, "started_at": None}
    initial |= {"attempts": 0, "child_deaths": 0}
    numbers = _insert(connection, [job for job in queued if job.id not in last], tenant, initial=initial)
    generations = dict.fromkeys(numbers, 1)
    for job in queued:
        if row := last.get(job.id):
            numbers[job.id], generations[job.id] = row.number, row.generation + 1
            changed = {**_values_of(job), **initial, "generation": row.generation + 1}
            connection.execute(update(plans).where(plans.c.number == row.number).values(changed))
    for job in queued:
        number = numbers[job.id]
        place = append_event(connection, number, "queued", data={"status": "queued"})
        workflows.enqueue(connection, job.kind, tenant, number=number, generation=generations[job.id], place=place)


def _is_wanted(connection: Connection, job: PlanJob, row: Any) -> bool:
    """Return whether a plan is to be queued; `row` is its last generation. One that is not may outlive its sweep."""
    if row is None:
        return True
    is_own = job.sweep is not None and row.sweep == job.sweep
    if row.status in RETRYABLE and (not is_own or row.status == "cancelled"):
        return True
    if row.sweep is not None and not is_own:  # it is wanted for itself too
        connection.execute(update(plans).where(plans.c.number == row.number).values(sweep=None))
    return False


def _values_of(job: PlanJob) -> dict[str, Any]:
    return {"traceparent": job.traceparent, "kind": job.kind, "sweep": job.sweep}


def _insert(connection: Connection, jobs: Sequence[PlanJob], tenant: str, *, initial: dict[str, Any]) -> dict[str, int]:
    """Insert new plans; return their numbers by id."""
    if not jobs:
        return {}
    common = {"tenant": tenant, "generation": 1, **initial}
    rows = [{**common, **_values_of(job), "id": job.id, "name": job.name, "request": job.request} for job in jobs]
    return {row.id: row.number for row in connection.execute(_INSERT_PLANS, rows)}


def append_event(connection: Connection, number: int, kind: str, *, data: dict[str, Any]) -> int:
    """Append an event to a plan's; return its number among all events."""
    values = {"number": number, "kind": kind, "data": json.dumps(data)}
    return int(connection.execute(_INSERT_EVENT, values).scalar_one())


_LAST_GENERATIONS = (
    select(plans.c.id, plans.c.number, plans.c.generation, plans.c.sweep, outcomes.c.status)
    .select_from(plans.outerjoin(outcomes, IS_CURRENT_RESULT))
    .where(plans.c.tenant == bindparam("tenant"), plans.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(plans.c.number)  # two who lock the same plans do so in the same order
    .with_for_update(of=plans)
)
_LED_SWEEP = (
    select(plans.c.number)
    .where(plans.c.number == bindparam("sweep"), plans.c.state == "running")
    .with_for_update(read=True)
)
_INSERT_PLANS = insert(plans).returning(plans.c.id, plans.c.number, sort_by_parameter_order=True)
_INSERT_EVENT = insert(events).returning(events.c.seq)
