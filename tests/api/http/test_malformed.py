"""Invalid graphs over HTTP: always a problem with a pointer into the body, never an internal error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2
from fastapi.testclient import TestClient

from api.http.app import create_app
from api.service import Service
from api.settings import Limits, Settings
from tests.testing.malformed_documents import ATTRIBUTES, CHANGES, MYSTERY, RULES, TEXTS
from tests.testing.service import CHILDREN, LOCAL
from tests.testing.small_documents import GRAPH, MESH, Document, changed, pin

pytestmark = pytest.mark.service

ASK: Document = {
    "graph": {**GRAPH, "annotations": [pin("x", [["dp"]])]},
    "mesh": MESH,
    "hardware": "h100-sxm",
    "request": {"gap": 0.01, "seed": 1, "time_limit_s": 1.5, "deterministic": False},
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """Nothing is solved: the application is not started."""
    database = tmp_path_factory.mktemp("service") / "service.db"
    limits = Limits(max_queued=1 << 30, requests_per_s=1e9, burst=1 << 30)
    service = Service(Settings(f"sqlite:///{database}", limits=limits), CHILDREN)
    yield TestClient(create_app(service), LOCAL)
    service.store.close()


def at(document: Any, pointer: str) -> bool:
    """Whether a pointer's place, or for a missing key its parent, is in the document."""
    *path, last = ["", *(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])]
    for part in path[1:]:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return last == "" or isinstance(document, dict) or int(last) < len(document)


def refused(answer: httpx2.Response, body: Any) -> Any:
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    (fault,) = answer.json()["errors"]
    assert at(body, fault["pointer"].removeprefix("#"))
    return fault


def test_what_the_command_line_refuses_is_refused_with_a_pointer(client: httpx2.Client) -> None:
    graphs = [changed(GRAPH, path, value) for path, value, _ in CHANGES]
    graphs += [changed(GRAPH, "nodes.1", {**MYSTERY, "rule": rule}) for rule, _ in RULES]
    for op, operands, result, attrs, _ in ATTRIBUTES:
        inputs = [{"id": f"x{k}", "kind": "input", "name": "", **each} for k, each in enumerate(operands)]
        node = {"id": "n", "op": op, "inputs": [entry["id"] for entry in inputs], "outputs": [result], "attrs": attrs}
        graphs.append({**GRAPH, "inputs": inputs, "nodes": [node], "outputs": ["n"]})
    assert len(graphs) > 100
    for graph in graphs:
        body = {"graph": graph, "mesh": "2x4"}
        content = json.dumps(body)
        answer = client.post("/v1/plans", content=content, headers={"Content-Type": "application/json"})
        assert refused(answer, body)["pointer"].startswith("#/graph"), content[:500]


def test_text_that_is_not_a_document_is_refused(client: httpx2.Client) -> None:
    for text, _ in TEXTS:
        answer = client.post("/v1/plans", content=text, headers={"Content-Type": "application/json"})
        assert refused(answer, {})["pointer"] == "#" or answer.status_code == 422


def places(document: Any, path: str = "") -> Iterator[str]:
    """Every place in a document, as `changed` names it."""
    if path:
        yield path
    keyed = dict(enumerate(document)) if isinstance(document, list) else document
    for key, value in keyed.items() if isinstance(keyed, dict) else ():
        yield from places(value, f"{path}.{key}" if path else str(key))


PLACES = list(places(ASK))
SCALARS = st.none() | st.booleans() | st.integers(-3, 1 << 66) | st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.sampled_from(["", "x", "a", "a:1", "dp", "tp", "?", "linear", "b k -> b k", "\0", "🙂"]) | st.text(
    max_size=8
)
VALUES = st.recursive(
    SCALARS | WORDS | st.sampled_from([ASK[key] for key in ASK] + [GRAPH["nodes"], GRAPH["inputs"]]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3))
def test_every_value_at_every_place_is_planned_or_refused(
    changes: list[tuple[str, Any]], client: httpx2.Client
) -> None:
    body: Any = ASK
    for path, value in changes:
        try:
            body = changed(body, path, value)
        except (KeyError, IndexError, TypeError, ValueError):  # an earlier change took the place away
            continue
    answer = client.post("/v1/plans", content=json.dumps(body), headers={"Content-Type": "application/json"})
    if answer.status_code != 202:
        refused(answer, body)
