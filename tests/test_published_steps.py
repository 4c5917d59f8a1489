"""Published training steps: their graphs and layouts compute what the plain model computes; rows are read as stated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import published_steps
from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo.models import Model
from planner.ir.collectives import Kind
from planner.ir.mesh import Mesh
from planner.ir.program import Reshard
from planner.judge.analysis import Analysis
from planner.run.validate import validate
from planner.usecases.steps.graphs import PRODUCTS, micro_batch, recomputed, stored
from planner.usecases.steps.layouts import Layout

GPT = Model("gpt", 2, 16, 4, 4, 32, 24, 8)
LLAMA = Model("llama", 2, 16, 4, 2, 32, 24, 8)
# model, fused attention, recomputed, stored apart, fsdp, tp, sequence parallel
LAYOUTS: list[tuple[Model, bool, str, bool, int, int, bool]] = [
    (GPT, True, "none", True, 4, 1, False),
    (GPT, True, "full", True, 2, 2, False),
    (GPT, False, "attention", False, 1, 4, True),
    (GPT, False, "full", False, 1, 2, False),
    (LLAMA, True, "per op", True, 2, 2, True),
    (LLAMA, True, "full", True, 4, 2, True),
]
ROUNDING = 1e-15
ROWS: list[dict[str, Any]] = json.loads(published_steps.DATA.read_text())["rows"]


def layout(case: tuple[Model, bool, str, bool, int, int, bool]) -> Layout:
    model, fused, what, apart, fsdp, tp, sequence = case
    document = recomputed(micro_batch(model, 4, 8, "f32", fused), what)
    document = stored(document, "f64", "f64") if apart else document
    mesh = Mesh.parse(f"fsdp={fsdp},tp={tp}")
    graph = load_graph(GraphDocument.model_validate(document), mesh)
    axes = ((0,) if fsdp > 1 else ()), ((1,) if tp > 1 else ())
    return Layout(graph, CostModel(mesh, load_profile("h100-sxm")), *axes, sequence)


@pytest.mark.parametrize("case", LAYOUTS)
def test_a_layout_computes_what_the_model_computes(case: tuple[Model, bool, str, bool, int, int, bool]) -> None:
    """But for the gradient of a key's bias, which is zero: a softmax does not see what is added to all its scores."""
    found = validate(layout(case).program, shrinking="none")
    assert found.verdict == "equal" or (found.difference is not None and abs(found.difference.wanted) < ROUNDING)
    assert (found.counted_bytes, found.counted_peak_bytes) == (found.predicted_bytes, found.predicted_peak_bytes)


def test_fsdp_gathers_every_large_parameter_for_each_pass_and_scatters_its_gradient() -> None:
    program = layout(LAYOUTS[0]).program
    kinds = [done.collective.kind for done in program.instructions if isinstance(done, Reshard)]
    matrices = [entry for entry in program.graph.inputs if entry.kind == "parameter" and len(entry.type.shape) == 2]
    assert kinds.count(Kind.REDUCE_SCATTER) >= len(matrices)
    assert 2 * len(matrices) - 2 <= kinds.count(Kind.ALL_GATHER) <= 2 * len(program.graph.inputs)


def test_full_recomputation_is_one_more_forward_pass_of_the_layers_and_holds_less() -> None:
    plain = micro_batch(GPT, 4, 8, "f32", True)
    again = recomputed(plain, "full")
    inside = [node for node in plain["nodes"] if node["scope"] and node["phase"] == "forward"]
    assert len(again["nodes"]) - len(plain["nodes"]) == len(inside)
    products = [sum(node["op"] in PRODUCTS for node in each["nodes"]) for each in (plain, again)]
    assert products[1] - products[0] == 6 * GPT.layers
    peaks = []
    for document in (plain, again):
        graph = load_graph(GraphDocument.model_validate(document), Mesh.parse("fsdp=1,tp=1"))
        made = Layout(graph, CostModel(Mesh.parse("fsdp=1,tp=1"), load_profile("cpu")), (), (), False)
        peaks.append(Analysis(made.program, made.model).peak_bytes)
    assert peaks[1] < peaks[0]


@pytest.mark.parametrize("what", ["full", "attention", "per op"])
def test_recomputation_does_not_change_gradients(what: str) -> None:
    """The copies do what the first ones did: with them left out the document is the plain one again."""
    plain = micro_batch(GPT, 2, 8, "f32", fused=False)
    again = recomputed(plain, what)
    copies = {node["id"]: node for node in again["nodes"] if node["id"].endswith("~")}
    first = {node["id"]: node for node in plain["nodes"]}
    for name, node in copies.items():
        like = first[name.removesuffix("~")]
        assert [value.removesuffix("~") for value in node["inputs"]] == like["inputs"]
        assert (node["op"], node["attrs"], node["outputs"]) == (like["op"], like["attrs"], like["outputs"])
    kept = [
        {**node, "inputs": [value.removesuffix("~") for value in node["inputs"]]}
        for node in again["nodes"]
        if node["id"] not in copies
    ]
    assert kept == plain["nodes"]


def test_every_row_is_compared_or_left_out_for_a_reason() -> None:
    compared = [row for row in ROWS if published_steps.why_not(row) is None]
    assert compared
    assert {row["id"] for row in compared} == {
        each["id"]
        for each in json.loads((published_steps.DATA.parents[1] / "results" / "published_steps.json").read_text())[
            "compared"
        ]
    }
    assert all(published_steps.published_s(row) > 0 for row in compared)


def test_a_step_is_published_in_seconds_or_as_tokens_a_second() -> None:
    assert published_steps.published_s({"step_s": 1.5}) == 1.5
    row = {"global_batch": 8, "seq": 100, "tokens_per_s_per_device": 10, "devices": 4}
    assert published_steps.published_s(row) == 20.0


def test_only_steps_of_one_model_on_one_cluster_are_ranked_and_equal_times_are_not() -> None:
    same = {"model": "m", "source": "s", "device": "d", "seq": 1, "compile": None}
    listed = [
        {**same, "published_per_token": 1.0, "predicted_per_token": 1.0},
        {**same, "published_per_token": 2.0, "predicted_per_token": 3.0},
        {**same, "published_per_token": 2.001, "predicted_per_token": 0.5},
        {**same, "model": "other", "published_per_token": 9.0, "predicted_per_token": 0.1},
    ]
    assert published_steps.ordered(listed) == (1, 2)
    assert published_steps.ordered(
        [{**each, "table": n} for n, each in enumerate(listed)], (*published_steps.ALIKE, published_steps.TABLE)
    ) == (0, 0)
