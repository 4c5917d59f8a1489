"""The clock of the database's host is set back by an hour: what was written before is as much later than now."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from sqlalchemy import update

from api.jobs.database import Database
from api.jobs.enqueue import PlanJob
from api.jobs.plan_repository import PlanRepository
from api.jobs.queue import JobQueue, JobResult, Lease
from api.jobs.tables import deliveries, workers
from api.webhooks.store import WebhookStore
from tests.testing.plan_queue import begin_next

ON_BOTH_DATABASES = True
HOUR_S = 3600.0


@pytest.fixture
def store(database: str) -> Iterator[Database]:
    found = Database(database)
    yield found
    found.close()


@pytest.fixture
def jobs(store: Database) -> JobQueue:
    return JobQueue(store)


def claim(jobs: JobQueue) -> Lease:
    """Queue a plan, unless it is, and claim it."""
    jobs.submit("a", PlanJob("a" * 64, "graph", b"ask"), 10)
    found = begin_next(jobs)
    assert found is not None
    return found


def test_a_worker_that_was_alive_only_before_does_not_count(jobs: JobQueue) -> None:
    jobs.heartbeat("one", "host", slots=1)
    assert PlanRepository(jobs.store).workers(6.0) == 1
    with jobs.store.begin() as connection:
        connection.execute(update(workers).values(seen_at=workers.c.seen_at + HOUR_S))
    assert PlanRepository(jobs.store).workers(6.0) == 0
    assert jobs.list_alive(6.0) == set()
    jobs.heartbeat("one", "host", slots=1)
    assert PlanRepository(jobs.store).workers(6.0) == 1


def test_a_delivery_is_made_and_once(jobs: JobQueue) -> None:
    hooks = WebhookStore(jobs.store)
    hooks.add("a", "key", "https://one.example/", 8)
    jobs.complete(claim(jobs), JobResult("failed", "for a test"))
    later = {"due_at": deliveries.c.due_at + HOUR_S, "created_at": deliveries.c.created_at + HOUR_S}
    with jobs.store.begin() as connection:
        connection.execute(update(deliveries).values(later))
    assert hooks.claim_due() is not None
    assert hooks.claim_due() is None, "it is in somebody's hands"
