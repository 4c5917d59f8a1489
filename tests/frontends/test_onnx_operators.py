"""One ONNX operator per model: the import gives the numbers of ONNX's reference implementation, whole and split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner import Request, pipeline
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.onnx import build_graph_document
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.run.executor import SINGLE_DEVICE, run_program, run_whole
from tests.testing.hardware import EAGER
from tests.testing.onnx_operators import Case, binary, images, lookups, products, unary, views, x
from tests.testing.random_shards import reassembled

onnx: Any = pytest.importorskip("onnx", reason="onnx is not installed: pip install shardplan[onnx]")
pytest.importorskip("onnx.reference", reason="onnx is not installed: pip install shardplan[onnx]")

pytestmark = pytest.mark.frameworks("onnx")

F = np.float32
LOWEST = float(np.finfo(F).min)
MESH = "2x2"


COMPOSED = [*products(), *lookups(), *images()]
CASES = [*unary(), *binary(), *views(), *COMPOSED]


def model(case: Case) -> Any:
    """What `given` lists is an initializer, the rest an input."""
    helper = onnx.helper
    names = ["" if array is None else f"v{k}" for k, array in enumerate(case.operands)]
    arrays = [(k, name, case.operands[k]) for k, name in enumerate(names) if name]
    node = helper.make_node(case.op, names, [f"y{k}" for k in range(case.results)], "it", **case.attrs)
    kinds = {k: helper.np_dtype_to_tensor_dtype(array.dtype) for k, _, array in arrays}
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(n, kinds[k], a.shape) for k, n, a in arrays if k not in case.given],
        [helper.make_empty_tensor_value_info(f"y{k}") for k in range(case.results)],
        [onnx.numpy_helper.from_array(a, n) for k, n, a in arrays if k in case.given],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)


def reference(case: Case) -> list[Any]:
    fed = {f"v{k}": a for k, a in enumerate(case.operands) if a is not None and k not in case.given}
    with np.errstate(all="ignore"):
        made: list[Any] = onnx.reference.ReferenceEvaluator(model(case)).run(None, fed)
    return made


def arrays(case: Case, document: dict[str, Any]) -> dict[str, Any]:
    return {entry["id"]: case.operands[int(entry["id"][1:])] for entry in document["inputs"]}


def assert_close(got: Any, wanted: Any) -> None:
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got.astype(float), wanted.astype(float), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operator_gives_the_reference_s_numbers(case: Case) -> None:
    document = build_graph_document(model(case), "one")
    graph = load_graph(validate_document(GraphDocument, document, "one"), SINGLE_DEVICE)
    values = run_whole(graph, arrays(case, document), np, precision="f64")
    for name, wanted in zip(graph.outputs, reference(case), strict=True):
        assert_close(values[name], np.nan_to_num(wanted, neginf=LOWEST) if wanted.dtype == F else wanted)


@pytest.mark.parametrize("case", COMPOSED, ids=str)
def test_a_planned_operator_gives_the_same_numbers(case: Case) -> None:
    document = build_graph_document(model(case), "one")
    mesh = Mesh.parse(MESH)
    graph = load_graph(validate_document(GraphDocument, document, "one"), mesh)
    plan = pipeline.plan(graph, mesh, EAGER, request=Request(gap=0.01))
    assert isinstance(plan.analysis, Analysis)
    done = run_program(plan.analysis.program, arrays(case, document), np, precision="f64")
    whole = run_whole(graph, arrays(case, document), np, precision="f64")
    for number, name in enumerate(graph.outputs):
        shards = [outputs[number] for outputs in done.outputs]
        got = reassembled(plan.analysis.program, shards, np.float64, number)
        np.testing.assert_allclose(got, whole[name].astype(np.float64), rtol=1e-5, atol=1e-6)


def test_negative_padding_crops() -> None:
    case = Case("Pad", (x(4, 6), np.array([-1, 2, 0, -3])), given=(1,))
    document = build_graph_document(model(case), "cut")
    graph = load_graph(validate_document(GraphDocument, document, "cut"), SINGLE_DEVICE)
    made = run_whole(graph, arrays(case, document), np, precision="f64")[graph.outputs[0]]
    np.testing.assert_array_equal(made, np.pad(case.operands[0][1:, :3], ((0, 0), (2, 0))))
