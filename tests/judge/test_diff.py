"""Two plans compared: renamed and reordered ops are matched, and all changes of time add up."""

from __future__ import annotations

import json
import random
from functools import cache
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from api.cli.render_diff import render_diff
from planner import pipeline
from planner.choose.hardware import load_profile
from planner.documents.diff import compare_documents
from planner.documents.graphs import load_graph
from planner.documents.plans import dump_plan, parse_plan
from planner.documents.schemas import GraphDocument, PlanDocument
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.judge.graph_matching import match_graphs
from planner.planning.plan_types import Request
from tests.testing.transformer import transformer

Document = dict[str, Any]
SIZES: dict[str, Any] = {"d": 64, "ff": 256, "heads": 4, "batch": 8, "seq": 16}
MESH = Mesh.parse("2x2")

# the other model: sizes, hardware, limit in bytes
OTHERS: list[tuple[Document, str, int | None]] = [
    ({"blocks": 3}, "h100-sxm", None),
    ({"ff": 512}, "h100-sxm", None),
    ({}, "cpu", None),
    ({}, "h100-sxm", 250_000),
]


def model(**changes: Any) -> Document:
    return transformer(**{"blocks": 2, **SIZES, **changes})


def graph(document: Document) -> Graph:
    return load_graph(GraphDocument.model_validate(document), MESH)


@cache
def small() -> PlanDocument:
    return planned(model())


def planned(document: Document, hardware: str = "h100-sxm", limit: int | None = None) -> PlanDocument:
    request = Request(limit, gap=1e-6 if limit is None else 0.02, deterministic=True)
    found = pipeline.plan(graph(document), MESH, load_profile(hardware), request=request)
    return parse_plan(json.loads(json.dumps(dump_plan(found))), "plan")


def scrambled(document: Document, seed: int) -> tuple[Document, dict[str, str]]:
    """Other names everywhere, in another order that respects the uses; and the old names by the new."""
    draw = random.Random(seed)
    ids = [entry["id"] for entry in (*document["inputs"], *document["nodes"])]
    names = dict(zip(ids, draw.sample([f"v{k}" for k in range(len(ids))], len(ids)), strict=True))
    waiting = [
        {**node, "id": names[node["id"]], "inputs": [names[value] for value in node["inputs"]]}
        for node in document["nodes"]
    ]
    inputs = [{**entry, "id": names[entry["id"]]} for entry in document["inputs"]]
    known, nodes = {entry["id"] for entry in inputs}, []
    while waiting:
        node = draw.choice([each for each in waiting if set(each["inputs"]) <= known])
        waiting.remove(node)
        nodes.append(node)
        known.add(node["id"])
    draw.shuffle(inputs)
    outputs = [names[value] for value in document["outputs"]]
    return {**document, "inputs": inputs, "nodes": nodes, "outputs": outputs}, {new: old for old, new in names.items()}


@pytest.mark.parametrize("seed", range(5))
def test_renamed_and_reordered_ops_are_matched(seed: int) -> None:
    other, old = scrambled(model(), seed)
    found = match_graphs(graph(model()), graph(other))
    assert found.ops == {node["id"]: old[node["id"]] for node in other["nodes"]}
    assert {name: old[name] for name in found.values} == found.values
    assert set(found.values) == set(graph(other).types)


def test_in_a_renamed_model_with_one_more_op_all_others_are_matched() -> None:
    other, _ = scrambled(model(), 0)
    last = other["outputs"][0]
    shape = next(node["outputs"] for node in other["nodes"] if node["id"] == last)
    more = {"id": "more", "op": "relu", "inputs": [last], "attrs": {}, "outputs": shape}
    found = match_graphs(graph(model()), graph({**other, "nodes": [*other["nodes"], more], "outputs": ["more"]}))
    assert "more" not in found.ops
    assert len(found.ops) >= 0.9 * len(other["nodes"])
    assert all(graph(model()).types[old_name] for old_name in found.values.values())


def test_a_plan_and_its_renamed_self_have_no_difference() -> None:
    base, new = small(), planned(scrambled(model(), 3)[0])
    told = compare_documents(base, new)
    assert (told["changes"], told["options"], told["terms"]) == ([], [], [])
    assert {total["change"] for total in told["totals"].values()} == {0}


@pytest.mark.parametrize(("changes", "hardware", "limit"), OTHERS)
def test_the_terms_add_up_to_the_change_of_the_step(changes: Document, hardware: str, limit: int | None) -> None:
    base, new = small(), planned(model(**changes), hardware, limit)
    told = compare_documents(base, new)
    moved = sum(term["change_ps"] for term in told["terms"])
    assert moved == round(told["totals"]["step_s"]["change"] / 1e-12)
    for term in told["terms"]:
        ends = [term[side]["time_ps"] if term[side] else 0 for side in ("base", "new")]
        assert ends[1] - ends[0] == term["change_ps"] != 0
        for side in filter(None, (term["base"], term["new"])):
            assert term["what"] == "op" or side["time_ps"] == sum(each["time_ps"] for each in side["collectives"])
    assert sum(told["memory"]["change_bytes"].values()) == told["totals"]["peak_bytes"]["change"]


def test_the_page_names_the_largest_changes() -> None:
    console = Console(width=120, record=True, file=StringIO())
    console.print(render_diff(compare_documents(small(), planned(model(blocks=3)))))
    page = console.export_text()
    assert "+50.00%" in page
    assert "h2.linear56" in page
    console.print(render_diff(compare_documents(small(), small())))
    assert "the plans are equal" in console.export_text()


def test_an_infeasible_plan_is_compared_by_its_totals_alone() -> None:
    told = compare_documents(small(), planned(model(), limit=1))
    assert told["changes"] == told["options"] == told["terms"] == []
    assert told["memory"] is None
    assert told["totals"]["step_s"]["new"] is None
