"""Exports over HTTP: every format of the command line, with the same bytes, or a problem that says why not."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2

from planner.documents.graphs import dump_graph
from planner.documents.plans import parse_plan
from planner.documents.programs import load_program
from planner.export.formats import FORMATS, export_program
from planner.ir.mesh import Mesh
from tests.testing.export_formats import WORDS as FORMAT_WORDS
from tests.testing.micro_steps import two_layers
from tests.testing.postgres_cluster import Databases
from tests.testing.service import ask, ended, planned, serving
from tests.testing.small_documents import pin, pins

pytestmark = pytest.mark.service

JSON = {"dtensor", "partition-spec", "model-explorer"}
WORDS = dict(FORMAT_WORDS)
STEP = dump_graph(two_layers(4), Mesh.parse("2"))
REFUSING = [name for name, row in FORMATS.items() if not row.has_loops]


@pytest.fixture(scope="module")
def client(databases: Databases) -> Iterator[httpx2.Client]:
    with serving(databases()) as client:
        yield client


def there(name: str) -> bool:
    extra = FORMATS[name].extra
    return extra is None or find_spec(extra) is not None


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_equals_that_of_the_command_line(name: str, client: httpx2.Client) -> None:
    plan = planned(client, pins=pins(pin("b", [["tp"], []])))
    answer = client.get(f"/v1/plans/{plan}/export", params={"format": name})
    if not there(name):
        assert answer.status_code == 422
        assert answer.json()["wanted"] == f"shardplan[{FORMATS[name].extra}]"
        return
    assert answer.status_code == 200, answer.text
    assert WORDS[name] in answer.text
    if FORMATS[name].extra is None:  # a framework is not imported here for it
        document = client.get(f"/v1/plans/{plan}/document").json()
        assert answer.text == export_program(load_program(parse_plan(document, "plan")), name)
    assert answer.headers["content-type"] == f"{FORMATS[name].media}; charset=utf-8"
    assert (FORMATS[name].media == "application/json") == (name in JSON)
    export = client.get("/openapi.json").json()["paths"]["/v1/plans/{plan}/export"]["get"]
    declared = export["responses"]["200"]["content"][FORMATS[name].media]["schema"]["type"]
    assert declared == ("object" if name in JSON and isinstance(answer.json(), dict) else "string")


@pytest.mark.parametrize("name", REFUSING)
def test_a_program_that_a_format_cannot_express_is_a_problem_that_names_it(name: str, client: httpx2.Client) -> None:
    plan = planned(client, STEP, request={"microbatches": 2})
    answer = client.get(f"/v1/plans/{plan}/export", params={"format": name})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert f"format {name}: the format has no loop" in answer.json()["detail"]
    assert answer.json()["detail"].count(f"format {name}:") == 1
    assert answer.json()["got"] == "a step of 2 micro-batches"


def test_a_plan_that_does_not_fit_has_nothing_to_export(client: httpx2.Client) -> None:
    plan = ask(client, request={"memory_limit_bytes": 1}).json()["id"]
    assert ended(client, plan)["status"] == "infeasible"
    told = client.get(f"/v1/plans/{plan}/export", params={"format": "mesh"})
    assert (told.status_code, told.json()["got"]) == (422, "infeasible")


def test_the_formats_are_listed(client: httpx2.Client) -> None:
    assert client.get("/v1/limits").json()["export_formats"] == list(FORMATS)
    described = client.get("/openapi.json").json()["paths"]["/v1/plans/{plan}/export"]["get"]
    (form,) = (each for each in described["parameters"] if each["name"] == "format")
    assert form["schema"]["enum"] == list(FORMATS)
    assert {home.media for home in FORMATS.values()} <= described["responses"]["200"]["content"].keys()
    refused = client.get(f"/v1/plans/{'0' * 64}/export", params={"format": "gspmd"})
    assert refused.status_code == 422
    assert "got gspmd, wanted one of mesh, shard" in refused.json()["detail"]
