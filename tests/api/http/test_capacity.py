"""Capacity questions: sweeps of plans that are led by one worker, solved by all, and followed and cancelled as one."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2

from planner.documents.capacity import dump_capacity
from planner.documents.hardware import read_profile
from planner.judge.mesh_candidates import enumerate_candidates
from planner.planning.plan_types import Request
from planner.usecases.capacity import search_meshes
from planner.usecases.capacity_question import CapacityQuestion, CapacityWorkload, HardwareOffer
from tests.testing.postgres_cluster import Databases
from tests.testing.service import SECONDS, Server, ask, chain, ended, named, serving, start, work
from tests.testing.small_documents import Document

pytestmark = pytest.mark.service
ON_BOTH_DATABASES = True

CAPACITY_FAULTS: list[tuple[str, object, str]] = [
    ("models", [{"name": "gpt9"}], "#/models/0"),
    ("models", [{"name": "gpt2", "heads": 7}], "#/models/0"),
    ("models", [{"name": "gpt2", "hats": 7}], "#/models/0/hats"),
    ("graphs", [], "#/graphs"),
    ("devices", "8..4", "#/devices"),
    ("hardware", [{"name": "abacus"}], "#/hardware"),
    ("hardware", [{"name": "cpu", "price_per_device_hour": -1}], "#/hardware/0/price_per_device_hour"),
    ("mesh", "dp=?,tp=x", "#/mesh"),
    ("axes", 4, "#/axes"),
]


@pytest.fixture(scope="module")
def client(databases: Databases) -> Iterator[httpx2.Client]:
    with serving(databases()) as client:
        yield client


def question(name: str = "sized", devices: str = "2..4", **more: object) -> Document:
    return {"graphs": [named(name)], "devices": devices, "hardware": [{"name": "cpu"}], **more}


def found(client: httpx2.Client, link: str) -> Any:
    """Wait until a sweep has ended and return it."""
    until = time.monotonic() + SECONDS
    while (sweep := client.get(link).json())["ended_at"] is None:
        assert time.monotonic() < until, sweep
        time.sleep(0.05)
    return sweep


def answered(client: httpx2.Client, asked: Document) -> Any:
    """Ask a question, wait for its answer and return that."""
    answer = client.post("/v1/capacity", json=asked)
    assert answer.status_code in (200, 202), answer.text
    assert answer.headers["location"] == answer.json()["links"]["self"]
    sweep = found(client, answer.json()["links"]["self"])
    assert sweep["error"] is None
    document = client.get(sweep["links"]["document"]).json()
    assert sweep["status"] == ("complete" if document["complete"] else "incomplete")
    return document


def without_times(document: Any) -> Any:
    """Return an answer without how long its plans took."""
    return json.loads(json.dumps(document), object_hook=lambda part: {k: v for k, v in part.items() if k != "wall_s"})


def test_a_question_is_answered_as_the_command_line_answers_it(client: httpx2.Client) -> None:
    asked = question(hardware=[{"name": "cpu", "price_per_device_hour": 0.5}])
    document = answered(client, asked)
    offer = HardwareOffer(read_profile("cpu"), 0.5)
    here = search_meshes(
        CapacityQuestion(
            (CapacityWorkload(named("sized"), None),),
            (offer,),
            enumerate_candidates(1, 1, (2, 4), axes=2),
            Request(None, 0.01, 60.0),
        )
    )
    expected = dump_capacity(here)
    assert document["id"] == expected["id"]
    assert [one["devices"] for one in document["frontier"]] == [one["devices"] for one in expected["frontier"]]
    assert document["cheapest"]["cost"] == pytest.approx(expected["cheapest"]["cost"], rel=0.01)
    plan = document["frontier"][0]["plan"]["id"]
    assert client.get(f"/v1/plans/{plan}/document").json()["id"] == plan


def test_an_answered_question_is_not_searched_again_and_another_uses_its_plans(client: httpx2.Client) -> None:
    first = answered(client, question("again"))
    repeated = client.post("/v1/capacity", json=question("again"))
    assert (repeated.status_code, repeated.json()["status"]) == (200, "complete")
    plans = len(client.get("/v1/plans?limit=200").json()["plans"])
    priced = answered(client, question("again", hardware=[{"name": "cpu", "price_per_device_hour": 2.0}]))
    assert priced["planned"] >= 1
    assert len(client.get("/v1/plans?limit=200").json()["plans"]) == plans
    assert [one["mesh"] for one in priced["frontier"]] == [one["mesh"] for one in first["frontier"]]


def test_built_in_models_are_asked_for_as_their_graphs_are(client: httpx2.Client) -> None:
    sizes = {"layers": 1, "width": 64, "heads": 4, "feed_forward": 128, "vocabulary": 64, "seq": 16, "dtype": "f32"}
    models = [{"name": "gpt2", "train": "sgd", "batch": batch, **sizes} for batch in (4, 8)]
    asked = {"models": models, "devices": "2", "hardware": [{"name": "cpu"}], "global_batch": 8, "tokens": 1e9}
    document = answered(client, asked)
    assert document["graphs"] == [
        {"name": "gpt2", "tokens": 16 * batch, "batch": batch, "microbatches": 8 // batch} for batch in (4, 8)
    ]
    assert document["request"]["global_batch"] == 8
    assert document["frontier"][0]["run_days"] > 0


def test_a_question_whose_time_is_up_is_incomplete_and_goes_on_when_it_is_asked_again(client: httpx2.Client) -> None:
    hurried = question("hurried", time_limit_s=1e-9)
    assert not answered(client, hurried)["complete"]
    again = client.post("/v1/capacity", json=hurried)
    assert again.status_code == 202  # a search has begun: it is queued, or perhaps led already
    found(client, again.json()["links"]["self"])


@pytest.mark.parametrize(("key", "value", "pointer"), CAPACITY_FAULTS)
def test_a_fault_in_a_question_has_a_pointer(client: httpx2.Client, key: str, value: object, pointer: str) -> None:
    answer = client.post("/v1/capacity", json={**question(), key: value})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_a_fault_that_is_found_in_the_search_fails_the_question(client: httpx2.Client) -> None:
    link = client.post("/v1/capacity", json=question("poor", max_step_s=1e-12)).json()["links"]["self"]
    sweep = found(client, link)
    assert (sweep["status"], sweep["links"]["document"]) == ("failed", None)
    assert "no plan meets the budget" in sweep["error"]
    assert client.get(f"{link}/document").status_code == 409


def test_no_question_is_found_among_plans_and_no_plan_among_questions(client: httpx2.Client) -> None:
    sweep = client.post("/v1/capacity", json=question("kinds")).json()
    found(client, sweep["links"]["self"])
    plan = ask(client).json()["id"]
    assert client.get(f"/v1/plans/{sweep['id']}").status_code == 404
    assert client.get(f"/v1/capacity/{plan}").status_code == 404
    assert sweep["id"] not in [each["id"] for each in client.get("/v1/plans?limit=200").json()["plans"]]


def test_the_frontier_is_streamed(client: httpx2.Client) -> None:
    link = client.post("/v1/capacity", json=question("streamed")).json()["links"]["events"]
    told = client.get(link).text
    kinds = [line.removeprefix("event: ") for line in told.splitlines() if line.startswith("event: ")]
    assert kinds[0] == "queued"
    assert kinds[-1] == "done"
    last = json.loads([line for line in told.splitlines() if line.startswith("data: ")][-1].removeprefix("data: "))
    assert last["status"] == "complete"
    assert last["decided"] == last["candidates"]
    assert last["frontier"][0]["devices"] == 2


def slow_question(name: str) -> Document:
    """A question whose every candidate takes seconds."""
    return {"graphs": [chain(name, 300)], "devices": "2..8", "hardware": [{"name": "cpu"}], "jobs": 3}


def unfinished(client: httpx2.Client) -> list[str]:
    return [each["id"] for each in client.get("/v1/plans?limit=200").json()["plans"] if each["ended_at"] is None]


def wait_for_plans(client: httpx2.Client, count: int) -> None:
    until = time.monotonic() + SECONDS
    while len(unfinished(client)) < count:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_question_that_is_cancelled_ends_its_own_plans_and_no_others(client: httpx2.Client) -> None:
    other = ask(client, chain("other", 30)).json()["id"]
    link = client.post("/v1/capacity", json=slow_question("cancelled")).json()["links"]["self"]
    wait_for_plans(client, 3)
    sweep = client.delete(link).json()
    assert sweep["status"] == "cancelled"
    assert ended(client, other)["status"] == "optimal"
    time.sleep(0.5)  # what was asked for in the same moment would be queued by now
    assert unfinished(client) == []
    plans = client.get("/v1/plans?limit=200").json()["plans"]
    own = [each for each in plans if each["name"] == "cancelled"]
    # On a busy machine a plan may have been found by then.
    assert {each["status"] for each in own if each["ended_at"] > sweep["ended_at"]} <= {"cancelled"}
    assert "cancelled" in {each["status"] for each in own}


def test_a_plan_of_a_cancelled_question_that_somebody_asked_for_too_goes_on(client: httpx2.Client) -> None:
    link = client.post("/v1/capacity", json=slow_question("shared")).json()["links"]["self"]
    wait_for_plans(client, 1)
    plan = unfinished(client)[-1]
    request = {"gap": 0.01, "time_limit_s": 60.0}
    again = [
        client.post(
            "/v1/plans", json={"graph": chain("shared", 300), "mesh": each, "hardware": "cpu", "request": request}
        )
        for each in ("2", "4", "8")
    ]
    assert plan in [each.json()["id"] for each in again]
    client.delete(link)
    assert ended(client, plan)["status"] == "optimal"


@pytest.mark.slow
def test_a_question_survives_kills_of_leaders_and_servers_with_the_same_answer(database: str, tmp_path: Path) -> None:
    asked = {**slow_question("killed"), "graphs": [chain("killed", 60)], "devices": "2..16", "axes": 3}
    server = start(database, tmp_path / "log", "--workers", "0")
    other = start(f"sqlite:///{tmp_path}/other.db", tmp_path / "other")
    try:
        link = server.client.post("/v1/capacity", json=asked).json()["links"]["self"]
        for kill in range(5):
            leader = work(database, tmp_path / f"worker{kill}")
            _await_progress(server, link, kill + 1)
            os.killpg(leader.pid, signal.SIGKILL)
            leader.wait()
            if kill % 2:
                server.kill()
                server = start(database, tmp_path / f"server{kill}", "--workers", "0")
        last = work(database, tmp_path / "last")
        sweep = found(server.client, link)
        assert sweep["status"] == "complete", sweep
        survived = server.client.get(sweep["links"]["document"]).json()
        assert without_times(survived) == without_times(answered(other.client, asked))
        last.terminate()
        last.wait()
    finally:
        server.kill()
        other.kill()


def _await_progress(server: Server, link: str, planned: int) -> None:
    until = time.monotonic() + SECONDS
    while True:
        sweep = server.client.get(link).json()
        if sweep["ended_at"] or (sweep["progress"] or {}).get("planned", 0) >= planned:
            return
        assert time.monotonic() < until, sweep
        time.sleep(0.05)
