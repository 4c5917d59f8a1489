"""Which plan an executor takes next, how many at a time, and what becomes of plans whose executor gives up or dies."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from dbos import DBOSClient
from dbos._dbos import _get_dbos_instance
from sqlalchemy import insert, select

from api.http.requests import PlanRequest, build_plan_inputs, pack_json
from api.jobs import executor as executor_module
from api.jobs.database import Database
from api.jobs.enqueue import PlanJob
from api.jobs.executor import PlanExecutor
from api.jobs.plan_repository import PlanRepository
from api.jobs.queue import JobQueue, JobResult, Lease, LeaseLost
from api.jobs.tables import outcomes, plans
from api.jobs.worker import Worker, WorkerParts
from api.jobs.workflows import quieten_dbos
from api.metrics import Metrics
from api.settings import Limits
from planner.documents.schemas import validate_document
from tests.testing.old_database import old_database
from tests.testing.plan_queue import list_workflows
from tests.testing.processes import descendants, gone
from tests.testing.service import CHILDREN, ask, chain, ended, serving, wait_until, work
from tests.testing.small_documents import GRAPH

pytestmark = pytest.mark.service
ON_BOTH_DATABASES = True

DONE = JobResult("optimal", None, b"document")


@pytest.fixture
def jobs(database: str) -> Iterator[JobQueue]:
    store = Database(database)
    yield JobQueue(store)
    store.close()


def queue_plans(jobs: JobQueue, tenant: str, *names: str) -> None:
    for name in names:
        jobs.submit(tenant, PlanJob(f"{name:0>64}", name, b""), 1000)


class InstantWorker(Worker):
    """Stores a result at once, or what `solve` says; `order` has the plans in the order in which they began."""

    def __init__(self, jobs: JobQueue, solve: Callable[[Lease], None] = lambda lease: None) -> None:
        super().__init__(WorkerParts(jobs, CHILDREN, Limits(), Metrics(dict)))
        self.order: list[str] = []
        self.solve = solve

    def _solve(self, lease: Lease) -> bool:
        self.order.append(lease.id.lstrip("0"))
        self.solve(lease)
        return self.jobs.complete(lease, DONE)


@contextmanager
def executing(worker: InstantWorker, slots: int = 1) -> Iterator[PlanExecutor]:
    running = PlanExecutor(worker.jobs, {"plan": worker, "sweep": worker}, {"plan": slots, "sweep": 1})
    running.start()
    try:
        yield running
    finally:
        running.stop()


def all_ended(jobs: JobQueue) -> bool:
    return PlanRepository(jobs.store).counts().keys() <= {"optimal", "cancelled"}


def test_plans_of_a_tenant_begin_in_the_order_in_which_they_were_queued(jobs: JobQueue) -> None:
    queue_plans(jobs, "a", *"dacbe")
    with executing(worker := InstantWorker(jobs)):
        wait_until(lambda: all_ended(jobs), "plans are left")
    assert worker.order == [*"dacbe"]
    assert set(list_workflows(jobs).values()) == {"SUCCESS"}


def test_tenants_take_turns_however_many_plans_one_of_them_has(jobs: JobQueue) -> None:
    """Which line is next is drawn by lot: it is the other one's 30 times in a row once in a thousand million."""
    queue_plans(jobs, "many", *(f"m{number}" for number in range(40)))
    queue_plans(jobs, "few", "f1", "f2")
    with executing(worker := InstantWorker(jobs)):
        wait_until(lambda: "f1" in worker.order, "the other tenant's plan does not begin")
        assert worker.order.index("f1") < 30


def test_as_many_plans_are_solved_at_once_as_there_are_slots(jobs: JobQueue) -> None:
    together, now, most = threading.Barrier(3), 0, 0
    lock = threading.Lock()

    def solve(_lease: Lease) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait(60)
        with lock:
            now -= 1

    queue_plans(jobs, "a", *"abcdef")
    queue_plans(jobs, "b", *"ghi")
    with executing(InstantWorker(jobs, solve), slots=3) as running:
        assert PlanRepository(jobs.store).workers(6.0) == 3
        wait_until(lambda: all_ended(jobs), "plans are left")
        assert running.is_working
    assert most == 3
    assert PlanRepository(jobs.store).workers(6.0) == 0


def test_a_plan_whose_worker_fails_is_begun_again_and_the_error_is_told(jobs: JobQueue) -> None:
    fails = threading.Event()
    fails.set()

    def solve(_lease: Lease) -> None:
        if fails.is_set():
            raise KeyError("a fault of ours")

    queue_plans(jobs, "a", "a")
    with executing(worker := InstantWorker(jobs, solve)) as running:
        wait_until(lambda: len(worker.order) > 1, "it is not begun again")
        assert not running.is_working
        fails.clear()
        wait_until(lambda: all_ended(jobs), "plans are left")
        wait_until(lambda: running.is_working, "the error stays")


