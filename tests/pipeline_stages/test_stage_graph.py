"""Stages cut from a training step compute together what the step computes, whatever the cuts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidGraph
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.pipeline_stages.cuts import Units, find_units
from planner.pipeline_stages.stage_graph import StageGraph, extract_stage
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs

TINY: dict[str, Any] = {"width": 16, "heads": 4, "feed_forward": 32, "vocabulary": 24}
GRAPHS = [("llama-7b", "adam", 2), ("llama-7b", "sgd", 3), ("llama-7b", "muon", 1), ("mixtral-8x7b", "adam", 2)]


def tiny(name: str, train: str, layers: int, dtype: str = "f32") -> Graph:
    experts: dict[str, Any] = {"experts": 4} if "mixtral" in name else {}
    document = import_zoo(name, batch=4, seq=8, train=train, layers=layers, dtype=dtype, **TINY, **experts)
    return load_graph(GraphDocument.model_validate(document), Mesh.parse("2x2"))


def run_stages(stages: list[StageGraph], arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs of all stages, each run twice: up for what it sends up, then down with all that it receives.

    What a stage does not know yet on the way up is zero, and what depends on it is dropped.
    """
    sent: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for stage in stages:
        unknown = {name: np.zeros(stage.graph.types[name].shape) for name in stage.received_gradients}
        given = {entry.id: (arrays | sent | unknown)[entry.id] for entry in stage.graph.inputs}
        values = run_whole(stage.graph, given, np, precision="f64")
        sent |= {name: values[name] for name in stage.sent}
    for stage in reversed(stages):
        given = {entry.id: (arrays | sent)[entry.id] for entry in stage.graph.inputs}
        values = run_whole(stage.graph, given, np, precision="f64")
        sent |= {name: values[name] for name in stage.sent_gradients}
        outputs |= {name: values[name] for name in stage.graph.outputs}
    return outputs


def cut_everywhere(units: Units) -> list[list[StageGraph]]:
    """Return the stages of the finest partition, of two halves, and of an uneven one."""
    count = units.count
    partitions = [list(range(count + 1)), [0, count // 2, count], [0, 1, count]]
    return [[extract_stage(units, *span) for span in pairwise(cuts)] for cuts in partitions]


@pytest.mark.parametrize(("name", "train", "layers"), GRAPHS)
def test_stages_compute_what_the_step_computes(name: str, train: str, layers: int) -> None:
    graph = tiny(name, train, layers)
    units, arrays = find_units(graph), random_inputs(graph, np, "f64", seed=0)
    assert units.count == 2 * layers + 3
    whole = run_whole(graph, arrays, np, precision="f64")
    for stages in cut_everywhere(units):
        outputs = run_stages(stages, arrays)
        assert set(graph.outputs) <= outputs.keys()
        for value in graph.outputs:
            np.testing.assert_allclose(outputs[value], whole[value], rtol=1e-9, atol=1e-12)


def test_neighbours_exchange_the_value_at_the_cut_and_its_gradient() -> None:
    units = find_units(tiny("llama-7b", "adam", 2, dtype="bf16"))
    stages = cut_everywhere(units)[0]
    for one, other in pairwise(stages):
        assert one.sent == other.received
        assert other.sent_gradients == one.received_gradients
        assert len(one.sent) == len(other.sent_gradients) == 1
        assert one.graph.types[one.sent[0]] == one.graph.types[other.sent_gradients[0]]


def test_every_parameter_and_its_update_are_in_one_stage() -> None:
    units = find_units(graph := tiny("llama-7b", "adam", 2))
    homes = [
        entry.id for stage in cut_everywhere(units)[0] for entry in stage.graph.inputs if entry.kind == "parameter"
    ]
    assert sorted(homes) == sorted(entry.id for entry in graph.inputs if entry.kind == "parameter")


def test_late_ops_are_what_no_gradient_sent_down_depends_on() -> None:
    stage = cut_everywhere(find_units(tiny("llama-7b", "adam", 2)))[1][1]
    step = stage.make_step(3, (1, 1), is_split=True)
    late = [op.id for op in step.ops if op.id in step.in_flight.late]
    assert [op.id for op in step.ops if op.phase == "backward"][-len(late) :] == late
    needed = set(stage.sent_gradients)
    for op in reversed(step.ops):
        if needed.intersection(op.values):
            assert op.id not in late
            needed.update(op.inputs)


def test_tied_parameters_are_not_parted() -> None:
    units = find_units(tiny("gpt2", "adam", 2))
    assert units.count == 1
    assert "wte" in units.describe_limit()


def test_a_global_norm_is_not_parted() -> None:
    document = import_zoo("llama-7b", batch=4, seq=8, train="adam", layers=2, dtype="f32", clip_grad_norm=1.0, **TINY)
    units = find_units(load_graph(GraphDocument.model_validate(document), Mesh.parse("2")))
    assert units.count == 1
    assert "update" in units.describe_limit()


def test_a_graph_without_phases_has_no_stages() -> None:
    document = import_zoo("llama-7b", batch=4, seq=8, layers=1, dtype="f32", **TINY)
    with pytest.raises(InvalidGraph, match="pipeline stages of a graph without phases"):
        find_units(load_graph(GraphDocument.model_validate(document), Mesh.parse("2")))
