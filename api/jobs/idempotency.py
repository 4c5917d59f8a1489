"""Idempotency keys: a tenant's name for a request, bound to the first body and the plan that it got."""

from __future__ import annotations

from sqlalchemy import Connection, and_, insert, select

from api.jobs.group_commit import WriteRejected
from api.jobs.tables import idempotency


class IdempotencyConflict(WriteRejected):
    """An idempotency key was used with another body before."""


def find_first_plan(connection: Connection, tenant: str, key: str, *, body: str) -> str | None:
    """Return the plan that a key was first used for. Raises IdempotencyConflict for another body."""
    same_key = and_(idempotency.c.tenant == tenant, idempotency.c.key == key)
    row = connection.execute(select(idempotency).where(same_key)).first()
    if row is None:
        return None
    if row.body != body:
        raise IdempotencyConflict(key)
    return str(row.plan)


def remember_first_plan(connection: Connection, tenant: str, key: str, *, body: str, plan: str) -> None:
    connection.execute(insert(idempotency), {"tenant": tenant, "key": key, "body": body, "plan": plan})
