"""What the store knows of plans, as those who ask for it see it: a tenant its own, and no other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, bindparam, func, select

from api.jobs.database import Database
from api.jobs.tables import events, outcomes, plans, workers


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan without its documents. Times in seconds since 1970; `progress` has incumbent, bound and gap."""

    number: int
    id: str
    name: str
    run: int
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
    """Reading only."""

    def __init__(self, store: Database) -> None:
        self.store = store

    def find(self, tenant: str, plan: str) -> PlanRecord | None:
        """A tenant's plan; None also where another's has that id."""
        with self.store.connect() as connection:
            row = connection.execute(_FIND_PLAN, {"tenant": tenant, "plan": plan}).first()
        return None if row is None else _to_record(row)

    def page(self, tenant: str, after: int | None, most: int) -> list[PlanRecord]:
        """A tenant's plans, the newest first, from below the number `after`."""
        chosen = _select_records().where(plans.c.tenant == tenant).order_by(plans.c.number.desc()).limit(most)
        if after is not None:
            chosen = chosen.where(plans.c.number < after)
        with self.store.connect() as connection:
            return [_to_record(row) for row in connection.execute(chosen)]

    def document(self, record: PlanRecord) -> bytes | None:
        """The packed plan document of a record's run; None where it has none."""
        wanted = and_(outcomes.c.number == record.number, outcomes.c.run == record.run)
        with self.store.connect() as connection:
            found: bytes | None = connection.execute(select(outcomes.c.document).where(wanted)).scalar()
        return found

    def events(self, record: PlanRecord, after: int, most: int) -> list[PlanEvent]:
        """Events of a plan that came after the one numbered `after`, in their order."""
        columns = events.c
        chosen = select(columns.seq, columns.kind, columns.data).where(columns.number == record.number)
        with self.store.connect() as connection:
            rows = connection.execute(chosen.where(columns.seq > after).order_by(columns.seq).limit(most))
            return [PlanEvent(*row) for row in rows]

    def counts(self) -> dict[str, int]:
        """Plans of all tenants by status."""
        status = func.coalesce(outcomes.c.status, plans.c.state)
        counted = select(status, func.count()).select_from(plans.outerjoin(outcomes, _IS_LAST_RUN)).group_by(status)
        with self.store.connect() as connection:
            return {row[0]: row[1] for row in connection.execute(counted)}

    def workers(self, within_s: float) -> int:
        """How many workers were seen in the last seconds, on all hosts."""
        with self.store.connect() as connection:
            late = self.store.now(connection) - within_s
            return connection.execute(select(func.count()).where(workers.c.seen_at >= late)).scalar_one()


_IS_LAST_RUN = and_(outcomes.c.number == plans.c.number, outcomes.c.run == plans.c.run)


def _select_records() -> Select[Any]:
    columns = [
        plans.c[name] for name in ("number", "id", "name", "run", "state", "created_at", "started_at", "progress")
    ]
    ended = [outcomes.c.status, outcomes.c.error, outcomes.c.ended_at]
    return select(*columns, *ended).select_from(plans.outerjoin(outcomes, _IS_LAST_RUN))


_FIND_PLAN = _select_records().where(plans.c.tenant == bindparam("tenant"), plans.c.id == bindparam("plan"))


def _to_record(row: Any) -> PlanRecord:
    return PlanRecord(
        row.number,
        row.id,
        row.name,
        row.run,
        row.status or row.state,
        row.error,
        row.created_at,
        row.started_at,
        row.ended_at,
        json.loads(row.progress) if row.progress else {},
    )
