"""Reads plans from the database; a tenant sees only its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, bindparam, func, select

from api.jobs.database import Database
from api.jobs.tables import IS_CURRENT_RESULT, JobKind, events, is_recent, outcomes, plans, workers


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan without its documents. Times are seconds since 1970; `progress` has incumbent_s, bound_s and gap."""

    number: int
    id: str
    name: str
    generation: int
    status: str
    error: str | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    progress: dict[str, Any]

    @property
    def is_done(self) -> bool:
        return self.ended_at is not None


class PlanEvent(NamedTuple):
    """An event of a plan; `data` is JSON."""

    seq: int
    kind: str
    data: str


class PlanRepository:
    """Read access to plans, events and workers."""

    def __init__(self, store: Database) -> None:
        self.store = store

    def find(self, tenant: str, plan: str, kind: JobKind = "plan") -> PlanRecord | None:
        """Return a tenant's plan or sweep, or None, even where another tenant has one with that id."""
        with self.store.connect() as connection:
            row = connection.execute(_FIND_PLAN, {"tenant": tenant, "plan": plan, "kind": kind}).first()
        return None if row is None else _to_record(row)

    def find_all(self, tenant: str, ids: Sequence[str]) -> dict[str, PlanRecord]:
        """Return those of a tenant's plans that exist, by id."""
        query = _select_records().where(plans.c.tenant == tenant, plans.c.kind == "plan", plans.c.id.in_(ids))
        with self.store.connect() as connection:
            return {row.id: _to_record(row) for row in connection.execute(query)}

    def page(self, tenant: str, after: int | None, limit: int) -> list[PlanRecord]:
        """Return a tenant's plans, newest first; `after`: only those with a smaller number."""
        is_listed = plans.c.tenant == tenant, plans.c.kind == "plan"
        query = _select_records().where(*is_listed).order_by(plans.c.number.desc()).limit(limit)
        if after is not None:
            query = query.where(plans.c.number < after)
        with self.store.connect() as connection:
            return [_to_record(row) for row in connection.execute(query)]

    def document(self, record: PlanRecord) -> bytes | None:
        """Return a plan's compressed document, or None where it has none."""
        is_current = and_(outcomes.c.number == record.number, outcomes.c.generation == record.generation)
        with self.store.connect() as connection:
            document: bytes | None = connection.execute(select(outcomes.c.document).where(is_current)).scalar()
        return document

    def events(self, record: PlanRecord, after: int, limit: int) -> list[PlanEvent]:
        """Return a plan's events after the one numbered `after`, in order."""
        columns = events.c
        query = select(columns.seq, columns.kind, columns.data).where(columns.number == record.number)
        with self.store.connect() as connection:
            rows = connection.execute(query.where(columns.seq > after).order_by(columns.seq).limit(limit))
            return [PlanEvent(*row) for row in rows]

    def counts(self) -> dict[str, int]:
        """Return the number of plans of all tenants by status."""
        status = func.coalesce(outcomes.c.status, plans.c.state)
        query = select(status, func.count()).select_from(plans.outerjoin(outcomes, IS_CURRENT_RESULT)).group_by(status)
        with self.store.connect() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def workers(self, within_s: float) -> int:
        """Return the number of workers on all hosts whose process sent a heartbeat in the last seconds."""
        with self.store.connect() as connection:
            alive = is_recent(self.store.now(connection), within_s)
            return int(
                connection.execute(select(func.coalesce(func.sum(workers.c.slots), 0)).where(alive)).scalar_one()
            )


def _select_records() -> Select[Any]:
    columns = [
        plans.c[name]
        for name in ("number", "id", "name", "generation", "state", "created_at", "started_at", "progress")
    ]
    ended = [outcomes.c.status, outcomes.c.error, outcomes.c.ended_at]
    return select(*columns, *ended).select_from(plans.outerjoin(outcomes, IS_CURRENT_RESULT))


_FIND_PLAN = _select_records().where(
    plans.c.tenant == bindparam("tenant"), plans.c.id == bindparam("plan"), plans.c.kind == bindparam("kind")
)


def _to_record(row: Any) -> PlanRecord:
    return PlanRecord(
        row.number,
        row.id,
        row.name,
        row.generation,
        row.status or row.state,
        row.error,
        row.created_at,
        row.started_at,
        row.ended_at,
        json.loads(row.progress) if row.progress else {},
    )
