"""The queue: a commit is never lost, one worker holds a plan at a time, and a plan ends once.

Which plan is next, and where, is tested in `test_executor.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from sqlalchemy import func, select

from api.jobs.database import Database
from api.jobs.enqueue import PlanJob
from api.jobs.idempotency import IdempotencyConflict
from api.jobs.plan_repository import PlanRecord, PlanRepository
from api.jobs.queue import MAX_ATTEMPTS, MAX_CHILD_DEATHS, JobQueue, JobResult, Lease, LeaseLost
from api.jobs.queue_quota import QueueFull
from api.jobs.tables import events, plans
from tests.testing.plan_queue import begin_again, begin_next

DONE = JobResult("optimal", None, b"document", {"incumbent_s": 1.0, "bound_s": 1.0, "gap": 0.0})

ON_BOTH_DATABASES = True


def question(number: int) -> PlanJob:
    return PlanJob(f"{number:064x}", f"graph {number}", b"ask")


OPENED: list[Database] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def queue(database: str) -> tuple[JobQueue, PlanRepository]:
    store = Database(database)
    OPENED.append(store)
    return JobQueue(store), PlanRepository(store)


def record(records: PlanRepository, number: int, tenant: str = "a") -> PlanRecord:
    found = records.find(tenant, question(number).id)
    assert found is not None
    return found


def claimed(jobs: JobQueue) -> Lease:
    claim = begin_next(jobs)
    assert claim is not None
    return claim


def test_equal_requests_of_a_tenant_are_one_plan(database: str) -> None:
    jobs, records = queue(database)
    for tenant in ("a", "a", "b", "a"):
        jobs.submit(tenant, question(1), 10)
    assert records.counts() == {"queued": 2}
    assert records.find("c", question(1).id) is None


def test_hosts_that_queue_the_same_plans_at_once_queue_each_once(database: str) -> None:
    hosts = [queue(database)[0] for _ in range(4)]
    together = threading.Barrier(16)

    def submit(number: int) -> list[str]:
        together.wait()
        order = range(10) if number % 2 else reversed(range(10))
        jobs = hosts[number % 4]
        return [jobs.submit("a", question(each), 100, key=f"key {each}", body="same") for each in order]

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(submit, range(16)))
    assert {tuple(sorted(each)) for each in found} == {tuple(question(number).id for number in range(10))}
    with hosts[0].store.connect() as connection:
        assert connection.execute(select(func.count()).select_from(plans)).scalar_one() == 10
        assert connection.execute(select(func.count()).select_from(events)).scalar_one() == 10


def test_a_plan_that_ends_in_two_ways_at_once_ends_in_one(database: str) -> None:
    (first, records), (other, _) = queue(database), queue(database)
    for number in range(10):
        first.submit("a", question(number), 20)
        lease, together = claimed(first), threading.Barrier(2)
        ways: list[Callable[[], bool]] = [
            lambda lease=lease: first.complete(lease, DONE),  # type: ignore[misc]
            lambda plan=lease.id: other.cancel("a", plan),  # type: ignore[misc]
        ]

        def run(way: Callable[[], bool], together: threading.Barrier = together) -> bool:
            together.wait()
            return way()

        with ThreadPoolExecutor(2) as pool:
            ended = list(pool.map(run, ways))
        assert sorted(ended) == [False, True]
        assert record(records, number).status == ("optimal" if ended[0] else "cancelled")


def test_a_plan_that_another_worker_begins_is_lost_to_the_first_and_ends_once(database: str) -> None:
    jobs, records = queue(database)
    jobs.submit("a", question(1), 10)
    first = claimed(jobs)
    second = begin_again(jobs, first)
    assert not jobs.is_held(first)
    assert jobs.is_held(second)
    with pytest.raises(LeaseLost):
        jobs.begin(first.number, first.generation, first)
    jobs.release(first)
    assert jobs.is_held(second)
    assert jobs.complete(second, DONE)
    assert not jobs.complete(first, JobResult("failed", "late"))
    assert record(records, 1).status == "optimal"
    assert [told.kind for told in records.events(record(records, 1), 0, 10)][-1] == "done"


def test_a_plan_whose_children_die_fails(database: str) -> None:
    jobs, records = queue(database)
    jobs.submit("a", question(1), 10)
    for _ in range(MAX_CHILD_DEATHS):
        jobs.release(claimed(jobs), has_died=True)
    assert begin_next(jobs) is None
    assert record(records, 1).status == "failed"
    assert "child process was killed 3 times" in (record(records, 1).error or "")


def test_a_plan_survives_servers_that_are_killed_but_not_for_ever(database: str) -> None:
    jobs, records = queue(database)
    jobs.submit("a", question(1), 10)
    lease = claimed(jobs)
    for _ in range(MAX_ATTEMPTS - 1):
        assert record(records, 1).status == "running"
        lease = begin_again(jobs, lease)
    assert jobs.begin(lease.number, lease.generation) is None
    assert "worker disappeared 12 times" in (record(records, 1).error or "")


def test_a_plan_put_back_is_queued_again_however_often(database: str) -> None:
    jobs, records = queue(database)
    jobs.submit("a", question(1), 10)
    for _ in range(2 * MAX_ATTEMPTS):
        jobs.release(claimed(jobs))
    assert record(records, 1).status == "queued"


ENDINGS: list[tuple[str, Callable[[JobQueue, Lease], object]]] = [
    ("cancelled", lambda jobs, claim: jobs.cancel("a", claim.id)),
    ("failed", lambda jobs, claim: jobs.complete(claim, JobResult("failed", "why"))),
    ("timeout", lambda jobs, claim: jobs.complete(claim, JobResult("timeout"))),
]


@pytest.mark.parametrize(("status", "end"), ENDINGS)
def test_a_plan_without_an_answer_may_be_requested_again(
    status: str, end: Callable[[JobQueue, Lease], object], database: str
) -> None:
    jobs, records = queue(database)
    jobs.submit("a", question(1), 10)
    old = claimed(jobs)
    end(jobs, old)
    assert record(records, 1).status == status
    jobs.submit("a", question(1), 10)
    assert record(records, 1).status == "queued"
    assert not jobs.complete(old, DONE), "the worker of the first run comes late"
    assert record(records, 1).status == "queued"
    assert jobs.complete(claimed(jobs), DONE)
    jobs.submit("a", question(1), 10)
    assert record(records, 1).status == "optimal"
    assert records.document(record(records, 1)) == b"document"


def test_cancelling_an_ended_plan_changes_nothing(database: str) -> None:
    jobs, records = queue(database)
    jobs.submit("a", question(1), 10)
    jobs.complete(claimed(jobs), DONE)
    assert not jobs.cancel("a", question(1).id)
    assert not jobs.cancel("b", question(1).id)
    assert record(records, 1).status == "optimal"


def test_an_idempotency_key_is_bound_to_its_first_body(database: str) -> None:
    jobs, records = queue(database)
    first = jobs.submit("a", question(1), 10, key="key", body="body")
    jobs.cancel("a", first)
    assert jobs.submit("a", question(1), 10, key="key", body="body") == first
    assert record(records, 1).status == "cancelled", "a repeat is no new question"
    with pytest.raises(IdempotencyConflict):
        jobs.submit("a", question(2), 10, key="key", body="another body")
    assert records.find("a", question(2).id) is None
    jobs.submit("b", question(2), 10, key="key", body="another body")


def test_a_full_queue_refuses_plans_and_stores_no_key(database: str) -> None:
    jobs, records = queue(database)
    jobs.submit("a", question(1), 1)
    with pytest.raises(QueueFull):
        jobs.submit("a", question(2), 1, key="key", body="body")
    jobs.submit("b", question(2), 1)
    claimed(jobs)
    jobs.submit("a", question(2), 1, key="key", body="other body")
    assert record(records, 2).status == "queued"


def test_everything_is_kept_when_the_database_is_opened_again(database: str) -> None:
    jobs, _ = queue(database)
    jobs.submit("a", question(1), 10)
    jobs.submit("a", question(2), 10)
    jobs.complete(claimed(jobs), DONE)
    jobs.store.close()
    _, records = queue(database)
    assert [(each.name, each.status) for each in records.page("a", None, 10)] == [
        ("graph 2", "queued"),
        ("graph 1", "optimal"),
    ]
    assert records.document(record(records, 1)) == b"document"
