"""Models in other tools' formats as a request's body: converted in a child process, then planned like any graph."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2

from tests.testing.service import ended, serving
from tests.testing.small_documents import GRAPH

pytestmark = pytest.mark.service

STABLEHLO = """
module @product {
  func.func public @main(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>) -> tensor<8x32xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
    return %0 : tensor<8x32xf32>
  }
}
"""
ASKED = {"mesh": "dp=2,tp=2", "gap": "0.01", "name": "mine"}
WRONG = [
    ("text/x-stablehlo", b"module {", ASKED, "not StableHLO"),
    ("text/x-stablehlo", b"\xff", ASKED, "not text"),
    ("text/x-stablehlo", STABLEHLO.encode(), {}, "the mesh is missing"),
    ("text/x-stablehlo", STABLEHLO.encode(), {**ASKED, "mesh": "2xx"}, "mesh"),
    ("text/x-stablehlo", STABLEHLO.encode(), {**ASKED, "gap": "2"}, "gap"),
    ("text/x-stablehlo", STABLEHLO.encode(), {**ASKED, "gaps": "1"}, "gaps"),
    ("application/x-onnx", b"\x08\x07", ASKED, "not an ONNX model"),
    ("application/x-torch-export+json", b"{}", ASKED, "not an exported program"),
]
FAULT_TYPES = ("invalid-document", "invalid-graph", "invalid-mesh", "invalid-parameter")
JAX, ONNX, TORCH = (pytest.mark.frameworks(name) for name in ("jax", "onnx", "torch"))
MARKS = {"text/x-stablehlo": JAX, "application/x-onnx": ONNX, "application/x-torch-export+json": TORCH}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    with serving(f"sqlite:///{tmp_path_factory.mktemp('service')}/service.db") as client:
        yield client


def asked(client: httpx2.Client, kind: str, body: bytes, **query: str) -> httpx2.Response:
    return client.post("/v1/plans", content=body, params=query, headers={"Content-Type": kind})


def onnx_model() -> bytes:
    from onnx import helper

    values = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", ["n", 16]), ("w", [16, 32]))]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", 1, ["n", 32])])
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString())


def torch_model() -> bytes:
    import torch

    written = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.Linear(16, 32), (torch.zeros(8, 16),)), written)
    return written.getvalue()


def planned(client: httpx2.Client, answer: httpx2.Response) -> set[str]:
    """The ops of the plan that the answer promises."""
    assert answer.status_code in (200, 202), answer.text
    plan = answer.json()["id"]
    assert ended(client, plan)["status"] == "optimal"
    document = client.get(f"/v1/plans/{plan}/document").json()
    assert (document["graph"]["name"], document["request"]["gap"]) == ("mine", 0.01)
    return {node["op"] for node in document["graph"]["document"]["nodes"]}


@JAX
def test_stablehlo_text_is_planned_and_a_repeated_text_is_the_same_plan(client: httpx2.Client) -> None:
    first = asked(client, "text/x-stablehlo", STABLEHLO.encode(), **ASKED)
    assert planned(client, first) == {"einsum"}
    again = asked(client, "text/x-stablehlo", STABLEHLO.encode(), **ASKED)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


@ONNX
def test_an_onnx_file_is_planned(client: httpx2.Client) -> None:
    assert planned(client, asked(client, "application/x-onnx", onnx_model(), dim="n=8", **ASKED)) == {"matmul"}


@TORCH
def test_an_exported_program_is_planned(client: httpx2.Client) -> None:
    assert planned(client, asked(client, "application/x-torch-export+json", torch_model(), **ASKED)) == {"linear"}


@pytest.mark.parametrize(
    ("kind", "body", "query", "told"), [pytest.param(*each, marks=MARKS[each[0]]) for each in WRONG]
)
def test_a_model_that_cannot_be_converted_is_a_problem(
    kind: str, body: bytes, query: dict[str, str], told: str, client: httpx2.Client
) -> None:
    answer = asked(client, kind, body, **query)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert told in answer.json()["detail"]
    # As where the server finds it, though here a child process does.
    assert answer.json()["type"].rpartition(":")[2] in FAULT_TYPES


def test_a_json_request_takes_no_query_parameters(client: httpx2.Client) -> None:
    answer = client.post("/v1/plans", json={"graph": GRAPH, "mesh": "2x2"}, params={"mesh": "2x2"})
    assert (answer.status_code, answer.json()["parameter"]) == (422, "mesh")


def test_another_content_type_is_refused_with_those_that_are_taken(client: httpx2.Client) -> None:
    answer = client.post("/v1/plans", content=b"x", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415
    assert {"application/json", *MARKS} == set(answer.json()["wanted"].split(" or "))
