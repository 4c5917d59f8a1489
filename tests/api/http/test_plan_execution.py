"""Plans whose solves fail, are cancelled or interrupted: each ends once, and no process is left of it."""

from __future__ import annotations

import os
import time

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2
from sqlalchemy import select

from api.jobs.database import Database
from api.jobs.tables import plans
from api.settings import Limits
from tests.testing.processes import borne, children_of, gone
from tests.testing.service import MISBEHAVING, ask, chain, ended, named, serving, writers_stopped

pytestmark = pytest.mark.service


def test_cancelling_ends_the_child_within_a_second_and_the_next_is_served(database: str) -> None:
    with serving(database, children=MISBEHAVING) as client:
        held, waiting = (ask(client, named(name)).json()["id"] for name in ("family", "spin"))
        child = at_work(client, held)
        family = [child, *children_of(child)]
        assert client.delete(f"/v1/plans/{waiting}").json()["status"] == "cancelled"
        assert client.delete(f"/v1/plans/{held}").json()["status"] == "cancelled"
        assert gone(family)
        assert client.delete(f"/v1/plans/{held}").json()["status"] == "cancelled", "again: as it is"
        assert client.get(f"/v1/plans/{held}/document").status_code == 409
        assert ask(client, named("spin")).status_code == 202, "asked anew"


def at_work(client: httpx2.Client, plan: str) -> int:
    """The process id of the child that works on a plan: the one that has children of its own."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if client.get(f"/v1/plans/{plan}").json()["status"] == "running":
            for child in borne(os.getpid()):
                if children_of(child):
                    return child
        time.sleep(0.02)
    raise AssertionError("nothing is at work")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("exhaust", "out of memory"),
        ("abort", "crashed (SIGABRT)"),
        ("exit", "ended with code 3"),
        ("hang", "gave no answer within 1 s"),
        ("killed", "was killed 3 times"),
    ],
)
def test_a_failing_solve_is_a_failed_plan_with_its_error(name: str, error: str, database: str) -> None:
    limits = Limits(child_wall_s=30.0 if name != "hang" else 1.0, child_memory_bytes=1 << 30)
    with serving(database, limits, children=MISBEHAVING) as client:
        found = ended(client, ask(client, named(name)).json()["id"])
        assert found["status"] == "failed"
        assert error in found["error"]
        assert client.get(f"/v1/plans/{found['id']}/document").status_code == 409


def test_a_stopping_service_puts_its_plan_back_into_the_queue(database: str) -> None:
    with serving(database, children=MISBEHAVING) as client:
        plan = ask(client, named("family")).json()["id"]
        family = [child := at_work(client, plan), *children_of(child)]
    assert gone(family)
    with serving(database, children=MISBEHAVING) as client:
        at_work(client, plan)


@pytest.mark.slow
def test_a_locked_database_does_not_stop_a_solve(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.jobs.database.LOCK_TIMEOUT_MS", 100)
    other = Database(database)
    with serving(database) as client:
        plan = ask(client, chain("long", 200)).json()["id"]
        while client.get(f"/v1/plans/{plan}").json()["status"] == "queued":
            time.sleep(0.02)
        with writers_stopped(other):
            time.sleep(3)  # longer than the solve: its outcome waits too
            assert client.get(f"/v1/plans/{plan}").json()["status"] == "running"
        assert ended(client, plan)["status"] == "optimal"
    with other.connect() as connection:
        assert connection.execute(select(plans.c.attempts)).all() == [(1,)]
    other.close()
