"""Which plan, or which sweep, a worker takes next.

A plan whose worker is gone comes first: one whose lease has expired, or ends later than a lease can that began about
now, because the clock was set back. Else each tenant waits in a line of its own, in the order in which plans were
queued. Next is the first plan of the tenant of which the fewest are being solved; among those, of the tenant whose last
start was longest ago. So one tenant's plans delay another's by the plans that run, however many wait.

Each tenant that waits costs some index lookups, however many plans wait: tenants are found one after the other, as the
least name above the last one ("loose index scan", PostgreSQL wiki). Who claims locks the plan and passes over those
that others are claiming; those who claim at the same moment may take plans of one tenant.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import CTE, BindParameter, ColumnElement, ScalarSelect, Select, bindparam, exists, func, or_, select

from api.jobs.tables import plans

running, queued = plans.alias("running"), plans.alias("queued")
KIND: BindParameter[str] = bindparam("kind")

_LOST = (
    plans.c.kind == KIND,
    plans.c.state == "running",
    or_(plans.c.lease_until < bindparam("now"), plans.c.lease_until > bindparam("latest")),
)


def _list_waiting_tenants() -> CTE:
    """Return the tenants that have queued plans, and a last row that is NULL."""
    first = select(func.min(plans.c.tenant).label("tenant")).where(plans.c.kind == KIND, plans.c.state == "queued")
    tenants = first.cte("tenants", recursive=True)
    is_after = queued.c.kind == KIND, queued.c.state == "queued", queued.c.tenant > tenants.c.tenant
    after = select(func.min(queued.c.tenant)).where(*is_after)
    return tenants.union_all(select(after.scalar_subquery()).where(tenants.c.tenant.is_not(None)))


_TENANTS = _list_waiting_tenants()


def _of_tenant(value: Any, *conditions: Any) -> ScalarSelect[Any]:
    return select(value).where(*conditions).correlate(_TENANTS).scalar_subquery()


_IS_QUEUED = queued.c.kind == KIND, queued.c.state == "queued", queued.c.tenant == _TENANTS.c.tenant
_IS_RUNNING = running.c.kind == KIND, running.c.state == "running", running.c.tenant == _TENANTS.c.tenant
_FIRST_QUEUED = _of_tenant(func.min(queued.c.number), *_IS_QUEUED)
_RUNNING = _of_tenant(func.count(), *_IS_RUNNING)
_LAST_START = _of_tenant(func.coalesce(func.max(running.c.started_at), 0.0), running.c.tenant == _TENANTS.c.tenant)
_IN_TURN = (
    select(_TENANTS.c.tenant)
    .where(_TENANTS.c.tenant.is_not(None))
    .order_by(_RUNNING, _LAST_START, _FIRST_QUEUED)
    .limit(1)
)


def _lock_first(*conditions: ColumnElement[bool]) -> Select[Any]:
    """Return the query that locks the first plan of which all hold, among those that no other claims now."""
    return select(plans).where(*conditions).order_by(plans.c.number).limit(1).with_for_update(skip_locked=True)


_WAITS = plans.c.kind == KIND, plans.c.state == "queued"
ANY_WAITS = select(or_(exists().where(*_LOST), exists().where(*_WAITS)))
LOCK_LOST = _lock_first(*_LOST)
LOCK_IN_TURN = _lock_first(*_WAITS, plans.c.tenant == _IN_TURN.scalar_subquery())
"""Parameters: `kind`, `now`, and `latest`, after which no lease ends that began by the same clock."""