def test_no_error_ends_a_workflow_whose_plan_has_not_ended(jobs: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one in bringing it back: the executor's loop does so."""
    monkeypatch.setattr(executor_module, "HEARTBEAT_S", 0.2)
    fails = iter([True, False])

    def solve(_lease: Lease) -> None:
        if next(fails):
            raise KeyError("a fault of ours")

    bring_back, calls = jobs.workflows.bring_back, list[str]()

    def fail_once(workflow: str, queue: str) -> None:
        calls.append(workflow)
        if len(calls) == 1:
            raise OSError("no descriptors")
        bring_back(workflow, queue)

    monkeypatch.setattr(jobs.workflows, "bring_back", fail_once)
    queue_plans(jobs, "a", "a")
    with executing(InstantWorker(jobs, solve)):
        wait_until(lambda: all_ended(jobs), "plans are left")
    assert len(calls) > 1  # once more where the machine is so slow that it is taken and not begun for two heartbeats
    assert set(calls) == {"1-1"}


def test_a_workflow_that_ended_before_its_plan_is_made_anew_at_start(jobs: JobQueue) -> None:
    queue_plans(jobs, "a", "a", "b")
    jobs.workflows.cancel(["1-1"])
    assert jobs.workflows.enqueue_missing() == 1
    assert list_workflows(jobs) == {"1-1": "ENQUEUED", "2-1": "ENQUEUED"}


def test_a_plan_that_an_executor_gave_up_is_brought_back(jobs: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "HEARTBEAT_S", 0.2)
    first = threading.Event()

    def solve(_lease: Lease) -> None:
        if not first.is_set():
            first.set()
            raise LeaseLost

    queue_plans(jobs, "a", "a", "b")
    with executing(worker := InstantWorker(jobs, solve)):
        wait_until(lambda: all_ended(jobs), "plans are left")
    assert worker.order.count("a") == 2
    assert worker.order.count("b") == 1


def test_a_stopped_executor_leaves_its_plan_to_others(jobs: JobQueue) -> None:
    began = threading.Event()

    def wait_for_the_end(lease: Lease) -> None:
        began.set()
        wait_until(lambda: worker.is_stopping, "it is not stopped")
        jobs.release(lease)
        raise LeaseLost

    queue_plans(jobs, "a", "a")
    with executing(worker := InstantWorker(jobs, wait_for_the_end)):
        began.wait(60)
    assert PlanRepository(jobs.store).counts() == {"queued": 1}
    assert [*list_workflows(jobs).values()] == ["ENQUEUED"]
    with executing(InstantWorker(jobs)):
        wait_until(lambda: all_ended(jobs), "plans are left")


def test_cancelled_plans_hold_up_no_others(jobs: JobQueue) -> None:
    queue_plans(jobs, "a", *"abc")
    for name in "ab":
        assert jobs.cancel("a", f"{name:0>64}")
    assert sorted(list_workflows(jobs).values()) == ["CANCELLED", "CANCELLED", "ENQUEUED"]
    queue_plans(jobs, "a", "a")  # anew: its second generation
    with executing(worker := InstantWorker(jobs)):
        wait_until(lambda: all_ended(jobs), "plans are left")
    assert worker.order == ["c", "a"]


def test_a_process_runs_one_executor(jobs: JobQueue) -> None:
    with executing(InstantWorker(jobs)), pytest.raises(RuntimeError, match="one executor"):
        PlanExecutor(jobs, {}, {}).start()
    with executing(InstantWorker(jobs)) as running:
        assert running.is_alive


def test_the_setting_of_dbos_that_is_not_public_has_its_name(jobs: JobQueue) -> None:
    """A client may be told in public what an executor sets: not to pause for a minute while the database is away."""
    told = DBOSClient(system_database_engine=jobs.store.engine, retry_connection_errors=False)
    assert told._sys_db._retry_connection_errors is False
    with executing(InstantWorker(jobs)):
        assert _get_dbos_instance()._sys_db._retry_connection_errors is False
    told.destroy()


def test_a_warning_of_dbos_that_repeats_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    quieten_dbos()
    for _ in range(3):
        logging.getLogger("dbos").warning("the database is away")
    logging.getLogger("dbos").info("launched")
    assert [record.message for record in caplog.records] == ["the database is away"]


def test_the_plan_of_a_killed_process_is_done_by_another_once(database: str, tmp_path: Path) -> None:
    with serving(database, workers=0) as client:
        plan = ask(client, chain("left", 600)).json()["id"]
        victim = work(database, tmp_path / "log")
        wait_until(lambda: client.get(f"/v1/plans/{plan}").json()["status"] == "running", "it is not begun")
        children = descendants(victim.pid)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        assert client.get(f"/v1/plans/{plan}").json()["status"] == "running", "the kill came too late"
        assert gone(children)
    with serving(database) as client:
        assert ended(client, plan)["status"] == "optimal"
        store = client.app.state.service.store  # type: ignore[attr-defined]
        with store.connect() as connection:
            assert connection.execute(select(plans.c.attempts)).scalars().all() == [2]


def test_unfinished_plans_of_a_service_before_dbos_are_done(database: str) -> None:
    """One was queued, one was being solved, and one had ended."""
    with old_database(database, "0008") as connection:
        for number, state in enumerate(("queued", "running", "done"), 1):
            document = {"graph": {**GRAPH, "name": state}, "mesh": "dp=2,tp=4"}
            plan = build_plan_inputs(validate_document(PlanRequest, document, "body")).plan_id
            row = {"tenant": "local", "id": plan, "name": state, "request": pack_json(document), "generation": 1}
            counted = {"number": number, "state": state, "created_at": 0.0, "attempts": int(state != "queued")}
            connection.execute(insert(plans).values(**row, **counted))
        connection.execute(insert(outcomes).values(number=3, generation=1, status="infeasible", ended_at=1.0))
    with serving(database) as client:
        listed = client.get("/v1/plans").json()["plans"]
        assert [each["name"] for each in listed] == ["done", "running", "queued"]
        assert [ended(client, each["id"])["status"] for each in listed[1:]] == ["optimal", "optimal"]
        jobs = client.app.state.service.jobs  # type: ignore[attr-defined]
        assert list_workflows(jobs).keys() == {"1-1", "2-1"}
        assert jobs.workflows.enqueue_missing() == 0
