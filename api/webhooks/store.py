"""Who is told when a plan ends, and what is still to be told.

A delivery is inserted in the transaction that ends the plan, so that none is lost; it is deleted when it has arrived.
Whoever takes it moves the time it is due to beyond the longest that an attempt lasts: if that process dies, another
takes it then. A hook that fails is left alone for a while with all that is due to it, twice as long each time, and
so holds up no other.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from api.jobs.database import Database
from api.jobs.tables import deliveries, keys, plans, webhooks
from api.settings import DAY_S
from api.webhooks.url_policy import WebhookUrl

DELIVERY_LEASE_S = 60.0
"""Longer than an attempt lasts."""
FIRST_RETRY_S = 5.0
"""The first wait after a failure; each further one is twice as long."""
MAX_ATTEMPTS = 12
"""The last after about three hours."""
EXPIRY_S = DAY_S
"""Where nobody delivers: webhooks were turned off again."""


class TooManyWebhooks(Exception):
    """A key has as many as it may."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that is told of a tenant's plans, and the secret that it knows us by."""

    id: str
    url: str
    created_at: float
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is to be told, in somebody's hands. `attempts` counts this one."""

    number: int
    webhook: str
    url: str
    secret: str
    body: str
    attempts: int


class WebhookStore:
    """The webhooks in a store."""

    def __init__(self, store: Database) -> None:
        self.store = store

    def add(self, tenant: str, key: str, url: str, most: int) -> Webhook:
        """A new one, its secret told here and nowhere again. Raises InvalidRequest for an address that may not be
        called, TooManyHooks where the key has `most`."""
        WebhookUrl.parse(url)
        made = {"id": secrets.token_hex(8), "url": url, "secret": f"whsec_{secrets.token_urlsafe(32)}"}
        with self.store.begin() as connection:
            mine = select(func.count()).select_from(webhooks).where(webhooks.c.tenant == tenant, webhooks.c.key == key)
            if connection.execute(mine).scalar_one() >= most:
                raise TooManyWebhooks
            now = self.store.now(connection)
            connection.execute(insert(webhooks).values(**made, tenant=tenant, key=key, created_at=now))
        return Webhook(**made, created_at=now)

    def list_all(self, tenant: str) -> list[Webhook]:
        """A tenant's, the oldest first, without their secrets."""
        columns = webhooks.c
        chosen = select(columns.id, columns.url, columns.created_at).where(columns.tenant == tenant)
        with self.store.connect() as connection:
            return [Webhook(*row) for row in connection.execute(chosen.order_by(columns.created_at, columns.id))]

    def remove(self, tenant: str, webhook: str) -> bool:
        """With all that was due to it; False where there is none, or it is another's."""
        with self.store.begin() as connection:
            mine = delete(webhooks).where(webhooks.c.tenant == tenant, webhooks.c.id == webhook)
            if connection.execute(mine).rowcount == 0:
                return False
            connection.execute(delete(deliveries).where(deliveries.c.webhook == webhook))
        return True

    def claim_due(self) -> Delivery | None:
        """What has been due for the longest; None where nothing is."""
        columns = deliveries.c
        chosen = select(
            columns.number, columns.webhook, webhooks.c.url, webhooks.c.secret, columns.body, columns.attempts
        )
        joined = chosen.join(webhooks, webhooks.c.id == columns.webhook)
        with self.store.connect() as connection:
            if connection.execute(joined.where(columns.due_at <= self.store.now(connection)).limit(1)).first() is None:
                return None
        with self.store.begin() as connection:
            now = self.store.now(connection)
            row = connection.execute(joined.where(columns.due_at <= now).order_by(columns.due_at).limit(1)).first()
            if row is None:
                return None
            held = {"due_at": now + DELIVERY_LEASE_S, "attempts": row.attempts + 1}
            connection.execute(update(deliveries).where(columns.number == row.number).values(held))
        return Delivery(*row[:-1], row.attempts + 1)

    def mark_delivered(self, delivery: Delivery) -> None:
        with self.store.begin() as connection:
            connection.execute(delete(deliveries).where(deliveries.c.number == delivery.number))

    def mark_failed(self, delivery: Delivery) -> None:
        """It, and whatever else is due to the hook, waits; after its last attempt it is forgotten."""
        columns = deliveries.c
        mine = columns.number == delivery.number
        with self.store.begin() as connection:
            now = self.store.now(connection)
            later = now + FIRST_RETRY_S * 2 ** (delivery.attempts - 1)
            late = update(deliveries).where(columns.webhook == delivery.webhook, columns.due_at < later)
            connection.execute(late.values(due_at=later))
            connection.execute(update(deliveries).where(mine).values(due_at=later))
            connection.execute(delete(deliveries).where(mine, columns.attempts >= MAX_ATTEMPTS))


def queue_deliveries(connection: Connection, now: float, number: int, *, told: dict[str, Any]) -> None:
    """Queues a delivery of what a plan came to for every hook of its tenant, but of revoked keys; and forgets what
    nobody has brought for a day."""
    revoked = select(keys.c.id).where(keys.c.revoked_at.is_not(None))
    owned = select(webhooks.c.id, plans.c.id.label("plan")).join(plans, plans.c.tenant == webhooks.c.tenant)
    rows = connection.execute(owned.where(plans.c.number == number, webhooks.c.key.not_in(revoked))).all()
    if rows:
        connection.execute(delete(deliveries).where(deliveries.c.created_at < now - EXPIRY_S))
    for row in rows:
        body = json.dumps({"type": "plan.ended", "plan": row.plan, "ended_at": _format_time(now), **told})
        values = {"webhook": row.id, "body": body, "attempts": 0, "due_at": now, "created_at": now}
        connection.execute(insert(deliveries).values(values))


def _format_time(seconds: float) -> str:
    """Return seconds since 1970 as ISO 8601, in the form of the service's answers."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
