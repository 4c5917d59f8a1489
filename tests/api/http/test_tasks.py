"""Requests that are answered at once: verdicts, comparisons, reshards; and profiles, limits, health, description."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2

from planner.choose import hardware
from tests.testing.command_line import shardplan
from tests.testing.postgres_cluster import Databases
from tests.testing.service import ask, ended, planned, serving
from tests.testing.small_documents import changed, pin, pins

pytestmark = pytest.mark.service

RESHARD = {"mesh": "2x3", "shape": [6, 6], "source": [[0], [1]], "target": [[1], [0]]}

RESHARD_FAULTS: list[tuple[str, object, str]] = [
    ("shape", [6, "6"], "#/shape/1"),
    ("dtype", "f7", "#/dtype"),
    ("mesh", "2xsix", "#/mesh"),
    ("hardware", "abacus", "#/hardware"),
    ("source", [[7]], "#/source"),
    ("target", {"split_axes": [[0], [0]]}, "#/target"),
    ("objective", "beauty", "#/objective"),
]


@pytest.fixture(scope="module")
def client(databases: Databases) -> Iterator[httpx2.Client]:
    with serving(databases()) as client:
        yield client


def test_a_plan_is_validated_by_its_id_or_its_document(client: httpx2.Client) -> None:
    plan = planned(client)
    document = client.get(f"/v1/plans/{plan}/document").json()
    for given in (plan, document):
        verdict = client.post("/v1/validations", json={"plan": given})
        assert verdict.status_code == 200, verdict.text
        assert verdict.json()["verdict"] == "equal"
        assert verdict.json()["counted_bytes"] == verdict.json()["predicted_bytes"]


def test_a_damaged_plan_is_not_run(client: httpx2.Client) -> None:
    document = client.get(f"/v1/plans/{planned(client)}/document").json()
    damaged = changed(document, "graph.document.name", "another")
    answer = client.post("/v1/validations", json={"plan": damaged})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "#/plan"
    assert "digest mismatch" in answer.json()["detail"]
    infeasible = ask(client, request={"memory_limit_bytes": 1}).json()["id"]
    ended(client, infeasible)
    assert client.post("/v1/validations", json={"plan": infeasible}).status_code == 422
    assert client.post("/v1/validations", json={"plan": "1" * 64}).status_code == 404


def test_two_plans_are_compared(client: httpx2.Client) -> None:
    base = planned(client)
    new = planned(client, pins=pins(pin("b", [[], []])))
    documents = [client.get(f"/v1/plans/{plan}/document").json() for plan in (base, new)]
    told = client.post("/v1/comparisons", json={"base": base, "new": documents[1]}).json()
    assert (told["base"], told["new"]) == (base, new)
    before, after = (document["cost"]["step_s"] for document in documents)
    assert told["totals"]["step_s"] == {"base": before, "new": after, "change": after - before}
    shardings = [document["shardings"] for document in documents]
    differing = {value for value in shardings[0] if shardings[0][value] != shardings[1][value]}
    assert {change["value"] for change in told["changes"]} == differing
    assert "b" in differing
    same = client.post("/v1/comparisons", json={"base": base, "new": base}).json()
    assert same["changes"] == []
    assert {total["change"] for total in same["totals"].values()} == {0}


def test_a_comparison_points_at_the_plan_that_is_wrong(client: httpx2.Client) -> None:
    plan = planned(client)
    document = client.get(f"/v1/plans/{plan}/document").json()
    for wrong, pointer in ((changed(document, "cost", {}), "#/new"), (changed(document, "mesh", 1), "#/new/mesh")):
        answer = client.post("/v1/comparisons", json={"base": plan, "new": wrong})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == pointer


def test_a_reshard_equals_that_of_the_command_line(client: httpx2.Client) -> None:
    answer = client.post("/v1/reshards", json=RESHARD)
    words = ["--mesh", "2x3", "--shape", "6x6", "--source", "[[0],[1]]", "--target", "[[1],[0]]", "--json"]
    assert answer.json() == shardplan("reshard", *words).json
    assert answer.json()["verified"] is True


@pytest.mark.parametrize(("key", "value", "pointer"), RESHARD_FAULTS)
def test_a_fault_in_a_reshard_has_a_pointer(key: str, value: object, pointer: str, client: httpx2.Client) -> None:
    answer = client.post("/v1/reshards", json={**RESHARD, key: value})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_hardware_and_limits_are_shown(client: httpx2.Client) -> None:
    listed = client.get("/v1/hardware").json()["hardware"]
    assert [profile["name"] for profile in listed] == hardware.list_profiles()
    limits = client.get("/v1/limits").json()
    assert limits["body_bytes"] == 16 << 20
    assert {"nodes", "edges", "mesh_devices", "nesting", "name_chars", "child_memory_bytes"} <= set(limits)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from references(each)


def test_the_description_is_complete_and_its_examples_are_valid(client: httpx2.Client) -> None:
    told = client.get("/openapi.json").json()
    assert told["openapi"].startswith("3.1")
    for reference in set(references(told)):
        at = told
        for part in reference.removeprefix("#/").split("/"):
            at = at[part]
    shown = 0
    for path, operations in told["paths"].items():
        for method, operation in operations.items():
            assert operation["description"], f"{method} {path}"
            assert all(each.get("description") for each in operation.get("parameters", ())), f"{method} {path}"
            if body := operation.get("requestBody"):
                content = body["content"]["application/json"]
                jsonschema.validate(content["example"], {**content["schema"], "components": told["components"]})
                shown += 1
    assert shown == 6


def test_every_part_of_a_request_is_described(client: httpx2.Client) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for name in (name for name in schemas if name.endswith(("Request", "Options"))):
        assert schemas[name]["description"], name
        for key, each in schemas[name]["properties"].items():
            parts = [each, *each.get("anyOf", ())]
            assert any("$ref" in part or part.get("description") for part in parts), f"{name}.{key}"


def test_answers_fit_the_description(client: httpx2.Client) -> None:
    told = client.get("/openapi.json").json()
    plan = planned(client)
    for path in ("/v1/plans", "/v1/plans/{plan}", "/v1/plans/{plan}/document", "/v1/hardware", "/v1/limits", "/readyz"):
        schema = told["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        answer = client.get(path.format(plan=plan)).json()
        jsonschema.validate(answer, {**schema, "components": told["components"]})


def test_the_example_of_a_plan_can_be_planned(client: httpx2.Client) -> None:
    told = client.get("/openapi.json").json()
    example = told["paths"]["/v1/plans"]["post"]["requestBody"]["content"]["application/json"]["example"]
    answer = client.post("/v1/plans", content=json.dumps(example), headers={"Content-Type": "application/json"})
    assert ended(client, answer.json()["id"])["status"] == "optimal"
