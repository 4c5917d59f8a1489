"""Threads of the service live through every error, and what asks whether they live is told the truth."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from fastapi.testclient import TestClient
from sqlalchemy import Connection, create_engine, make_url, text
from sqlalchemy.exc import InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from api.http.app import create_worker_app
from api.jobs import background_loop
from api.jobs.background_loop import BackgroundLoop
from api.service import Service
from api.settings import Settings
from tests.testing.postgres_cluster import Cluster
from tests.testing.service import CHILDREN, LOCAL, MISBEHAVING, ask, ended, named, serving, start, wait_until

pytestmark = pytest.mark.service

ERRORS = [
    (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "OSError: [Errno 24] Too many open files"),
    (InternalError("INSERT", None, Exception("read-only transaction")), "database: read-only transaction"),
    (OperationalError("SELECT", None, Exception("connection refused")), "database: connection refused"),
    (PoolTimeout("QueuePool limit reached"), "TimeoutError: QueuePool limit reached"),
    (KeyError("a fault of ours"), "KeyError: 'a fault of ours'"),
]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_loop, "AFTER_ERROR_S", 0.02)


@pytest.mark.parametrize(("error", "said"), ERRORS)
def test_a_loop_lives_through_every_error_and_names_it_until_a_step_succeeds(error: Exception, said: str) -> None:
    fails, steps = threading.Event(), list[None]()
    fails.set()

    def step() -> float:
        steps.append(None)
        if fails.is_set():
            raise error
        return 0.01

    loop = BackgroundLoop("test", step)
    loop.start()
    wait_until(lambda: len(steps) >= 3, "the step is not repeated")
    assert loop.is_alive
    assert loop.error == said
    fails.clear()
    wait_until(lambda: not loop.error, "the error stays")
    loop.stop()
    loop.join()


@contextmanager
def without_writes(service: Service, monkeypatch: pytest.MonkeyPatch, error: Exception) -> Iterator[None]:
    """Make every write of a service fail."""

    @contextmanager
    def fail() -> Iterator[Connection]:
        raise error
        yield

    with monkeypatch.context() as patch:
        patch.setattr(service.store, "begin", fail)
        patch.setattr("api.jobs.executor.HEARTBEAT_S", 0.0)
        yield


def test_health_and_readiness_are_reported(database: str) -> None:
    with serving(database, children=MISBEHAVING) as client:
        assert client.get("/healthz").json()["status"] == "ok"
        assert client.get("/readyz").json() == {"status": "ok", "checks": {"database": True, "worker": True}}
        ended(client, ask(client, named("exit")).json()["id"])
        text = client.get("/metrics").text
        assert 'shardplan_solves_total{status="failed"} 1' in text
        assert 'shardplan_solve_seconds_count{status="failed"} 1' in text
        assert 'shardplan_plans{status="failed"} 1' in text
        loop = client.app.state.service.executor.loop  # type: ignore[attr-defined]
        loop.stop()
        loop.join()
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("error", [error for error, _ in ERRORS])
def test_a_worker_that_cannot_write_is_not_ready_and_works_again_when_it_can(
    databases: Callable[[], str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    url = databases()
    service = Service(Settings(url, workers=1), CHILDREN)
    with TestClient(create_worker_app(service), LOCAL) as probes:
        assert probes.get("/healthz").json() == {"status": "ok", "checks": {"threads": True}}
        with without_writes(service, monkeypatch, error):
            wait_until(lambda: probes.get("/readyz").status_code == 503, "it stays ready")
            assert probes.get("/readyz").json()["checks"] == {"database": True, "worker": False}
            assert probes.get("/healthz").status_code == 200
        with serving(url, workers=0) as client:
            assert ended(client, ask(client).json()["id"])["status"] == "optimal"
        wait_until(lambda: probes.get("/readyz").status_code == 200, "it is never ready again")


def test_a_plan_whose_child_cannot_be_started_is_not_counted_as_tried(
    databases: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = iter(range(10))

    def run(*_arguments: object) -> None:
        if next(fails, None) is None:
            monkeypatch.undo()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with serving(databases()) as client:
        monkeypatch.setattr(CHILDREN, "run", run)
        plan = ask(client).json()["id"]
        assert ended(client, plan)["status"] == "optimal"
    assert next(fails, None) is None


def test_a_worker_with_a_port_answers_probes_and_solves(databases: Callable[[], str], tmp_path: Path) -> None:
    url = databases()
    worker = start(url, tmp_path / "log", "--workers", "2", command="worker")
    assert worker.client.get("/healthz").json() == {"status": "ok", "checks": {"threads": True}}
    assert worker.client.get("/readyz").json() == {"status": "ok", "checks": {"database": True, "worker": True}}
    assert worker.client.get("/v1/plans").status_code == 404
    with serving(url) as client:
        assert ended(client, ask(client).json()["id"])["status"] == "optimal"
    worker.stop()


def test_metrics_of_a_worker_are_read_with_a_key_where_keys_exist(database: str) -> None:
    service = Service(Settings(database, workers=1), CHILDREN)
    with TestClient(create_worker_app(service), LOCAL) as probes:
        assert "shardplan_queue_seconds_count 0" in probes.get("/metrics").text
        key = service.keys.add("local", "admin")
        assert probes.get("/metrics").status_code == 401
        assert probes.get("/metrics", headers={"Authorization": f"Bearer {key}"}).status_code == 200
        assert probes.get("/healthz").status_code == 200


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_is_gone_is_told_by_the_liveness_probe(
    databases: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_thread(*_arguments: object, **_more: object) -> None:
        raise SystemExit

    service = Service(Settings(databases(), workers=1), CHILDREN)
    with TestClient(create_worker_app(service), LOCAL) as probes:
        monkeypatch.setattr(service.jobs, "heartbeat", end_thread)
        wait_until(lambda: probes.get("/healthz").status_code == 503, "the thread lives")
        assert probes.get("/healthz").json() == {"status": "unavailable", "checks": {"threads": False}}


def test_a_database_that_is_read_only_for_a_while_is_told_and_nothing_is_lost(cluster: Cluster) -> None:
    url = cluster.database()
    admin = create_engine(make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    name = make_url(url).database

    def set_read_only(state: str) -> None:
        with admin.connect() as connection:
            connection.execute(text("SET default_transaction_read_only = off"))
            connection.execute(text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {state}'))
            others = "FROM pg_stat_activity WHERE datname = :name AND pid <> pg_backend_pid()"
            connection.execute(text(f"SELECT pg_terminate_backend(pid) {others}"), {"name": name})

    with serving(url) as client:
        set_read_only("on")
        refused = ask(client)
        assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (503, "database-unavailable")
        set_read_only("off")
        wait_until(lambda: ask(client).status_code in (200, 202), "no plan is taken")
        assert ended(client, ask(client).json()["id"])["status"] == "optimal"
    admin.dispose()
