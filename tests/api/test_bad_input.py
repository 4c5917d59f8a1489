"""Graph documents that must not be planned: one message that says what, where, got and wanted; exit code 1."""

from __future__ import annotations

import copy
import json
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.documents.graphs import graph_from
from planner.documents.reading import parse_json
from planner.documents.schemas import GraphDocument, checked
from planner.errors import ShardplanError
from planner.model.mesh import Mesh
from tests.api.command import Answer, refused, shardplan
from tests.api.small import GRAPH, LEFT_OUT, Document, changed, typed, written
from tests.model.op_cases import CASES, Case

# What is at a place instead, and words of the message.
CHANGES: list[tuple[str, object, str]] = [
    *((f"inputs.0.shape.{dim}", value, f"inputs[0].shape[{dim}]") for dim in (0, 1) for value in (0, -1, 2**41)),
    *(("inputs.0.shape.0", value, "wanted a valid integer") for value in (True, "8", 8.0, None, [], {})),
    ("inputs.0.shape.0", 10**400, "inputs[0].shape[0]"),
    ("inputs.0.shape", [2**40, 2**40], "tensor too large"),
    ("inputs.0.shape", [1] * 17, "at most 16"),
    ("inputs.0.shape", None, "wanted a valid list"),
    ("inputs.0.dtype", "float32", "wanted 'f64', 'f32'"),
    ("inputs.0.kind", "weight", "wanted 'parameter'"),
    ("inputs", [], "'a': reference to a value that nothing makes"),
    *((key, LEFT_OUT, f"{key}: missing key") for key in ("format", "version", "name", "inputs", "nodes", "outputs")),
    *((f"nodes.0.{key}", LEFT_OUT, f"nodes[0].{key}: missing key") for key in ("id", "op", "inputs", "outputs")),
    *(("format", value, "wanted 'shardplan.graph'") for value in ("shardplan.plan", "", None, 1)),
    *(("version", value, "version: value does not fit") for value in (0, 2, 99, "1", True, 1.0, None)),
    ("colour", "red", "colour: unknown key"),
    ("nodes.0.colour", "red", "nodes[0].colour: unknown key"),
    ("nodes.1.inputs", ["nowhere"], "node 'b': reference to a value that nothing makes (got nowhere"),
    ("nodes.1.inputs", ["a:1"], "got a:1"),
    ("outputs", ["nowhere"], "outputs: reference to a value that nothing makes (got nowhere"),
    ("outputs", [], "at least 1 item"),
    ("nodes.1.inputs", ["b"], "node 'b': the graph has a cycle"),
    ("nodes.1.id", "a", "id 'a': id used twice"),
    ("nodes.1.id", "x", "id 'x': id used twice"),
    ("inputs.1.id", "x", "id 'x': id used twice"),
    ("nodes.0.outputs.0.shape", [8, 33], "node 'a' (linear)"),
    ("nodes.0.outputs.0.shape", [8], "node 'a' (linear)"),
    ("nodes.0.outputs", [], "at least 1 item"),
    ("nodes.0.outputs", [typed(8, 32)] * 2, "number of results (got 2; wanted 1)"),
    ("nodes.0.outputs.0.dtype", "bf16", "dtype mismatch (got ['f32[8,16]'"),
    ("nodes.1.op", "frobnicate", "unknown op without a rule (got frobnicate"),
    ("nodes.1.attrs", {"colour": 1}, "unknown attribute (got colour"),
    ("nodes.1.attrs", [], "wanted a valid dictionary"),
    ("nodes.0.inputs", ["x"] * 5000, "at most 4096"),
    ("nodes.0.phase", "sideways", "wanted 'forward'"),
    ("nodes.0.rule", "b k, k n -> b n", "rule 'b k, k n -> b n'"),
    ("annotations", [{"value": "x"}], "annotations[0].sharding: missing key"),
]

