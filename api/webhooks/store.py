"""Webhooks and their due deliveries in the database.

A delivery is inserted in the transaction that ends the plan, so that none is lost, and deleted when it has arrived.
Claiming a delivery moves its due time beyond the longest attempt: if the process dies, another claims it then. A
webhook that fails waits with all of its deliveries, twice as long each time, and so delays no other webhook.
"""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, delete, func, insert, or_, select, update

from api.jobs.database import Database
from api.jobs.tables import deliveries, keys, plans, webhooks
from api.settings import DAY_S
from api.webhooks.url_policy import WebhookUrl

DELIVERY_LEASE_S = 60.0
"""Longer than the longest attempt."""
FIRST_RETRY_S = 5.0
"""The wait after the first failure; each further one is twice as long."""
MAX_ATTEMPTS = 12
"""The last attempt comes after about three hours."""
SECRET_PREFIX = "whsec_"
SECRET_BYTES = 32
EXPIRY_S = DAY_S
"""Deliveries expire after a day, where webhooks were disabled again."""


class TooManyWebhooks(Exception):
    """A key has as many webhooks as it may."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that is called when a tenant's plans end, and the secret that signs its deliveries."""

    id: str
    url: str
    created_at: float
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A claimed delivery; `attempts` counts this one."""

    number: int
    webhook: str
    url: str
    secret: str
    body: str
    attempts: int


class WebhookStore:
    """The webhooks in a database."""

    def __init__(self, store: Database) -> None:
        self.store = store

    def add(self, tenant: str, key: str, url: str, max_webhooks: int) -> Webhook:
        """Create a webhook and return it with its secret, which cannot be read again.

        Raises InvalidRequest for an address that may not be called, TooManyWebhooks where the key has `most`.
        """
        WebhookUrl.parse(url)
        secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
        values = {"id": secrets.token_hex(8), "url": url, "secret": secret}
        with self.store.begin_alone() as connection:
            owned = select(func.count()).select_from(webhooks).where(webhooks.c.tenant == tenant, webhooks.c.key == key)
            if connection.execute(owned).scalar_one() >= max_webhooks:
                raise TooManyWebhooks
            now = self.store.now(connection)
            connection.execute(insert(webhooks).values(**values, tenant=tenant, key=key, created_at=now))
        return Webhook(**values, created_at=now)

    def list_all(self, tenant: str) -> list[Webhook]:
        """Return a tenant's webhooks, oldest first, without their secrets."""
        columns = webhooks.c
        query = select(columns.id, columns.url, columns.created_at).where(columns.tenant == tenant)
        with self.store.connect() as connection:
            return [Webhook(*row) for row in connection.execute(query.order_by(columns.created_at, columns.id))]

    def remove(self, tenant: str, webhook: str) -> bool:
        """Delete a webhook with its deliveries. Return False where the tenant has none with this id."""
        with self.store.begin() as connection:
            deletion = delete(webhooks).where(webhooks.c.tenant == tenant, webhooks.c.id == webhook)
            if connection.execute(deletion).rowcount == 0:
                return False
            connection.execute(delete(deliveries).where(deliveries.c.webhook == webhook))
        return True

    def claim_due(self) -> Delivery | None:
        """Claim the delivery that has been due longest; None where none is due."""
        columns = deliveries.c
        fields = select(
            columns.number, columns.webhook, webhooks.c.url, webhooks.c.secret, columns.body, columns.attempts
        )
        query = fields.join(webhooks, webhooks.c.id == columns.webhook)
        with self.store.connect() as connection:
            if connection.execute(query.where(_is_due(self.store.now(connection))).limit(1)).first() is None:
                return None
        with self.store.begin() as connection:
            now = self.store.now(connection)
            due = query.where(_is_due(now)).order_by(columns.due_at).limit(1)
            row = connection.execute(due.with_for_update(of=deliveries, skip_locked=True)).first()
            if row is None:
                return None
            queued_at = case((columns.created_at > now, now), else_=columns.created_at)
            claimed = {"due_at": now + DELIVERY_LEASE_S, "attempts": row.attempts + 1, "created_at": queued_at}
            connection.execute(update(deliveries).where(columns.number == row.number).values(claimed))
        return Delivery(*row[:-1], row.attempts + 1)

    def mark_delivered(self, delivery: Delivery) -> None:
        with self.store.begin() as connection:
            connection.execute(delete(deliveries).where(deliveries.c.number == delivery.number))

    def mark_failed(self, delivery: Delivery) -> None:
        """Delay the delivery and all others of its webhook; delete it after its last attempt."""
        columns = deliveries.c
        this_one = columns.number == delivery.number
        with self.store.begin() as connection:
            now = self.store.now(connection)
            later = now + FIRST_RETRY_S * 2 ** (delivery.attempts - 1)
            postponed = update(deliveries).where(columns.webhook == delivery.webhook, columns.due_at < later)
            connection.execute(postponed.values(due_at=later))
            connection.execute(update(deliveries).where(this_one).values(due_at=later))
            connection.execute(delete(deliveries).where(this_one, columns.attempts >= MAX_ATTEMPTS))


def _is_due(now: float) -> ColumnElement[bool]:
    """Return whether a delivery is due; one that was queued later than now was so before the clock was set back."""
    return or_(deliveries.c.due_at <= now, deliveries.c.created_at > now)


def queue_deliveries(connection: Connection, now: float, number: int, *, result: dict[str, Any]) -> None:
    """Queue a delivery of a plan's or sweep's result for every webhook of its tenant, except those of revoked keys.

    Plans that only a sweep requested are left out. Deliveries that are older than a day are deleted.
    """
    revoked = select(keys.c.id).where(keys.c.revoked_at.is_not(None))
    columns = webhooks.c.id, plans.c.id.label("plan"), plans.c.kind
    owned = select(*columns).join(plans, plans.c.tenant == webhooks.c.tenant).where(plans.c.sweep.is_(None))
    rows = connection.execute(owned.where(plans.c.number == number, webhooks.c.key.not_in(revoked))).all()
    if rows:
        connection.execute(delete(deliveries).where(deliveries.c.created_at < now - EXPIRY_S))
    for row in rows:
        told = {"type": f"{row.kind}.ended", row.kind: row.plan, "ended_at": _format_time(now)}
        body = json.dumps({**told, **result})
        values = {"webhook": row.id, "body": body, "attempts": 0, "due_at": now, "created_at": now}
        connection.execute(insert(deliveries).values(values))


def _format_time(seconds: float) -> str:
    """Return seconds since 1970 as ISO 8601, in the form of the service's answers."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
