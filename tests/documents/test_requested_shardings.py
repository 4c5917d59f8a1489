"""Requests in a graph document: for a value, for a value as one user's operand, for an op (its sharding option)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.documents.graphs import dump_graph, load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import InvalidDocument, InvalidGraph, InvalidMesh, InvalidSharding, ShardplanError
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.propagation.propagate import propagate
from planner.run.validate import validate
from tests.testing.annotated_notation import lines
from tests.testing.command_line import shardplan
from tests.testing.documented_mlps import COMPLETED_1D
from tests.testing.small_documents import Document, changed, pin, typed, written

MESH = Mesh.parse("dp=2,tp=4")
SQUARE: Document = {
    "format": "shardplan.graph",
    "version": 1,
    "name": "square",
    "inputs": [{"id": "x", "kind": "input", "name": "x", **typed(8, 8)}],
    "nodes": [{"id": "n", "op": "matmul", "inputs": ["x", "x"], "outputs": [typed(8, 8)]}],
    "outputs": ["n", "n"],
}
ROWS, COLUMNS = [["dp"], []], [[], ["tp"]]
APART = [pin("x", ROWS, user="n", operand=0), pin("x", COLUMNS, user="n", operand=1)]
RETURNED_APART = [pin("n", ROWS, user="return", operand=0), pin("n", COLUMNS, user="return", operand=1)]


def read(document: Document, mesh: Mesh = MESH) -> Graph:
    return load_graph(validate_document(GraphDocument, document, "graph"), mesh)


def asking(*annotations: Document, **option: list[Any]) -> Document:
    document = changed(SQUARE, "annotations", list(annotations))
    return changed(document, "nodes.0.option", option) if option else document


# what is asked of the square
ASKED = [
    asking(*APART),
    asking(*RETURNED_APART),
    asking(pin("x", ROWS, user="n")),
    asking(k=["tp", "dp"]),
    asking(m=["dp"], n=["tp"]),
    changed(SQUARE, "nodes.0.option", {}),
]


@pytest.mark.parametrize("document", ASKED)
def test_requested_shardings_are_read_and_written_back(document: Document) -> None:
    once = dump_graph(read(document), MESH)
    assert dump_graph(read(once), MESH) == once
    assert once["nodes"][0].get("option") == document["nodes"][0].get("option")
    operands = [one.get("operand") for one in document.get("annotations", [])]
    assert [one.get("operand") for one in once["annotations"]] == operands


def test_a_value_read_twice_is_given_in_two_layouts() -> None:
    graph = read(asking(*APART))
    found = propagate(graph, MESH)
    assert lines(found) == [
        "%x to [[0],[]] for users",
        "%x to [[],[1]] for users",
        "%n = matmul(%x, %x)",
        "%n to [[0],[1]]",
    ]
    again = replace(graph, annotations=found.annotations())
    assert lines(propagate(again, MESH)) == lines(found)
    assert [(one.user, one.operand) for one in found.annotations()] == [(None, None), ("n", 0), ("n", 1)]
    program = materialize_completed(graph, MESH, found, route=make_documented_path(graph, MESH))
    assert validate(program, shrinking="none").verdict == "equal"


def test_outputs_that_return_one_value_are_given_in_two_layouts() -> None:
    found = propagate(read(asking(*RETURNED_APART)), MESH)
    assert lines(found)[-2:] == ["%n to [[0],[]] for users", "%n to [[],[1]] for users"]


def test_without_an_operand_an_annotation_is_for_every_read_of_its_user() -> None:
    found = propagate(read(asking(pin("x", [[], []], user="n"))), MESH)
    assert lines(found)[:2] == ["%x to [[],[]] for users"] * 2
    assert [(one.user, one.operand) for one in found.annotations() if one.value == "x"] == [("n", None)]


# conformance 62: the option of the op itself is returned as is, whatever is annotated around it
def test_an_option_of_a_node_is_the_option_of_its_op() -> None:
    graph = read(asking(pin("n", ROWS), k=["tp", "dp"]))
    found = propagate(graph, MESH)
    assert found.options["n"] == ((), (1, 0), (), *[()] * (len(graph.ops[0].rule.loops) - 3))
    assert lines(found)[:2] == ["%x to [[],[1,0]] for users", "%x to [[1,0],[]] for users"]


def test_an_empty_option_keeps_its_op_whole() -> None:
    found = propagate(read(changed(asking(pin("x", ROWS)), "nodes.0.option", {})), MESH)
    assert lines(found)[1:3] == ["%x to [[],[]] for users"] * 2


MLP: Document = {
    "format": "shardplan.graph",
    "version": 1,
    "name": "mlp",
    "inputs": [
        {"id": "i0", "kind": "input", "name": "x", **typed(2, 4, 8)},
        {"id": "i1", "kind": "parameter", "name": "w1", **typed(8, 32)},
        {"id": "i2", "kind": "parameter", "name": "w2", **typed(32, 8)},
    ],
    "nodes": [
        {"id": "n0", "op": "matmul", "inputs": ["i0", "i1"], "outputs": [typed(2, 4, 32)]},
        {"id": "n1", "op": "full", "inputs": [], "attrs": {"value": 0}, "outputs": [typed(2, 4, 32)]},
        {"id": "n2", "op": "maximum", "inputs": ["n0", "n1"], "outputs": [typed(2, 4, 32)]},
        {"id": "n3", "op": "matmul", "inputs": ["n2", "i2"], "outputs": [typed(2, 4, 8)], "option": {"k": [0]}},
    ],
    "outputs": ["n3"],
    "annotations": [pin("i0", [[], [], [0]]), pin("n3", [[], [], [0]], user="return")],
}


# conformance 73, conformance 89: the RFC's second example, its option carried by the op in a document
def test_the_mlp_with_an_option_of_its_second_product_completes_as_printed() -> None:
    assert lines(propagate(read(MLP, Mesh.parse("8")), Mesh.parse("8"))) == COMPLETED_1D


# conformance 73
def test_the_commands_follow_the_option_of_a_node(tmp_path: Path) -> None:
    path = written(tmp_path / "mlp.json", MLP)
    found = shardplan("propagate", path, "--mesh", "8", "--json").json["annotations"]
    weights = {one["value"]: one["sharding"]["split_axes"] for one in found if one["user"] in ("n0", "n3")}
    assert (weights["i1"], weights["i2"]) == ([[], ["0"]], [["0"], []])
    program = shardplan("partition", path, "--mesh", "8").out
    kinds = [line.split(" = ")[1].split(" ")[0] for line in program.splitlines() if " groups " in line]
    assert kinds == ["all_gather", "all_slice", "reduce_scatter"]
    assert "%i2: f32[32,8] [0 ·] local [4, 8]" in program


# conformance 62: in a plan the option of a node is a pin of its op
def test_a_plan_has_the_option_of_a_node(tmp_path: Path) -> None:
    graph, plan = written(tmp_path / "mlp.json", changed(MLP, "annotations", [])), tmp_path / "plan.json"
    assert shardplan("plan", graph, "--mesh", "8", "-o", plan, "--validate").code == 0
    document = json.loads(plan.read_text())
    assert document["options"]["n3"][:4] == [[], [], ["0"], []]
    assert document["verdict"]["verdict"] == "equal"
    assert document["graph"]["document"]["nodes"][3]["option"] == {"k": ["0"]}


# document, error, message
REFUSED: list[tuple[Document, type[ShardplanError], str]] = [
    (
        asking(q=["tp"]),
        InvalidSharding,
        r"node 'n' \(matmul\): option of an unknown loop \(got q; wanted one of m, k, n",
    ),
    (asking(k=["pp"]), InvalidMesh, r"node 'n' \(matmul\): unknown mesh axis \(got pp; wanted one of dp, tp"),
    (asking(k=["tp"], m=["tp"]), InvalidSharding, r"option of node 'n': .*mesh axis duplicated"),
    (asking(k=[True]), InvalidDocument, r"nodes\[0\].option.k\[0\]"),
    (changed(SQUARE, "nodes.0.option", [["tp"]]), InvalidDocument, r"nodes\[0\].option: value does not fit"),
    (asking(pin("x", ROWS, user="n", operand=2)), InvalidGraph, r"as this operand \(got 2; wanted one of \[0, 1\]"),
    (
        asking(pin("n", ROWS, user="return", operand=2)),
        InvalidGraph,
        r"as this operand \(got 2; wanted one of \[0, 1\]",
    ),
    (asking(pin("x", ROWS, operand=0)), InvalidGraph, r"annotation of 'x' operand 0: operand of no user"),
    (asking(pin("x", ROWS, user="n", operand=-1)), InvalidDocument, r"annotations\[0\].operand"),
    (asking(pin("x", ROWS, user="m", operand=0)), InvalidGraph, "user does not read the value"),
    (asking(APART[0], pin("x", COLUMNS, user="n", operand=0)), InvalidGraph, "contradicts another annotation"),
    (asking(APART[0], pin("x", COLUMNS, user="n")), InvalidGraph, "contradicts another annotation"),
    (
        asking(*(pin("x", lists, user="n", operand=0, required=False) for lists in (ROWS, COLUMNS))),
        InvalidSharding,
        "use of 'x' by 'n' as operand 0: two different annotations in one place",
    ),
]


@pytest.mark.parametrize(("document", "error", "message"), REFUSED)
def test_invalid_requests_are_refused(document: Any, error: type[ShardplanError], message: str) -> None:
    with pytest.raises(error, match=message):
        propagate(read(document), MESH)