# Names that no terminal, file or database should meet; all are refused or shown as escapes.
NAMES = ["a\0b", "a\nb", "\x1b[2J", "\x9b2J", "x" * 2000, "\ud800", ""]
NAMED = ["nodes.1.id", "nodes.1.op", "outputs.0", "inputs.0.dtype", "inputs.0.kind", "format"]

MYSTERY = {"id": "b", "op": "mystery", "inputs": ["a"], "outputs": [typed(8, 32)], "rule": "a b -> a b"}
RULES = [
    ("", "no single '->'"),
    ("a b", "no single '->'"),
    ("a b -> a b -> a b", "no single '->'"),
    ("a b -> (a b", "brackets do not match"),
    ("A b -> A b", "not a loop name (got A"),
    ("a a -> a a", "loop repeated in one term"),
    ("a b -> b", "rank (got (8, 32); wanted 1 dims)"),
    ("a b, c -> a b", "number of operands (got 1; wanted 2)"),
    ("a b -> a b, a", "number of results (got 1; wanted 2)"),
    ("a b -> a b; shuffle a", "unknown modifier (got shuffle"),
    ("a b -> a b; linear 7", "linear group (got 7"),
    ("a b -> a b; size a=9", "shape contradicts the rule (got 8; wanted 9)"),
    ("a b -> a b; blocked z", "modifier names no loop (got z"),
    ("(p q) b -> (p q) b", "loop size cannot be told"),
    ("{p|q} b -> {p|q} b", "loop size cannot be told"),
    ("... ... -> ...", "loop repeated"),
    ("b a -> a b", "shape contradicts the rule"),
    (" ".join(f"a{i}" for i in range(800)) + " -> a", "rank"),
    ("(" * 4000, "no single '->'"),
    ("(" * 2000 + "->" + ")" * 2000, "brackets do not match"),
    ("x" * 4097, "at most 4096"),
]

TEXTS: list[tuple[str | bytes, str]] = [
    ("", "not JSON"),
    ("{", "not JSON"),
    ("null", "got null; wanted an object"),
    ("[]", "got an array; wanted an object"),
    ("{}{}", "Extra data"),
    (json.dumps(GRAPH)[:-20], "not JSON"),
    (json.dumps(GRAPH).encode("utf-16"), "not UTF-8"),
    (b"\xff", "not UTF-8"),
    ('{"format": 1, "format": 1}', "key repeated in one object (got format"),
    *((json.dumps(changed(GRAPH, "version", 7)).replace("7", text), words) for text, words in (
        ("NaN", "not a JSON number (got NaN"),
        ("Infinity", "not a JSON number (got Infinity"),
        ("-Infinity", "not a JSON number (got -Infinity"),
        ("1" * 5000, "number too long"),
        ("1e999", "value does not fit"),
    )),
]  # fmt: skip

