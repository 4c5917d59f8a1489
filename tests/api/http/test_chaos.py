"""The server and its child are killed with SIGKILL while a plan is queued or solved.

Nothing that was acknowledged is lost, nothing is done twice, and no process is left behind. `benchmarks/chaos_kill.py`
kills at every stage, many times. The driver reads the database beside the server, which proves that each kill hit its
stage.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from tests.testing.postgres_cluster import Cluster
from tests.testing.processes import borne, descendants, gone
from tests.testing.service import SECONDS, Server, ask, chain, ended, named, start, work

LENGTH = 1_000
"""Products in the graph whose solve is killed: seconds of work."""
BESIDE = 2
"""Small plans in line behind it."""

Row = dict[str, Any]

STAGES: list[tuple[str, Callable[[Row], bool]]] = [
    ("solving", lambda row: row["progress"] is not None and row["status"] is None),
    ("stored", lambda row: row["status"] is not None),
]
KILLED_AT = [pytest.param(*STAGES[0], marks=pytest.mark.slow), STAGES[1]]

pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are followed by /proc"),
]


def rows(database: str) -> list[Row]:
    """Every plan with its outcomes and the number of its `done` events, by a reader of its own."""
    chosen = """SELECT plans.id, state, progress, status, attempts,
        (SELECT count(*) FROM outcomes WHERE number = plans.number) AS outcomes,
        (SELECT count(*) FROM events WHERE number = plans.number AND kind = 'done') AS done
        FROM plans LEFT JOIN outcomes USING (number, generation) ORDER BY number"""
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"), poolclass=NullPool)
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(text(chosen)).mappings()]


def reached(database: str, process: int, is_there: Callable[[Row], bool]) -> None:
    """Waits until the first plan has come to a stage, and holds the child that is at work there."""
    until = time.monotonic() + SECONDS
    while not is_there(rows(database)[0]):
        assert time.monotonic() < until
        time.sleep(0.01)
    for child in borne(process):
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGSTOP)


def asked(server: Server, name: str) -> list[str]:
    """A long plan and some small ones, all acknowledged."""
    answers = [ask(server.client, graph) for graph in (chain(name, LENGTH), *map(named, "ab"[:BESIDE]))]
    assert {answer.status_code for answer in answers} == {202}
    return [answer.json()["id"] for answer in answers]


def all_end_once(server: Server, database: str, plans: list[str]) -> None:
    for plan in plans:
        assert ended(server.client, plan)["status"] == "optimal"
        assert server.client.get(f"/v1/plans/{plan}/document").json()["id"] == plan
    assert [(row["id"], row["outcomes"], row["done"]) for row in rows(database)] == [(plan, 1, 1) for plan in plans]


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "is_there"), KILLED_AT)
def test_a_server_killed_at_a_stage_loses_nothing(
    stage: str, is_there: Callable[[Row], bool], database: str, tmp_path: Path
) -> None:
    server = start(database, tmp_path / "log")
    plans = asked(server, stage)
    reached(database, server.process.pid, is_there)
    children = descendants(server.process.pid)
    server.kill()
    assert is_there(rows(database)[0]), "the kill came too late"
    assert gone(children)
    server = start(database, tmp_path / "log")
    try:
        all_end_once(server, database, plans)
    finally:
        server.stop()


@pytest.mark.slow
def test_a_child_killed_while_it_solves_is_replaced(database: str, tmp_path: Path) -> None:
    server = start(database, tmp_path / "log")
    try:
        plans = asked(server, "solving")
        reached(database, server.process.pid, dict(STAGES)["solving"])
        for child in borne(server.process.pid):
            os.kill(child, signal.SIGKILL)
        assert rows(database)[0]["status"] is None, "the kill came too late"
        all_end_once(server, database, plans)
        assert rows(database)[0]["attempts"] == 2, "the one in reserve is dead too, and had not begun"
    finally:
        server.stop()


@pytest.mark.slow
def test_a_worker_killed_on_another_host_leaves_its_plan_to_the_others(cluster: Cluster, tmp_path: Path) -> None:
    database = cluster.database()
    server = start(database, tmp_path / "log", "--workers", "0")
    first = work(database, tmp_path / "first")
    try:
        plans = asked(server, "left")
        reached(database, first.pid, dict(STAGES)["solving"])
        children = descendants(first.pid)
        first.kill()
        first.wait()
        assert rows(database)[0]["status"] is None, "the kill came too late"
        assert gone(children)
        second = work(database, tmp_path / "second")
        all_end_once(server, database, plans)
        assert rows(database)[0]["attempts"] == 2
        second.terminate()
        assert second.wait(SECONDS) == 0
    finally:
        first.kill()
        server.stop()


@pytest.mark.slow
def test_what_is_acknowledged_under_fire_is_there_afterwards(database: str, tmp_path: Path) -> None:
    """The server is killed while it accepts, again and again; each answer that came is a plan that is kept."""
    kept: list[str] = []
    for volley in range(3):
        server = start(database, tmp_path / "log")
        until = time.monotonic() + 0.3
        for number in range(1000):
            kept.append(ask(server.client, named(f"{volley}.{number}")).json()["id"])
            if time.monotonic() > until:
                break
        server.kill()
        found = {row["id"] for row in rows(database)}
        assert found >= set(kept)
        assert len(found) == len(rows(database))


@pytest.mark.slow
def test_a_server_that_is_stopped_leaves_no_process(database: str, tmp_path: Path) -> None:
    server = start(database, tmp_path / "log")
    plans = asked(server, "stopped")
    reached(database, server.process.pid, dict(STAGES)["solving"])
    children = descendants(server.process.pid)
    server.stop()
    assert gone(children)
    assert {row["state"] for row in rows(database)} == {"queued"}
    assert [row["id"] for row in rows(database)] == plans
