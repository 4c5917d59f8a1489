"""Server-sent events: each one once and in order, from the first event or from the last one received."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2

from api.jobs.api_keys import ApiKeys
from api.jobs.database import Database
from api.settings import Limits
from tests.testing.postgres_cluster import Databases
from tests.testing.service import MISBEHAVING, SECONDS, Server, ask, chain, ended, events, named, serving, start
from tests.testing.small_documents import GRAPH

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def server(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = start(databases(), tmp_path_factory.mktemp("service") / "log")
    yield found
    found.stop()


def test_a_plan_is_followed_from_the_queue_to_its_end(server: Server) -> None:
    plan = ask(server.client).json()["id"]
    with server.client.stream("GET", f"/v1/plans/{plan}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        told = events("".join(stream.iter_text()))
    kinds = [kind for _, kind, _ in told]
    assert kinds[:2] == ["queued", "running"]
    assert kinds[-1] == "done"
    assert set(kinds[2:-1]) <= {"incumbent"}
    numbers = [number for number, _, _ in told]
    assert numbers == sorted(set(numbers))
    assert told[-1][2]["status"] == "optimal"
    assert {"incumbent_s", "bound_s", "gap"} <= set(told[-1][2])


def test_a_client_that_reconnects_gets_the_events_since(server: Server) -> None:
    plan = ask(server.client, GRAPH).json()["id"]
    ended(server.client, plan)
    path = f"/v1/plans/{plan}/events"
    whole = events(server.client.get(path).text)
    for seen, (number, _, _) in enumerate(whole):
        answer = server.client.get(path, headers={"Last-Event-ID": str(number)})
        assert events(answer.text) == whole[seen + 1 :]
        assert answer.status_code == (204 if seen == len(whole) - 1 else 200)


def test_a_plan_requested_again_continues_in_the_same_stream(database: str) -> None:
    with serving(database, children=MISBEHAVING) as client:
        plan = ask(client, named("exit")).json()["id"]
        ended(client, plan)
        ask(client, named("exit"))
        ended(client, plan)
        told = events(client.get(f"/v1/plans/{plan}/events").text)
        assert [kind for _, kind, _ in told] == ["queued", "running", "done"] * 2
        assert "ended with code 3" in told[-1][2]["error"]


def test_a_plan_cancelled_ends_the_stream(server: Server) -> None:
    plans = [ask(server.client, named(f"in line {k}")).json()["id"] for k in range(3)]
    with (
        httpx2.Client(base_url=server.client.base_url) as other,
        server.client.stream("GET", f"/v1/plans/{plans[2]}/events", timeout=60) as stream,
    ):
        pieces = stream.iter_text()
        heard = next(pieces)
        other.delete(f"/v1/plans/{plans[2]}")
        told = events(heard + "".join(pieces))
    assert told[-1][1] == "done"
    assert told[-1][2]["status"] in ("cancelled", "optimal")


def test_a_server_that_is_stopped_ends_its_streams_in_order(database: str, tmp_path: Path) -> None:
    server = start(database, tmp_path / "log")
    plan = ask(server.client, chain("long", 200)).json()["id"]
    with httpx2.Client(base_url=server.client.base_url) as other:
        with other.stream("GET", f"/v1/plans/{plan}/events", timeout=60) as stream:
            pieces = stream.iter_text()
            heard = next(pieces)
            server.stop()
            told = events(heard + "".join(pieces))
        assert "done" not in [kind for _, kind, _ in told]
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("number", ["last", "-1", "1" * 30])
def test_an_event_that_was_never_sent_is_refused(number: str, server: Server) -> None:
    plan = ask(server.client).json()["id"]
    answer = server.client.get(f"/v1/plans/{plan}/events", headers={"Last-Event-ID": number})
    assert answer.status_code == 422


def test_a_stream_ends_when_its_key_is_revoked(database: str, tmp_path: Path) -> None:
    store = Database(database)
    keys = ApiKeys(store)
    text = keys.add("a", "plan")
    server = start(database, tmp_path / "log", "--workers", "0")
    server.client.headers["Authorization"] = f"Bearer {text}"
    plan = ask(server.client).json()["id"]
    with server.client.stream("GET", f"/v1/plans/{plan}/events") as stream:
        pieces = stream.iter_text()
        heard = next(pieces)
        keys.revoke(text.split("_")[1])
        told = events(heard + "".join(pieces))
    assert [kind for _, kind, _ in told] == ["queued"]
    server.stop()
    store.close()


def test_no_more_streams_are_open_than_allowed(database: str) -> None:
    with serving(database, Limits(streams=0), children=MISBEHAVING) as client:
        plan = ask(client, named("hang")).json()["id"]
        assert client.get(f"/v1/plans/{plan}/events").status_code == 429


def test_a_burst_opens_no_more_streams_than_allowed_and_each_that_ends_makes_room(
    database: str, tmp_path: Path
) -> None:
    most = Limits().streams
    server = start(database, tmp_path / "log", "--workers", "0", "--rate-limit", "1000")
    plan = ask(server.client, chain("long", 20)).json()["id"]
    heard, leave = Barrier(2 * most + 1), Event()

    def listen(_number: int) -> int:
        with (
            httpx2.Client(base_url=server.client.base_url, timeout=SECONDS) as client,
            client.stream("GET", f"/v1/plans/{plan}/events") as stream,
        ):
            heard.wait()
            leave.wait()
            return int(stream.status_code)

    with ThreadPoolExecutor(2 * most) as threads:
        answers = threads.map(listen, range(2 * most))
        heard.wait()
        leave.set()
        assert sorted(answers) == [200] * most + [429] * most
    until = time.monotonic() + SECONDS
    while True:
        with server.client.stream("GET", f"/v1/plans/{plan}/events") as stream:
            if stream.status_code == 200:
                break
        assert time.monotonic() < until
        time.sleep(0.05)
    server.stop()