# Attributes that no op of that name can have.
ATTRIBUTES: list[tuple[str, list[Document], Document, Document, str]] = [
    ("sum", [typed(4, 6)], typed(4), {"dims": "x"}, "attribute 'dims'"),
    ("sum", [typed(4, 6)], typed(4), {"dims": [2]}, "attribute 'dims' (got 2"),
    ("sum", [typed(4, 6)], typed(4), {"dims": [True]}, "attribute 'dims'"),
    ("sum", [typed(4, 6)], typed(4), {"dims": [1, -1]}, "different dims"),
    ("sum", [typed(4, 6)], typed(4), {"dims": [1], "keepdim": 1}, "attribute 'keepdim'"),
    ("transpose", [typed(4, 6)], typed(4, 6), {"permutation": [0, 0]}, "different dims"),
    ("transpose", [typed(4, 6)], typed(4, 6), {"permutation": [0]}, "all 2 dims"),
    ("layer_norm", [typed(4, 6)], typed(4, 6), {"normalized_dims": 99}, "normalized_dims"),
    ("layer_norm", [typed(4, 6)], typed(4, 6), {"eps": "small"}, "attribute 'eps'"),
    ("softmax", [typed(4, 6)], typed(4, 6), {"dim": 99}, "attribute 'dim' (got 99"),
    ("softmax", [typed(4, 6)], typed(4, 6), {}, "attribute 'dim'"),
    ("slice", [typed(4, 6)], typed(4, 3), {"dim": 1, "start": 5, "stop": 8}, "slice bounds"),
    ("slice", [typed(4, 6)], typed(4, 3), {"dim": 1, "start": 0, "stop": 5}, "slice bounds"),
    ("slice", [typed(4, 6)], typed(4, 3), {"dim": 1, "start": 0.5, "stop": 3}, "attribute 'start'"),
    ("reshape", [typed(4, 6)], typed(5, 5), {}, "reshape changes the number of elements"),
    ("expand", [typed(4, 6)], typed(6), {}, "wanted those of expand"),
    ("concat", [typed(4, 6)] * 2, typed(4, 6), {"dim": 0}, "concat"),
    ("split", [typed(4, 6)], typed(3, 6), {"dim": 0}, "split"),
    ("add", [typed(4, 6)], typed(4, 6), {"scalar": "one"}, "attribute 'scalar'"),
    ("add", [typed(4, 6)] * 2, typed(4, 6), {"reversed": True}, "attribute 'reversed'"),
    ("gelu", [typed(4, 6)], typed(4, 6), {"approximate": 3}, "attribute 'approximate'"),
    ("full", [], typed(4), {}, "attribute 'value'"),
    ("full", [], typed(4), {"value": []}, "attribute 'value'"),
    ("arange", [], typed(4, 4), {}, "arange makes one dim"),
    ("embedding", [typed(4, 6), typed(4)], typed(4, 6), {}, "dtype mismatch"),
    ("matmul", [typed(4), typed(4, 6)], typed(6), {}, "matmul of vectors"),
]  # fmt: skip


# Ops whose last operands are optional.
ARITIES = {
    "linear": {2, 3},
    "layer_norm": {1, 2, 3},
    "batch_norm": {3, 4, 5},
    "scaled_dot_product_attention": {3, 4},
    "scaled_dot_product_attention_backward": {4, 5},
}


def plan(folder: Path, document: object) -> Answer:
    return shardplan("plan", written(folder / "graph.json", document), "--mesh", "2x4", "--json")


def of_one_op(op: str, operands: list[Document], results: list[Document], attrs: Document) -> Document:
    inputs = [{"id": f"i{k}", "kind": "input", "name": "", **kind} for k, kind in enumerate(operands)]
    node = {"id": "n", "op": op, "inputs": [i["id"] for i in inputs], "attrs": attrs, "outputs": results}
    return {**GRAPH, "inputs": inputs, "nodes": [node], "outputs": ["n"]}


def test_the_small_graph_itself_is_planned(tmp_path: Path) -> None:
    answer = plan(tmp_path, GRAPH)
    assert (answer.code, answer.err) == (0, "")


@pytest.mark.parametrize(("path", "value", "words"), CHANGES)
def test_a_graph_that_breaks_the_format_is_refused(tmp_path: Path, path: str, value: object, words: str) -> None:
    refused(plan(tmp_path, changed(GRAPH, path, value)), words)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", NAMED)
def test_names_with_control_characters_never_reach_the_terminal(tmp_path: Path, path: str, name: str) -> None:
    refused(plan(tmp_path, changed(GRAPH, path, name)), "graph.json: ")


@pytest.mark.parametrize("name", NAMES[:4])
def test_keys_with_control_characters_never_reach_the_terminal(tmp_path: Path, name: str) -> None:
    refused(plan(tmp_path, {**GRAPH, name: 1}), "unknown key")
    refused(plan(tmp_path, changed(GRAPH, "nodes.1.attrs", {name: 1})), "nodes[1].attrs")
    refused(plan(tmp_path, changed(GRAPH, "producer", {name: "1"})), "producer")


