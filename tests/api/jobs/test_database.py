"""The database: migrations make its tables, a newer one is left alone, and the service recovers after an outage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from dbos import DBOS
from sqlalchemy import insert, make_url, select, text

from api.jobs.database import Database
from api.jobs.enqueue import PlanJob
from api.jobs.queue import JobQueue
from api.jobs.tables import metadata, webhooks
from planner.errors import InvalidRequest
from tests.testing.old_database import old_database
from tests.testing.plan_queue import list_workflows
from tests.testing.postgres_cluster import Cluster, running_cluster
from tests.testing.service import MISBEHAVING, SECONDS, ask, named, serving

ON_BOTH_DATABASES = True


def test_the_migrations_make_the_tables(database: str) -> None:
    store = Database(database)
    with store.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    store.close()


def test_secrets_of_webhooks_from_before_are_those_of_standard_webhooks(database: str) -> None:
    """A secret with the two letters that base64 for URLs has of its own."""
    with old_database(database, "0007") as connection:
        values = {"id": "a", "url": "https://x.example/", "tenant": "t", "key": "k", "created_at": 0.0}
        connection.execute(insert(webhooks).values(**values, secret="whsec_" + "-_" * 21 + "A"))
    store = Database(database)
    with store.connect() as connection:
        secret = connection.execute(select(webhooks.c.secret)).scalar_one()
    store.close()
    assert secret == "whsec_" + "+/" * 21 + "A="


def test_a_database_is_opened_by_many_at_once_and_again(database: str) -> None:
    stores = [Database(database) for _ in range(3)]
    assert all(store.is_reachable() for store in stores)
    for store in stores:
        store.close()


def test_databases_are_opened_by_threads_at_once(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path / f'{number}.db'}" for number in range(8)]
    with ThreadPoolExecutor(len(urls)) as pool:
        stores = list(pool.map(Database, urls))
    for store in stores:
        assert store.is_reachable()
        store.close()


def test_a_newer_database_is_refused_and_left_alone(database: str) -> None:
    store = Database(database)
    with store.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(InvalidRequest, match=r"another version.*9999"):
        Database(database)
    with store.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == "9999"
    store.close()


def test_a_missing_database_is_one_error_without_its_password() -> None:
    with pytest.raises(InvalidRequest, match="cannot be used") as error:
        Database("postgresql://shardplan:secret@127.0.0.1:1/plans")
    assert "secret" not in str(error.value)


def test_a_connection_returned_after_close_is_closed(database: str) -> None:
    store = Database(database)
    with store.connect() as lent:
        store.close()
        assert lent.execute(text("SELECT 1")).scalar_one() == 1
        driver = lent.connection.driver_connection
    assert driver is not None
    with pytest.raises(Exception, match="closed"):
        driver.execute("SELECT 1")


def test_the_clock_is_the_same_for_all(database: str) -> None:
    store = Database(database)
    with store.connect() as connection:
        assert abs(store.now(connection) - time.time()) < 60
    store.close()


def test_a_user_who_may_not_make_the_tables_of_dbos_uses_those_that_the_owner_made(cluster: Cluster) -> None:
    url = cluster.database()
    owner = Database(url)
    with owner.begin() as connection:
        connection.execute(text("CREATE ROLE limited LOGIN"))
        for table in ("ALL TABLES", "ALL SEQUENCES"):
            connection.execute(text(f"GRANT ALL ON {table} IN SCHEMA public TO limited"))
    limited = Database(str(make_url(url).set(username="limited")))
    with pytest.raises(InvalidRequest, match=r"tables of DBOS cannot be made .*permission denied.*dbos migrate"):
        JobQueue(limited)
    DBOS.migrate(url, application_role="limited")
    jobs = JobQueue(limited)
    jobs.submit("a", PlanJob("a" * 64, "graph", b""), 1)
    assert list_workflows(jobs) == {"1-1": "ENQUEUED"}
    limited.close()
    owner.close()


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    with running_cluster() as found:
        yield found


def test_a_server_reports_a_database_outage_and_recovers_by_itself(own_cluster: Cluster) -> None:
    with serving(own_cluster.database(), children=MISBEHAVING) as client:
        kept = ask(client, named("hang")).json()["id"]
        own_cluster.halt()
        answer = ask(client, named("late"))
        assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        own_cluster.start()
        until = time.monotonic() + SECONDS
        while client.get("/readyz").status_code != 200:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert client.get(f"/v1/plans/{kept}").json()["status"] in ("queued", "running")
        assert ask(client, named("late")).status_code == 202
