"""Checks with limits over HTTP, and a base that a server keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2

from tests.testing.check_cases import NEVER, wider
from tests.testing.command_line import refused, shardplan
from tests.testing.postgres_cluster import Databases
from tests.testing.service import Server, planned, serving, start
from tests.testing.small_documents import GRAPH, written

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def client(databases: Databases) -> Iterator[httpx2.Client]:
    with serving(databases()) as client:
        yield client


def test_a_comparison_is_checked_against_limits(client: httpx2.Client) -> None:
    base, new = planned(client), planned(client, wider())
    told = client.post("/v1/comparisons", json={"base": base, "new": new, "fail_on": "memory>5%,time>1000%"}).json()
    (broken,) = told["exceeded"]
    assert broken["limit"] == "memory>5%"
    assert sum(term["change"] for term in broken["terms"]) == broken["change"]
    assert {"name": "a", "what": "op"}.items() <= broken["causes"][0].items()
    same = client.post("/v1/comparisons", json={"base": base, "new": base, "fail_on": "memory>5%"}).json()
    assert (same["graphs_equal"], same["exceeded"]) == (True, [])


def test_a_limit_that_does_not_parse_and_plans_that_differ_are_refused(client: httpx2.Client, tmp_path: Path) -> None:
    base = planned(client)
    answer = client.post("/v1/comparisons", json={"base": base, "new": base, "fail_on": "time>fast"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "#/fail_on"
    assert "character 6" in answer.json()["detail"]
    model, file = written(tmp_path / "model.json", GRAPH), tmp_path / "other.json"
    assert shardplan("plan", model, "--mesh", "dp=8", "-o", file).code == 0
    other = json.loads(file.read_text())
    answer = client.post("/v1/comparisons", json={"base": base, "new": other, "fail_on": "time>5%"})
    assert answer.status_code == 422
    assert "another mesh" in answer.json()["detail"]


@pytest.fixture(scope="module")
def server(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = start(databases(), tmp_path_factory.mktemp("serve") / "log")
    yield found
    found.stop()


def test_a_base_may_be_a_plan_that_a_server_keeps(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = written(tmp_path / "model.json", GRAPH)
    plan = planned(server.client, request={"deterministic": True})
    url = str(server.client.base_url)
    monkeypatch.setenv("SHARDPLAN_SERVER", url)
    answer = shardplan("check", model, "--base", plan, "--json")
    assert (answer.code, answer.json["graphs_equal"]) == (0, True)
    told = shardplan(
        "check", written(tmp_path / "wider.json", wider()), "--base", model, "--mesh", "dp=2,tp=4", "--json"
    )
    assert told.json["base"] == plan
    refused(shardplan("check", model, "--base", NEVER), "the id of a plan that it keeps")
