"""Documents imported from ONNX files: sizes, weights, known numbers, the command, and the refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import InvalidDocument, InvalidGraph, InvalidRequest, ShardplanError, UnsupportedOp
from planner.frontends.onnx import build_graph_document, import_onnx
from planner.frontends.uncovered_ops import UnknownOpWarning
from planner.ir.mesh import Mesh
from tests.testing.command_line import refused, shardplan
from tests.testing.onnx_files import BOOL, FLOAT, INT64, helper, layer, model, node, numbers, onnx, without_field

WITHOUT = """
import sys
sys.modules["onnx"] = None
from pathlib import Path
from planner.errors import ShardplanError
from planner.frontends.onnx import import_onnx
try:
    import_onnx(Path("model.onnx"))
except ShardplanError as error:
    raise SystemExit(str(error))
"""


def branching() -> Any:
    def branch() -> Any:
        inside = [helper.make_node("Identity", ["x"], ["inner"])]
        return helper.make_graph(inside, "branch", [], [helper.make_empty_tensor_value_info("inner")])

    return model(
        [
            node("ReduceMax", "x", "top", keepdims=0),
            node("Cast", "top", "condition", to=BOOL),
            node("If", "condition", "chosen", then_branch=branch(), else_branch=branch()),
        ],
        {"x": [4]},
        ["chosen"],
    )


def foreign() -> Any:
    nodes = [
        helper.make_node("FusedThing", ["x"], ["a"], "first", domain="com.example"),
        helper.make_node("FusedThing", ["a"], ["b"], "second", domain="com.example"),
        node("Relu", "b", "c"),
        node("MaxPool", "x", "d e", kernel_shape=[2]),
        node("Cast", "e", "f", to=FLOAT),
        node("Add", "c f", "out"),
    ]
    proto = model(nodes, {"x": [1, 2, 8]}, ["out"])
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    return proto


# what is wrong with it -> model, sizes of dims, error, words
REFUSED: dict[str, tuple[Callable[[], Any], dict[str, int], type[ShardplanError], list[str]]] = {
    "a dynamic dim": (lambda: layer("batch"), {}, InvalidGraph, ["input 'x' dim 0", "batch", "--dim batch=8"]),
    "a dim without a name": (
        lambda: model([node("Relu", "x", "y")], {"x": [None]}, ["y"]),
        {},
        InvalidGraph,
        ["--dim x:0=8"],
    ),
    "a size of no dim": (
        layer,
        {"batch": 4},
        InvalidRequest,
        ["dim that no input has", "batch", "every size is fixed"],
    ),
    "a misspelt dim": (lambda: layer("batch"), {"batch": 4, "bach": 2}, InvalidRequest, ["bach", "one of batch"]),
    "a size below 1": (lambda: layer("batch"), {"batch": 0}, InvalidRequest, ["batch", "1 or more"]),
    "control flow": (branching, {}, InvalidGraph, ["control flow", "If 'CHOSEN'", "without If, Loop, Scan"]),
    "operators of another domain": (
        foreign,
        {},
        UnsupportedOp,
        ["FusedThing (of com.example", "first"],
    ),
    "a shape that depends on data": (
        lambda: model([node("NonZero", "x", "places"), node("Cast", "places", "y", to=FLOAT)], {"x": [4]}, ["y"]),
        {},
        InvalidGraph,
        ["node 'PLACES' (NonZero)", "shape depends on data"],
    ),
    "a target that depends on data": (
        lambda: model(
            [node("Cast", "t", "target", to=INT64), node("Reshape", "x target", "y")], {"x": [4], "t": [2]}, ["y"]
        ),
        {},
        InvalidGraph,
        ["node 'Y' (Reshape)", "shape depends on data"],
    ),
    "operands that do not fit": (
        lambda: model([node("MatMul", "x y", "z")], {"x": [4, 5], "y": [6, 7]}, ["z"]),
        {},
        InvalidGraph,
        ["node 'Z' (MatMul)", "operands do not fit"],
    ),
    "shape arithmetic that fails": (
        lambda: model(
            [node("Div", "a b", "c"), node("Reshape", "x c", "y")],
            {"x": [4]},
            ["y"],
            {"a": numbers(4, 2), "b": numbers(1, 2, 3)},
        ),
        {},
        InvalidGraph,
        ["node 'C' (Div)"],
    ),
    "a reference to nothing": (
        lambda: model([node("Add", "x nothing", "y")], {"x": [4]}, ["y"]),
        {},
        InvalidGraph,
        ["node 'Y' (Add)", "nothing", "an initializer"],
    ),
    "text": (
        lambda: model([node("Cast", "x", "words", to=8), node("Identity", "words", "y")], {"x": [4]}, ["y"]),
        {},
        UnsupportedOp,
        ["dtype STRING", "WORDS"],
    ),
    "a missing shape": (
        lambda: without_field(layer(), "flat"),
        {},
        InvalidGraph,
        ["external data", "flat", "nowhere.data"],
    ),
}


def test_the_document_has_the_model_s_names_and_no_shape_arithmetic() -> None:
    document = build_graph_document(layer(), "layer")
    assert [(entry["name"], entry["kind"], entry["shape"]) for entry in document["inputs"]] == [
        ("x", "input", [4, 3, 6]),
        ("w", "parameter", [6, 8]),
        ("b", "parameter", [8]),
    ]
    assert [(n["id"], n["op"], n["inputs"], n["outputs"][0]["shape"]) for n in document["nodes"]] == [
        ("y", "addmm", ["b", "x", "w"], [4, 3, 8]),
        ("out", "relu", ["y"], [4, 3, 8]),
    ]
    assert document["outputs"] == ["out"]


def test_a_symbolic_dim_with_a_size_is_a_fixed_one() -> None:
    assert build_graph_document(layer("batch"), "layer", {"batch": 4}) == build_graph_document(layer(4), "layer")


def test_two_imports_give_identical_bytes() -> None:
    one, other = (json.dumps(build_graph_document(layer(), "layer"), allow_nan=False) for _ in range(2))
    assert one == other


def test_weights_in_a_missing_file_make_the_same_document() -> None:
    assert build_graph_document(without_field(layer(), "w", "b"), "layer") == build_graph_document(layer(), "layer")


def test_a_shape_in_a_file_beside_the_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "nowhere.data").write_bytes(numbers(-1, 6).tobytes())
    onnx.save(without_field(layer(), "flat", "w"), tmp_path / "layer.onnx")
    assert import_onnx(tmp_path / "layer.onnx") == build_graph_document(layer(), "layer")


def test_a_weight_of_a_single_number_is_that_number() -> None:
    proto = model([node("Mul", "x scale", "y")], {"x": [4]}, ["y"], {"scale": np.array([0.5], "f4")})
    (only,) = build_graph_document(proto, "scaled")["nodes"]
    assert (only["inputs"], only["attrs"]) == (["x"], {"scalar": 0.5})


def test_a_table_of_whole_numbers_is_a_constant() -> None:
    proto = model([node("Gather", "x table", "y")], {"x": [4, 2]}, ["y"], {"table": numbers(3, 1, 0)})
    kinds = {entry["name"]: entry["kind"] for entry in build_graph_document(proto, "table")["inputs"]}
    assert kinds == {"x": "input", "table": "constant"}


def test_what_no_output_depends_on_is_left_out() -> None:
    nodes = [node("Loopy", "x", "dead"), node("Relu", "x", "y"), node("Exp", "z", "more")]
    document = build_graph_document(model(nodes, {"x": [4], "z": [4]}, ["y"]), "dead")
    assert [entry["id"] for entry in (*document["inputs"], *document["nodes"])] == ["x", "y"]


def test_a_function_of_the_model_s_own_is_opened() -> None:
    body = [helper.make_node("Mul", ["a", "a"], ["square"]), helper.make_node("Relu", ["square"], ["b"])]
    own = helper.make_function("own", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    proto = model([helper.make_node("Twice", ["x"], ["y"], domain="own")], {"x": [4]}, ["y"])
    proto.functions.append(own)
    proto.opset_import.append(helper.make_opsetid("own", 1))
    assert [entry["op"] for entry in build_graph_document(proto, "own")["nodes"]] == ["multiply", "relu"]


# Variants of operators that have a row: nodes, shapes of inputs, what the warning names.
VARIANTS: list[tuple[list[Any], dict[str, list[int]], str]] = [
    ([node("Einsum", "x y", "z", equation="...j,kj->...k")], {"x": [2, 8], "y": [4, 8]}, r"Einsum .*dots.*, 1x at Z"),
    (
        [node("MaxPool", "x", "d e", kernel_shape=[2]), node("Cast", "e", "f", to=FLOAT), node("Add", "d f", "z")],
        {"x": [1, 2, 8]},
        r"MaxPool \(more than the first result\), 1x at D",
    ),
]


@pytest.mark.parametrize(("nodes", "inputs", "named"), VARIANTS)
def test_a_variant_that_no_row_takes_is_planned_replicated_with_a_warning(
    nodes: list[Any], inputs: dict[str, list[int]], named: str
) -> None:
    with pytest.warns(UnknownOpWarning, match="planned replicated.*" + named):
        document = build_graph_document(model(nodes, inputs, ["z"]), "variant")
    load_graph(validate_document(GraphDocument, document, "variant"), Mesh.parse("2"))
    assert document["nodes"][0]["op"] == f"onnx.{nodes[0].op_type}"
    assert len(document["nodes"]) == len(nodes)


def test_an_operator_without_a_row_is_planned_replicated_with_a_warning() -> None:
    with pytest.warns(UnknownOpWarning, match="planned replicated.*Det, 1x at Y"):
        document = build_graph_document(model([node("Det", "x", "y")], {"x": [4, 3, 3]}, ["y"]), "det")
    (only,) = document["nodes"]
    assert (only["op"], only["rule"]) == ("onnx.Det", "u0 u1 u2 -> u3; blocked u0 u1 u2 u3")


@pytest.mark.parametrize("wrong", REFUSED)
def test_a_model_without_an_equivalent_is_refused(wrong: str) -> None:
    make, sizes, error, words = REFUSED[wrong]
    with pytest.raises(error) as caught:
        build_graph_document(make(), "bad", sizes)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


@pytest.mark.parametrize("kept", [0, 1, 40, 200])
def test_a_truncated_file_is_refused(kept: int, tmp_path: Path) -> None:
    file = tmp_path / "cut.onnx"
    file.write_bytes(layer().SerializeToString()[:kept])
    with pytest.raises(InvalidDocument, match=r"cut.onnx: not an ONNX model"):
        import_onnx(file)


def test_the_command_writes_a_graph_document(tmp_path: Path) -> None:
    onnx.save(layer("batch"), tmp_path / "layer.onnx")
    told = shardplan("import", "onnx", tmp_path / "layer.onnx", "--dim", "batch=4", "-o", tmp_path / "g.json", "--json")
    assert {key: told.json[key] for key in ("name", "nodes", "inputs")} == {"name": "layer", "nodes": 2, "inputs": 3}
    assert json.loads((tmp_path / "g.json").read_text())["outputs"] == ["out"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--dim batch=8"),
        (["--dim", "batch"], "a name and a size, such as batch=8"),
        (["--dim", "batch=0"], "1 or more"),
        (["--dim", "batch=9999999999999"], "a name and a size"),
    ],
)
def test_the_command_refuses_in_one_line(options: list[str], words: str, tmp_path: Path) -> None:
    onnx.save(layer("batch"), tmp_path / "layer.onnx")
    refused(shardplan("import", "onnx", tmp_path / "layer.onnx", *options, "-o", tmp_path / "g.json"), words)


def test_a_file_that_is_not_onnx_is_refused(tmp_path: Path) -> None:
    refused(shardplan("import", "onnx", tmp_path / "no.onnx", "-o", tmp_path / "g.json"), "cannot be read")
    (tmp_path / "text.onnx").write_text("a model, they said")
    refused(shardplan("import", "onnx", tmp_path / "text.onnx", "-o", tmp_path / "g.json"), "not an ONNX model")


def test_a_missing_package_is_named_with_the_extra_that_brings_it() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert (
        ended.stderr.strip().splitlines()[-1]
        == "import onnx: onnx is not installed (wanted pip install shardplan[onnx])"
    )
