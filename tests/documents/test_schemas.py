"""The published JSON Schemas equal those of the code, and real documents fit them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from api.cli.plan import INFEASIBLE
from planner.documents.export_schemas import SCHEMA_FOLDER, SCHEMAS, json_schema, published_schema
from tests.testing.command_line import shardplan
from tests.testing.small_documents import GRAPH, LEFT_OUT, MESH, Document, changed, pin, pins, written

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.json.gz"))

# What no document of the kind may have; a reader without our code sees the same faults.
FAULTS: list[tuple[str, Document]] = [
    ("graph", changed(GRAPH, "inputs.0.shape.0", 0)),
    ("graph", changed(GRAPH, "inputs.0.shape.0", True)),
    ("graph", changed(GRAPH, "inputs.0.shape.0", "8")),
    ("graph", changed(GRAPH, "inputs.0.dtype", "float32")),
    ("graph", changed(GRAPH, "nodes.0.colour", "red")),
    ("graph", changed(GRAPH, "nodes", LEFT_OUT)),
    ("graph", changed(GRAPH, "outputs", [])),
    ("graph", changed(GRAPH, "version", 2)),
    ("graph", changed(GRAPH, "nodes.0.id", "a\0b")),
    ("graph", changed(GRAPH, "nodes.0.option", [["dp"]])),
    ("graph", changed(GRAPH, "nodes.0.option", {"k": "dp"})),
    ("pins", pins(pin("x", [["dp"]], user="a", operand=-1))),
    ("pins", pins(pin("x", [["dp"]], user="a", operand="0"))),
    ("mesh", changed(MESH, "axes.0.size", 0)),
    ("mesh", changed(MESH, "axes", [])),
    ("mesh", changed(MESH, "format", "shardplan.graph")),
    ("pins", pins({"value": "x"})),
    ("pins", pins(pin("x", [["dp"]], partial={"axes": ["tp"], "reduction": "median"}))),
]


def faults(name: str, document: Any) -> list[str]:
    schema = json_schema(name)
    Draft202012Validator.check_schema(schema)
    return [error.message for error in Draft202012Validator(schema).iter_errors(document)]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_published_schema_is_that_of_the_code(name: str) -> None:
    shown = (SCHEMA_FOLDER / f"{name}.json").read_text(encoding="utf-8")
    assert shown == published_schema(name), "make them anew: python -m planner.documents.export_schemas"


def test_nothing_else_is_published() -> None:
    assert sorted(path.stem for path in SCHEMA_FOLDER.iterdir()) == sorted(SCHEMAS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_meets_the_schema(path: Path) -> None:
    assert faults("graph", json.loads(gzip.decompress(path.read_bytes()))) == []


def test_small_documents_meet_their_schemas() -> None:
    assert faults("graph", GRAPH) == []
    assert faults("graph", changed(GRAPH, "nodes.0.option", {"k": ["dp", 1], "m": []})) == []
    assert faults("pins", pins(pin("x", [["dp"]], user="a", operand=0))) == []
    assert faults("mesh", MESH) == []
    assert faults("mesh", changed(MESH, "axes.0.size", "?")) == []
    assert faults("pins", pins(pin("x", [["dp"], [1]], user="a"), pin("a", [], partial={"axes": ["tp"]}))) == []


@pytest.mark.parametrize("options", [[], ["--validate"], ["--memory-limit", "64"]], ids=["plain", "run", "infeasible"])
def test_written_plans_meet_the_schema(tmp_path: Path, options: list[str]) -> None:
    output = tmp_path / "plan.json"
    answer = shardplan("plan", written(tmp_path / "g.json", GRAPH), "--mesh", "2x4", "-o", output, *options)
    assert answer.code in (0, INFEASIBLE)
    document = json.loads(output.read_text())
    assert (document["verdict"] is not None) == (options == ["--validate"])
    assert faults("plan", document) == []


@pytest.mark.parametrize(("name", "document"), FAULTS)
def test_a_schema_refuses_what_the_reader_refuses(name: str, document: Document) -> None:
    assert faults(name, document) != []
