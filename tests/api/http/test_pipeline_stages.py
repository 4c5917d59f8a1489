"""Plans in pipeline stages over HTTP: their document, report and verdict, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2

from planner.documents.pipelines import parse_pipeline
from planner.frontends.zoo import import_zoo
from tests.testing.service import ask, ended, serving

SIZES: dict[str, Any] = {"layers": 1, "width": 16, "heads": 4, "feed_forward": 32, "vocabulary": 24}
STEP = import_zoo("llama-7b", train="sgd", batch=4, seq=8, **SIZES)

# The request, where the fault is, and what the message says.
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"pipeline": "0"}, "/request", "pipeline stages"),
    ({"pipeline": "2", "objective": "memory"}, "/request", "objective of a pipeline"),
    ({"schedule": "gpipe"}, "/request", "schedule"),
    ({"pipeline_meshes": "4/2"}, "/request", "that of the first rank"),
    ({"pipeline": "3", "pipeline_meshes": "2/2"}, "/request", "one mesh for each rank"),
    ({"pipeline": "2", "virtual_stages": 2}, "/request", "wanted 1, or interleaved"),
    ({"pipeline": "2", "schedule": "interleaved", "microbatches": 3}, "/request", "multiple of the 2 ranks"),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    folder: Path = tmp_path_factory.mktemp("service")
    with serving(f"sqlite:///{folder}/plans.db") as client:
        yield client


def test_a_plan_in_stages_is_exported(client: httpx2.Client) -> None:
    pytest.importorskip("jax", reason="jax is not installed: pip install shardplan[jax]")
    plan = ask(client, STEP, "2", request={"pipeline": "2", "microbatches": 2}).json()["id"]
    assert ended(client, plan)["status"] in ("optimal", "feasible")
    assert "def program(" in client.get(f"/v1/plans/{plan}/export?format=shard-map").text


def test_a_plan_in_stages_has_a_document_a_report_and_a_verdict(client: httpx2.Client) -> None:
    asked = ask(client, STEP, "2", request={"pipeline": "2", "microbatches": 3})
    assert asked.status_code == 202, asked.text
    plan = asked.json()["id"]
    assert ended(client, plan)["status"] in ("optimal", "feasible")
    document = client.get(f"/v1/plans/{plan}/document").json()
    assert parse_pipeline(document, "document").id == plan
    assert len(document["stages"]) == 2
    assert "<html" in client.get(f"/v1/plans/{plan}/report").text
    assert client.post("/v1/validations", json={"plan": plan}).json()["verdict"] == "equal"
    other = client.post("/v1/validations", json={"plan": plan, "precision": "f32"})
    assert (other.status_code, "how a pipeline is run" in other.text) == (422, True)
    assert "one of torch, shard-map" in client.get(f"/v1/plans/{plan}/export?format=sdy").text
    for sides in ({"base": plan, "new": plan}, {"base": document, "new": plan}):
        compared = client.post("/v1/comparisons", json={**sides, "fail_on": "time>1%"}).json()
        assert (compared["exceeded"], compared["stages"]["moved_cuts"]) == ([], [])
        assert client.post("/v1/comparisons", json=sides).json()["totals"]["sent_bytes"]["change"] == 0
    damaged = client.post("/v1/comparisons", json={"base": {**document, "tied": 1}, "new": plan})
    assert damaged.status_code == 422
    assert "/base/tied" in damaged.text
    assert ask(client, STEP, "2", request={"pipeline": "2", "microbatches": 3}).status_code == 200
    assert ask(client, STEP, "2", request={"microbatches": 3}).json()["id"] != plan


def test_each_rank_may_have_a_mesh_of_its_own(client: httpx2.Client) -> None:
    plan = ask(client, STEP, "2", request={"pipeline_meshes": "2/4", "microbatches": 3}).json()["id"]
    assert ended(client, plan)["status"] in ("optimal", "feasible")
    document = client.get(f"/v1/plans/{plan}/document").json()
    assert parse_pipeline(document, "document").id == plan
    assert document["request"]["pipeline"]["meshes"] == ["0=2", "0=4"]
    assert document["cost"]["devices"] == 6


def test_stages_are_the_best_known_when_the_time_is_up(client: httpx2.Client) -> None:
    asked = {"pipeline": "2", "microbatches": 3, "gap": 0.0, "time_limit_s": 0.01}
    plan = ask(client, STEP, "2", request=asked).json()["id"]
    ended_as = ended(client, plan)
    assert ended_as["status"] == "feasible"
    assert 0 < ended_as["bound_s"] <= ended_as["incumbent_s"]
    assert client.get(f"/v1/plans/{plan}/document").json()["solver"]["reason"] == "work or time limit"


@pytest.mark.parametrize(("request_", "pointer", "said"), BAD)
def test_what_stages_cannot_be_asked_for_is_refused(
    client: httpx2.Client, request_: dict[str, Any], pointer: str, said: str
) -> None:
    refused = ask(client, STEP, "2", request=request_)
    assert refused.status_code == 422
    assert said in refused.text
    assert pointer in refused.text
