"""Outputs that replace inputs in the next run have the layouts that those inputs are read in."""

from __future__ import annotations

from typing import Any

import pytest

import solvers
from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import dump_graph, load_graph
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidGraph
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh

MESH = Mesh.parse("dp=2,tp=4")
SIZES: dict[str, Any] = {"layers": 1, "width": 512, "heads": 8, "feed_forward": 1024, "vocabulary": 512}
# What the next of an input is, and what is wrong with it.
WRONG = [("linear", "no output"), ("nowhere", "no output"), ("mean", r"f32\[\]")]


def document(train: str = "adam") -> dict[str, Any]:
    return import_zoo("llama-7b", batch=64, seq=512, train=train, **SIZES)


def question(written: dict[str, Any]) -> Formulation:
    hardware = load_profile("h100-sxm")
    graph = load_graph(GraphDocument.model_validate(written), MESH)
    return formulate(graph, CostModel(MESH, hardware), hardware.memory_bytes)


def without_next(written: dict[str, Any]) -> dict[str, Any]:
    inputs = [{key: value for key, value in entry.items() if key != "next"} for entry in written["inputs"]]
    return {**written, "inputs": inputs}


@pytest.mark.parametrize("train", ["sgd", "adam"])
def test_an_updated_value_ends_in_the_layout_of_its_input(train: str) -> None:
    asked = question(document(train))
    found = solvers.solve(asked.problem)
    assert found.assignment is not None
    choice = asked.decode(found.assignment)
    replaced = asked.graph.state_outputs
    assert set(replaced.values()) == {e.id for e in asked.graph.inputs if e.kind in ("parameter", "optimizer_state")}
    assert all(choice.outputs[n] == choice.inputs[name] for n, name in replaced.items())


def test_a_step_that_must_lead_to_the_next_costs_more() -> None:
    """Else weights could be read whole and left split, and nobody would ever gather them."""
    step = document()
    closed, open_ended = (solvers.solve(question(each).problem) for each in (step, without_next(step)))
    assert closed.cost is not None
    assert open_ended.cost is not None
    assert open_ended.cost < closed.bound


def test_a_document_keeps_what_comes_next() -> None:
    step = document()
    graph = load_graph(GraphDocument.model_validate(step), MESH)
    assert dump_graph(graph, MESH)["inputs"] == step["inputs"]


@pytest.mark.parametrize(("value", "words"), WRONG)
def test_an_invalid_next_value_is_refused(value: str, words: str) -> None:
    step = document()
    step["inputs"][1]["next"] = value
    with pytest.raises(InvalidGraph, match=words):
        load_graph(GraphDocument.model_validate(step), MESH)


def test_one_output_takes_one_place() -> None:
    step = document()
    step["inputs"][2]["next"] = step["inputs"][1]["next"] = step["inputs"][4]["next"]
    with pytest.raises(InvalidGraph, match="next"):
        load_graph(GraphDocument.model_validate(step), MESH)
