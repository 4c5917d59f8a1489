"""Workers on PostgreSQL are woken when a plan is queued anywhere, and find it by themselves where they are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from fastapi.testclient import TestClient
from sqlalchemy import text

from api.http.app import create_app, create_worker_app
from api.jobs import queue_listener
from api.service import Service
from api.settings import Settings
from tests.testing.postgres_cluster import Cluster
from tests.testing.service import CHILDREN, LOCAL, ask, ended, named, wait_until

pytestmark = pytest.mark.service

LISTENERS = (
    "FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid() AND datname = current_database()"
)


@contextmanager
def server_and_worker(cluster: Cluster) -> Iterator[tuple[TestClient, Service]]:
    """A server that solves nothing, and the service of a worker that listens."""
    url = cluster.database()
    worker = Service(Settings(url, workers=1), CHILDREN)
    with (
        TestClient(create_app(Service(Settings(url, workers=0), CHILDREN)), LOCAL) as client,
        TestClient(create_worker_app(worker), LOCAL),
    ):
        wait_until(lambda: listens(worker), "nothing listens")
        yield client, worker


def listens(worker: Service) -> bool:
    return worker.listener.poll_s == queue_listener.WOKEN_POLL_S


def listeners(worker: Service) -> int:
    with worker.store.connect() as connection:
        return int(connection.execute(text(f"SELECT count(*) {LISTENERS}")).scalar_one())


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a worker is woken, it does not find a plan by itself as long as a test lasts."""
    monkeypatch.setattr(queue_listener, "WOKEN_POLL_S", 3600.0)


@pytest.mark.usefixtures("no_polls")
def test_a_worker_of_another_process_is_woken(cluster: Cluster) -> None:
    with server_and_worker(cluster) as (client, worker):
        for name in "abc":
            assert ended(client, ask(client, named(name)).json()["id"])["status"] == "optimal"
        assert listeners(worker) == 1
    assert not listens(worker)


@pytest.mark.usefixtures("no_polls")
def test_a_worker_whose_listener_is_cut_off_polls_and_listens_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server_and_worker(cluster) as (client, worker):
        listen = worker.store.listen
        monkeypatch.setattr(worker.store, "listen", None)  # calling it fails: it stays cut off
        with worker.store.connect() as connection:
            killed = connection.execute(text(f"SELECT pg_terminate_backend(pid) {LISTENERS}")).all()
        assert len(killed) == 1
        wait_until(lambda: not listens(worker), "it does not notice")
        assert ended(client, ask(client, named("cut off")).json()["id"])["status"] == "optimal"
        monkeypatch.setattr(worker.store, "listen", listen)
        wait_until(lambda: listens(worker), "it does not listen again")
        assert ended(client, ask(client, named("again")).json()["id"])["status"] == "optimal"


def test_a_plan_whose_notification_is_lost_is_found(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with server_and_worker(cluster) as (client, _):
        monkeypatch.setattr("api.jobs.database.Database.notify", lambda _store: None)
        assert ended(client, ask(client, named("lost")).json()["id"])["status"] == "optimal"
