"""Reading and writing documents: round trips, the same bytes for the same document, limits, notations."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from planner import Plan, pipeline
from planner.choose.hardware import load_profile
from planner.documents.graphs import dump_graph, dump_mesh, load_graph, load_mesh, read_graph, read_mesh
from planner.documents.json_reader import MAX_BYTES, MAX_VALUES, parse_json, read_json
from planner.documents.json_writer import write_json
from planner.documents.plans import dump_plan, read_plan
from planner.documents.programs import dump_program, load_program
from planner.documents.schemas import GraphDocument, MeshDocument, validate_document
from planner.errors import InvalidDocument, InvalidMesh
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from tests.testing.command_line import child
from tests.testing.small_documents import GRAPH, MESH, changed, pin, pins, typed, written

ANNOTATED = {
    **GRAPH,
    "producer": {"name": "a test", "version": "1"},
    "annotations": [
        pin("x", [["tp"], []]),
        pin("a", [["dp"]], required=False, user="b"),
        pin("a", [[], []], required=False, partial={"reduction": "sum", "axes": ["dp", "tp"]}),
    ],
}

NOTATIONS = [
    ("dp=2,tp=4", ("dp", "tp"), (2, 4)),
    (" dp = 2 , tp = 4 ", ("dp", "tp"), (2, 4)),
    ("2x4", ("0", "1"), (2, 4)),
    ("8", ("0",), (8,)),
    ("2x?", ("0", "1"), (2, None)),
    ("dp=?", ("dp",), (None,)),
    ("a.b-c_1=3", ("a.b-c_1",), (3,)),
]

AXES = [([["dp"], ["tp"]], ((0,), (1,))), ([[0], [1]], ((0,), (1,))), ([["tp", 0]], ((1, 0),)), ([[], [1]], ((), (1,)))]


def planned(document: object = GRAPH, mesh: str = "dp=2,tp=4") -> Plan:
    found = Mesh.parse(mesh)
    graph = load_graph(validate_document(GraphDocument, document, "graph"), found)
    return pipeline.plan(graph, found, load_profile("h100-sxm"))


@pytest.mark.parametrize("document", [GRAPH, ANNOTATED], ids=["small", "annotated"])
def test_a_graph_written_and_read_is_the_same_graph(document: object) -> None:
    mesh = Mesh.parse("dp=2,tp=4")
    once = dump_graph(load_graph(validate_document(GraphDocument, document, "graph"), mesh), mesh)
    again = dump_graph(load_graph(validate_document(GraphDocument, once, "graph"), mesh), mesh)
    assert once == again
    assert once["inputs"] == GRAPH["inputs"]
    assert [node["op"] for node in once["nodes"]] == ["linear", "relu"]


def test_nodes_may_stand_in_any_order() -> None:
    mesh = Mesh.parse("2")
    turned = load_graph(validate_document(GraphDocument, {**GRAPH, "nodes": GRAPH["nodes"][::-1]}, "graph"), mesh)
    assert [op.id for op in turned.ops] == ["a", "b"]


def test_further_results_are_named_by_their_number() -> None:
    nodes = [
        {"id": "s", "op": "split", "inputs": ["x"], "attrs": {"dim": 1}, "outputs": [typed(8, 4), typed(8, 12)]},
        {"id": "r", "op": "relu", "inputs": ["s:1"], "outputs": [typed(8, 12)]},
    ]
    document = {**GRAPH, "nodes": nodes, "outputs": ["r", "s"]}
    graph = load_graph(validate_document(GraphDocument, document, "graph"), Mesh.parse("2"))
    assert graph.types["s:1"].shape == (8, 12)


@pytest.mark.parametrize("validated", [False, True])
def test_a_plan_written_and_read_is_the_same_plan(tmp_path: Path, validated: bool) -> None:
    plan = pipeline.validate_plan(planned(ANNOTATED)) if validated else planned(ANNOTATED)
    document = dump_plan(plan)
    write_json(tmp_path / "plan.json.gz", document)
    found = read_plan(tmp_path / "plan.json.gz")
    assert found.model_dump(mode="json", exclude_unset=True) == document
    assert plan.analysis is not None
    program = load_program(found)
    assert dump_program(program) == document["program"]
    assert str(program) == str(plan.analysis.program)


def test_a_mesh_written_and_read_is_the_same_mesh() -> None:
    for document in (
        MESH,
        {**MESH, "device": "cpu"},
        changed(MESH, "axes.1.link", "nvlink"),
        changed(MESH, "axes.0.size", "?"),
    ):
        assert dump_mesh(load_mesh(validate_document(MeshDocument, document, "mesh"))) == document


@pytest.mark.parametrize(("text", "names", "sizes"), NOTATIONS)
def test_mesh_notations(text: str, names: tuple[str, ...], sizes: tuple[int | None, ...]) -> None:
    mesh = read_mesh(text)
    assert (mesh.names, tuple(axis.size for axis in mesh.axes)) == (names, sizes)


def test_a_mesh_document_is_read_by_its_path(tmp_path: Path) -> None:
    path = written(tmp_path / "any-name", MESH)
    assert read_mesh(str(path)).notation == "dp=2,tp=4"
    assert read_mesh(str(path), "cpu").device == "cpu"
    with pytest.raises(InvalidMesh, match="does not parse"):
        read_mesh(str(tmp_path))


@pytest.mark.parametrize(("split_axes", "wanted"), AXES)
def test_integer_axes_are_positions(tmp_path: Path, split_axes: list[list[object]], wanted: object) -> None:
    path = written(tmp_path / "graph.json", {**GRAPH, "annotations": [pin("x", split_axes)]})
    assert read_graph(path, Mesh.parse("dp=2,tp=4")).annotations[0].sharding.split_axes == wanted


def test_names_win_over_positions_only_as_text(tmp_path: Path) -> None:
    """On `2x4` the axes are named 0 and 1: the text and the number say the same."""
    path = written(tmp_path / "graph.json", {**GRAPH, "annotations": [pin("x", [["0"], [1]])]})
    assert read_graph(path, Mesh.parse("2x4")).annotations[0].sharding == Sharding(((0,), (1,)))


def test_pins_are_added_to_the_annotations_of_the_graph(tmp_path: Path) -> None:
    graph = written(tmp_path / "graph.json", {**GRAPH, "annotations": [pin("x", [["dp"]])]})
    more = pins(
        pin("w", [["tp"]]), pin("a", [], partial={"reduction": "sum", "axes": ["dp"]}, required=False, user="b")
    )
    found = read_graph(graph, Mesh.parse("dp=2,tp=4"), written(tmp_path / "pins.json", more)).annotations
    assert [(one.value, one.required, one.user) for one in found] == [
        ("x", True, None),
        ("w", True, None),
        ("a", False, "b"),
    ]
    assert found[2].sharding == Sharding((), (0,), Reduction.SUM)


def test_a_pinned_value_has_the_pinned_sharding() -> None:
    document = dump_plan(planned({**GRAPH, "annotations": [pin("w", [["tp"]]), pin("b", [[], []])]}))
    assert document["shardings"]["w"] == {"split_axes": [["tp"], []]}
    assert document["shardings"]["b"] == {"split_axes": [[], []]}


def test_deterministic_plans_are_equal_to_the_byte(tmp_path: Path) -> None:
    graph = written(tmp_path / "graph.json", ANNOTATED)
    files = []
    for hash_seed in (1, 2):
        files.append(tmp_path / str(hash_seed) / "plan.json.gz")
        files[-1].parent.mkdir()
        answer = child("plan", graph, "--mesh", "dp=2,tp=4", "--deterministic", "-o", files[-1], hash_seed=hash_seed)
        assert answer.code == 0, answer.err
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_document_is_written_to_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    assert write_json(first, GRAPH) == write_json(second, GRAPH)
    assert first.read_bytes() == second.read_bytes()
    assert json.loads(gzip.decompress(first.read_bytes())) == GRAPH
    assert read_json(first) == GRAPH


def test_a_document_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = written(tmp_path / "plan.json", "kept")
    with pytest.raises(ValueError):
        write_json(path, {"number": float("nan")})
    assert path.read_text() == "kept"
    assert list(tmp_path.iterdir()) == [path]


def test_limits_are_exact(tmp_path: Path) -> None:
    text = b'"' + b"x" * (MAX_BYTES - 2) + b'"'
    assert len(read_json(written(tmp_path / "full.json", text))) == MAX_BYTES - 2
    with pytest.raises(InvalidDocument, match="too large"):
        read_json(written(tmp_path / "over.json", text + b" "))
    with pytest.raises(InvalidDocument, match="too large"):
        read_json(written(tmp_path / "over.json.gz", gzip.compress(text + b" ")))
    assert len(parse_json(b"[" + b"0," * (MAX_VALUES - 1) + b"0]", "text")) == MAX_VALUES
    with pytest.raises(InvalidDocument, match="too many values"):
        parse_json(b"[" + b"0," * MAX_VALUES + b"0]", "text")