@pytest.mark.parametrize(("rule", "words"), RULES, ids=[rule[:20] for rule, _ in RULES])
def test_a_rule_that_does_not_parse_or_fit_is_refused(tmp_path: Path, rule: str, words: str) -> None:
    refused(plan(tmp_path, changed(GRAPH, "nodes.1", {**MYSTERY, "rule": rule})), words)


@pytest.mark.parametrize(("text", "words"), TEXTS, ids=[words for _, words in TEXTS])
def test_text_that_is_not_a_json_document_is_refused(tmp_path: Path, text: str | bytes, words: str) -> None:
    refused(plan(tmp_path, text), words)


@pytest.mark.parametrize(("op", "operands", "result", "attrs", "words"), ATTRIBUTES)
def test_attributes_that_an_op_cannot_have_are_refused(
    tmp_path: Path, op: str, operands: list[Document], result: Document, attrs: Document, words: str
) -> None:
    refused(plan(tmp_path, of_one_op(op, operands, [result], attrs)), words)


@pytest.mark.parametrize("case", {case.op: case for case in CASES}.values(), ids=str)
def test_every_op_refuses_a_wrong_number_of_operands(case: Case) -> None:
    operands = [typed(*kind.shape, dtype=kind.dtype) for kind in case.operands]
    results = [typed(*kind.shape, dtype=kind.dtype) for kind in case.results]
    for count in set(range(6)) - ARITIES.get(case.op, {len(operands)}):
        given = list(islice(cycle(operands or results), count))
        with pytest.raises(ShardplanError, match="node 'n'"):
            read(of_one_op(case.op, given, results, case.attrs))


def read(document: object) -> None:
    found = checked(GraphDocument, parse_json(json.dumps(document).encode(), "text"), "text")
    graph_from(found, Mesh.parse("2x4"))


def test_a_cycle_through_several_nodes_is_named(tmp_path: Path) -> None:
    ring = [{"id": f"n{k}", "op": "relu", "inputs": [f"n{(k - 1) % 4}"], "outputs": [typed(8, 32)]} for k in range(4)]
    refused(plan(tmp_path, {**GRAPH, "nodes": [*GRAPH["nodes"], *ring]}), "n0 -> n1 -> n2 -> n3")


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["x", "a", "b", "f32", "relu", "add", "sum", "a b -> a b", "... -> ...", [], {}, [[0]], [8, 32]]),
)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every key and position."""
    inner = list(document.items() if isinstance(document, dict) else enumerate(document))
    below = [p for key, value in inner if isinstance(value, dict | list) for p in places(value, (*path, key))]
    return [(*path, key) for key, _ in inner] + below


@given(st.data())
def test_random_changes_end_in_a_designed_error_or_none(data: st.DataObject) -> None:
    document = copy.deepcopy({**GRAPH, "annotations": [{"value": "x", "sharding": {"split_axes": [["0"]]}}]})
    for _ in range(data.draw(st.integers(1, 4))):
        *head, last = data.draw(st.sampled_from(places(document)))
        at: Any = document
        for part in head:
            at = at[part]
        match data.draw(st.sampled_from(["delete", "replace", "double", "copy"])):
            case "delete":
                del at[last]
            case "replace":
                at[last] = copy.deepcopy(data.draw(JUNK))
            case "double" if isinstance(at, list):
                at.insert(last, copy.deepcopy(at[last]))
            case _:
                at[last] = copy.deepcopy(data.draw(st.sampled_from(list(at.values()) if isinstance(at, dict) else at)))
        if not places(document):
            break
    message = ""
    try:
        read(document)
    except ShardplanError as error:
        message = str(error)
    assert message.isprintable()


@pytest.mark.parametrize("levels", [50, 200, 400, 900])
def test_nested_attributes_are_planned_or_refused(tmp_path: Path, levels: int) -> None:
    """Whatever is read can be named by a digest, written and read again."""
    nested = json.dumps(changed(GRAPH, "nodes.1", {**MYSTERY, "attrs": {"a": 777}}))
    answer = plan(tmp_path, nested.replace("777", "[" * levels + "]" * levels))
    if answer.code:
        refused(answer, "")
