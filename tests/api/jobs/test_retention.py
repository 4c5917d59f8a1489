"""Old ended plans are purged and no others; a copy of the database has everything that the original had."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from sqlalchemy import func, select

from api.jobs.database import Database
from api.jobs.enqueue import PlanJob
from api.jobs.plan_repository import PlanRepository
from api.jobs.queue import JobQueue, JobResult
from api.jobs.retention import purge
from api.jobs.tables import events, idempotency, outcomes, plans
from api.jobs.workflows import Workflows
from tests.testing.command_line import refused, shardplan
from tests.testing.plan_queue import begin_next, list_workflows

DONE = JobResult("optimal", None, b"document")

ON_BOTH_DATABASES = True


def question(number: int) -> PlanJob:
    return PlanJob(f"{number:064x}", f"graph {number}", b"ask")


def filled(database: str) -> Database:
    """One plan done, one in hand, one in line."""
    store = Database(database)
    jobs = JobQueue(store)
    for number in range(3):
        jobs.submit("a", question(number), 10, key=f"key{number}")
    first = begin_next(jobs)
    assert first is not None
    jobs.complete(first, DONE)
    assert begin_next(jobs) is not None
    return store


def counts(store: Database) -> list[int]:
    with store.connect() as connection:
        tables = plans, outcomes, idempotency
        return [connection.execute(select(func.count()).select_from(table)).scalar_one() for table in tables]


def test_only_plans_that_ended_long_ago_are_purged(database: str) -> None:
    store = filled(database)
    assert purge(Workflows(store), 3600) == 0
    assert counts(store) == [3, 1, 3]
    assert purge(Workflows(store), -1) == 1
    assert counts(store) == [2, 0, 2]
    with store.connect() as connection:
        assert set(connection.execute(select(events.c.number)).scalars()) == {2, 3}
    assert PlanRepository(store).counts() == {"queued": 1, "running": 1}
    assert list_workflows(JobQueue(store)).keys() == {"2-1", "3-1"}
    store.close()


def test_a_purged_plan_may_be_requested_again(database: str) -> None:
    store = filled(database)
    purge(Workflows(store), -1)
    JobQueue(store).submit("a", question(0), 10, key="key0")
    found = PlanRepository(store).find("a", question(0).id)
    assert found is not None
    assert found.status == "queued"
    store.close()


def test_commands_show_the_queue_and_purge_old_plans(database: str) -> None:
    filled(database).close()
    told = shardplan("admin", "queue", "--database", database, "--json").json
    assert (told["workers"], told["plans"]) == (0, {"optimal": 1, "queued": 1, "running": 1})
    assert [(row["id"], row["state"]) for row in told["queue"]] == [
        (question(1).id, "running"),
        (question(2).id, "queued"),
    ]
    assert "graph 2" in shardplan("admin", "queue", "--database", database).out
    assert shardplan("admin", "purge", "--days", "1", "--database", database, "--json").json == {"purged": 0}
    assert shardplan("admin", "purge", "--days", "0", "--database", database, "--json").json == {"purged": 1}


def test_a_copy_holds_what_the_database_held(tmp_path: Path) -> None:
    store = filled(f"sqlite:///{tmp_path}/service.db")
    copy = tmp_path / "copy.db"
    assert shardplan("admin", "backup", copy, "--database", tmp_path / "service.db").code == 0
    assert copy.stat().st_mode & 0o777 == 0o600
    copied = Database(f"sqlite:///{copy}")
    assert counts(copied) == counts(store)
    copied.close()
    refused(shardplan("admin", "backup", copy, "--database", tmp_path / "service.db"), "a new file")
    refused(shardplan("admin", "backup", tmp_path / "no" / "copy.db", "--database", tmp_path / "service.db"), "No such")
    store.close()
