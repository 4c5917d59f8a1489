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

from planner.documents.graphs import load_graph
from planner.documents.json_reader import parse_json
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import ShardplanError
from planner.ir.mesh import Mesh
from tests.testing.command_line import Answer, refused, shardplan
from tests.testing.malformed_documents import ATTRIBUTES, CHANGES, MYSTERY, RULES, TEXTS
from tests.testing.op_case import Case
from tests.testing.op_cases import CASES
from tests.testing.small_documents import GRAPH, Document, changed, typed, written

# Names that no terminal, file or database should meet; all are refused or shown as escapes.
NAMES = ["a\0b", "a\nb", "\x1b[2J", "\x9b2J", "x" * 2000, "\ud800", ""]
NAMED = ["nodes.1.id", "nodes.1.op", "outputs.0", "inputs.0.dtype", "inputs.0.kind", "format"]


# Ops whose last operands are optional.
ARITIES = {
    "linear": {2, 3},
    "fft": {1, 2},
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
    found = validate_document(GraphDocument, parse_json(json.dumps(document).encode(), "text"), "text")
    load_graph(found, Mesh.parse("2x4"))


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
