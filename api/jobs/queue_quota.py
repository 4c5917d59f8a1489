"""The limit on a tenant's queued plans, checked without counting the database on every request."""

from __future__ import annotations

import time

from sqlalchemy import Connection, bindparam, func, select

from api.jobs.group_commit import WriteRejected
from api.jobs.tables import plans

COUNT_TTL_S = 1.0
"""How long the count of a tenant's queue is reused."""

_COUNT_QUEUED = (
    select(func.count())
    .select_from(plans)
    .where(plans.c.tenant == bindparam("tenant"), plans.c.state == "queued", plans.c.sweep.is_(None))
)
"""Without the plans that a sweep alone asked for."""


class QueueFull(WriteRejected):
    """A tenant has as many queued plans as it may."""


class QueueQuota:
    """The limit of queued plans per tenant.

    The database is counted at most once a second, and always before a refusal; in between, plans queued by this process
    are added. Other servers may add theirs within that second.
    """

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, float]] = {}

    def reserve(self, connection: Connection, tenant: str, max_queued: int) -> None:
        """Count one more plan, within the write lock. Raises QueueFull."""
        # A tenant that was never counted is taken for full, which makes the next line count it.
        count, counted_at = self._counts.get(tenant, (max_queued, 0.0))
        if count >= max_queued or time.monotonic() - counted_at > COUNT_TTL_S:
            count, counted_at = connection.execute(_COUNT_QUEUED, {"tenant": tenant}).scalar_one(), time.monotonic()
        if count >= max_queued:
            raise QueueFull
        self._counts[tenant] = count + 1, counted_at
