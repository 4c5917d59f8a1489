"""Plans over HTTP: created, found again, listed, cancelled, fetched."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2

from api.http.plan_intake import RecentRequests
from planner.documents.graphs import dump_graph
from planner.ir.mesh import Mesh
from tests.testing.command_line import shardplan
from tests.testing.micro_steps import two_layers
from tests.testing.postgres_cluster import Databases
from tests.testing.service import (
    ask,
    chain,
    ended,
    named,
    planned,
    serving,
)
from tests.testing.small_documents import GRAPH, MESH, pin, pins, typed, written

pytestmark = pytest.mark.service

KEYS = ["id", "status", "name", "incumbent_s", "bound_s", "gap", "error"]
KEYS += ["created_at", "started_at", "ended_at", "links"]


@pytest.fixture(scope="module")
def client(databases: Databases) -> Iterator[httpx2.Client]:
    with serving(databases()) as client:
        yield client


def test_a_plan_is_accepted_solved_and_found_again(client: httpx2.Client) -> None:
    first = ask(client)
    assert first.status_code == 202
    assert list(first.json()) == KEYS
    assert first.json()["status"] in ("queued", "running")
    plan = first.json()["id"]
    assert first.headers["location"] == f"/v1/plans/{plan}"
    found = ended(client, plan)
    assert found["status"] == "optimal"
    assert found["bound_s"] <= found["incumbent_s"]
    assert 0 <= found["gap"] <= 1e-3
    again = ask(client)
    assert (again.status_code, again.json()) == (200, found)


def test_the_document_is_the_one_that_the_command_line_writes(client: httpx2.Client, tmp_path: Path) -> None:
    plan = planned(client, request={"deterministic": True})
    document = client.get(f"/v1/plans/{plan}/document")
    file = tmp_path / "plan.json"
    told = shardplan("plan", written(tmp_path / "g.json", GRAPH), "--mesh", "dp=2,tp=4", "--deterministic", "-o", file)
    assert told.code == 0
    assert document.json() == json.loads(file.read_text())
    assert document.json()["id"] == plan


def test_a_mesh_is_a_document_or_a_notation(client: httpx2.Client) -> None:
    assert planned(client) == planned(client, mesh=MESH) == planned(client, hardware="h100-sxm")


def test_another_request_has_another_plan_id(client: httpx2.Client) -> None:
    asked: list[dict[str, Any]] = [{}, {"mesh": "dp=4,tp=2"}, {"hardware": "cpu"}, {"request": {"seed": 1}}]
    assert len({planned(client, **more) for more in asked}) == len(asked)


def test_pins_are_met(client: httpx2.Client) -> None:
    plan = planned(client, pins=pins(pin("b", [["tp"], []])))
    assert client.get(f"/v1/plans/{plan}/document").json()["shardings"]["b"]["split_axes"] == [["tp"], []]


@pytest.mark.parametrize("request_of", [{"microbatches": 2}, {"global_batch": 8}])
def test_a_step_of_several_micro_batches_is_planned(client: httpx2.Client, request_of: dict[str, int]) -> None:
    plan = planned(client, dump_graph(two_layers(4), Mesh.parse("2")), request=request_of)
    document = client.get(f"/v1/plans/{plan}/document").json()
    assert document["cost"]["microbatches"] == 2
    refused = ask(client, request={"microbatches": 2})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "#/request")


def test_a_plan_may_keep_to_a_standard_layout(client: httpx2.Client) -> None:
    step = dump_graph(two_layers(4), Mesh.parse("2"))
    plan = planned(client, step, mesh="dp=2,tp=2", request={"layout": "fsdp"})
    document = client.get(f"/v1/plans/{plan}/document").json()
    assert document["request"]["layout"] == "fsdp"
    refused = ask(client, step, mesh="3", request={"layout": "dp"})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "#/request")
    unknown = ask(client, step, request={"layout": "zero7"})
    assert unknown.status_code == 422
    assert "hsdp" in unknown.text


@pytest.mark.parametrize("objective", ["bytes", "memory"])
def test_a_plan_may_minimise_another_objective(client: httpx2.Client, objective: str) -> None:
    plan = ask(client, request={"objective": objective}).json()["id"]
    assert ended(client, plan)["status"] in ("optimal", "feasible")
    document = client.get(f"/v1/plans/{plan}/document").json()
    assert document["request"]["objective"] == objective
    assert document["solver"]["bound_bytes"] <= document["solver"]["objective_bytes"]


def test_infeasible_is_an_answer_with_a_document(client: httpx2.Client) -> None:
    plan = ask(client, request={"memory_limit_bytes": 1}).json()["id"]
    assert ended(client, plan)["status"] == "infeasible"
    solver = client.get(f"/v1/plans/{plan}/document").json()["solver"]
    assert solver["least_limit_bound_bytes"] > 1


def test_an_unchanged_document_is_not_sent_again(client: httpx2.Client) -> None:
    path = f"/v1/plans/{planned(client)}/document"
    first = client.get(path)
    assert client.get(path, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    assert client.get(path, headers={"If-None-Match": '"another"'}).status_code == 200
    plain = client.get(path, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.json() == first.json()


def test_a_body_may_be_gzip(client: httpx2.Client) -> None:
    body = gzip.compress(json.dumps({"graph": GRAPH, "mesh": "dp=2,tp=4"}).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert client.post("/v1/plans", content=body, headers=headers).json()["id"] == planned(client)


def test_an_idempotency_key_of_a_request_is_bound_to_its_first_body(client: httpx2.Client) -> None:
    headers = {"Idempotency-Key": "one"}
    first, second = (ask(client, named("keyed"), headers=headers) for _ in range(2))
    assert first.json()["id"] == second.json()["id"]
    other = ask(client, named("another"), headers=headers)
    assert other.status_code == 422
    assert other.json()["type"].endswith("idempotency-key-reused")


def test_equal_requests_at_the_same_time_are_one_plan(client: httpx2.Client) -> None:
    together = threading.Barrier(8)

    def one(_: int) -> str:
        together.wait()
        plan: str = ask(client, named("wanted by many")).json()["id"]
        return plan

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(one, range(8)))) == 1
    listed = client.get("/v1/plans", params={"limit": 200}).json()["plans"]
    assert sum(plan["name"] == "wanted by many" for plan in listed) == 1


def test_pages_hold_every_plan_once_the_newest_first(database: str) -> None:
    with serving(database, workers=0) as client:
        names = ["hang", "exit", "abort", "spin", "fault"]
        for name in names:
            ask(client, named(name))
        found: list[str] = []
        path = "/v1/plans?limit=2"
        while path:
            page = client.get(path).json()
            assert len(page["plans"]) <= 2
            found, path = found + [plan["name"] for plan in page["plans"]], page["next"]
        assert found == names[::-1]


def test_a_repeated_body_is_planned_again_where_it_had_no_answer(database: str) -> None:
    with serving(database, workers=0) as client:
        first, second = (ask(client, named("hang")) for _ in range(2))
        assert (first.status_code, second.status_code) == (202, 202)
        plan = first.json()["id"]
        assert second.json()["id"] == plan
        assert client.delete(f"/v1/plans/{plan}").json()["status"] == "cancelled"
        assert ask(client, named("hang")).json()["status"] in ("queued", "running")
        assert ask(client, named("hang")).json()["id"] == plan


def test_only_the_last_bodies_are_remembered() -> None:
    repeats = RecentRequests()
    for number in range(RecentRequests.MAX_BODIES + 1):
        repeats.remember(f"body {number}", f"plan {number}")
    assert repeats.find_plan("body 0") is None
    assert repeats.find_plan(f"body {RecentRequests.MAX_BODIES}") == f"plan {RecentRequests.MAX_BODIES}"


def test_a_time_limit_that_leaves_no_time_is_a_timeout_or_a_plan(client: httpx2.Client) -> None:
    plan = ask(client, chain("long", 40), request={"time_limit_s": 1e-3}).json()["id"]
    assert ended(client, plan)["status"] in ("feasible", "optimal", "timeout")


def test_a_number_too_large_for_a_plan_is_refused_before_it_is_queued(client: httpx2.Client) -> None:
    graph = {**GRAPH, "inputs": [{**GRAPH["inputs"][0], **typed(1 << 41)}, GRAPH["inputs"][1]]}
    assert ask(client, graph).status_code == 422
