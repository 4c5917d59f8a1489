"""Built-in models over HTTP: listed from one source, and planned like any other graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2

from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import MODELS, OPTIMIZERS, import_zoo
from tests.testing.postgres_cluster import Databases
from tests.testing.service import Server, planned, start

SMALL: dict[str, Any] = {"batch": 2, "seq": 8, "layers": 1}
TRAININGS: list[dict[str, Any]] = [
    {},
    {"train": "adam"},
    {"train": "lion:lr=1e-3", "clip_grad_norm": 1.0, "master": "none"},
]
WRONG = [
    ("/v1/models/nothing/graph", 404),
    ("/v1/models/gpt2/graph?seq=0", 422),
    ("/v1/models/gpt2/graph?train=adagrad", 422),
    ("/v1/models/gpt2/graph?train=adamw:rate=1", 422),
    ("/v1/models/gpt2/graph?clip_grad_norm=1", 422),
    ("/v1/models/gpt2/graph?train=sgd&master=f64", 422),
    ("/v1/models/gpt2/graph?bathc=2", 422),
]


@pytest.fixture(scope="module")
def server(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = start(databases(), tmp_path_factory.mktemp("models") / "log")
    yield found
    found.stop()


@pytest.fixture
def client(server: Server) -> httpx2.Client:
    return server.client


def test_the_models_listed_are_those_of_the_zoo(client: httpx2.Client) -> None:
    listed = client.get("/v1/models").json()
    assert [model["name"] for model in listed["models"]] == [*MODELS]
    assert listed["optimizers"] == [*OPTIMIZERS]


@pytest.mark.parametrize("training", TRAININGS)
def test_a_model_is_given_as_the_graph_that_the_command_line_writes(
    client: httpx2.Client, training: dict[str, Any]
) -> None:
    graph = client.get("/v1/models/gpt2/graph", params=SMALL | training).json()
    assert graph == import_zoo("gpt2", **SMALL, **training)
    GraphDocument.model_validate(graph)
    assert planned(client, graph)


@pytest.mark.parametrize(("path", "status"), WRONG)
def test_an_unknown_model_is_refused(client: httpx2.Client, path: str, status: int) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
