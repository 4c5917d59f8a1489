"""Exported stages train as the graph run whole: five steps on processes over gloo, and on JAX's host devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.pipelines import dump_pipeline, load_stage_plan, parse_pipeline
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidRequest
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.pipeline_stages.export.formats import export_stages
from planner.pipeline_stages.export.stage_plan import make_stage_plan
from planner.pipeline_stages.pipeline_plan import PipelinePlan
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.planning.plan_types import Request
from planner.rewrite.accumulate import accumulate_gradients
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs, random_later_data
from tests.testing import jax_stages, torch_stages
from tests.testing.command_line import shardplan

STEPS = 5
TINY: dict[str, Any] = {"width": 16, "heads": 2, "feed_forward": 32, "vocabulary": 24, "batch": 2, "seq": 8}
RUNS = [
    ("gpt2", PipelineRequest(2), 3),
    ("gpt2", PipelineRequest(2, "interleaved", 2), 2),
    ("llama-7b", PipelineRequest(2, "gpipe"), 2),
    ("llama-7b", PipelineRequest(2, "zb-h1"), 3),
    ("llama-7b", PipelineRequest(2), 1),
]


def plan_of(name: str, pipeline: PipelineRequest, microbatches: int, mesh: str = "dp=2") -> PipelinePlan:
    layers = 2 if (pipeline.virtual_stages or 1) > 1 else 1
    document = import_zoo(name, train="adam", layers=layers, dtype="f64", **TINY)
    graph = load_graph(GraphDocument.model_validate(document), Mesh.parse(mesh))
    request = Request(microbatches=microbatches, gap=0.5)
    return plan_pipeline(graph, Mesh.parse(mesh), load_profile("cpu"), pipeline=pipeline, request=request)


def train_whole(graph: Graph) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the arguments of five steps of the unsharded graph, the data of each, and the results of each."""
    arrays, steps, found = random_inputs(graph, np, "declared", seed=0), [], []
    first = dict(arrays)
    for seed in range(STEPS):
        fresh = random_inputs(graph, np, "declared", seed=seed)
        later = random_later_data(graph, np, "declared", seed=seed)
        arrays |= {name: fresh[name] for name in graph.data}
        batches = [arrays, *later]
        stacked = {name: np.stack([each[name] for each in batches]) for name in graph.data}
        steps.append(stacked if graph.microbatches > 1 else {name: arrays[name] for name in graph.data})
        results = run_whole(graph, arrays, np, precision="declared", later=later)
        found.append({value: results[value] for value in graph.outputs})
        arrays |= {entry.id: results[entry.next] for entry in graph.inputs if entry.next is not None}
    return first, steps, found


def check_steps(plan: PipelinePlan, got: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    copies = {copy: original for tie in plan.ties for copy, original in tie.copies.items()}
    assert len(got) == len(wanted) == STEPS
    for ours, theirs in zip(got, wanted, strict=True):
        assert {copies.get(name, name) for name in ours} == theirs.keys()
        for name, array in ours.items():
            np.testing.assert_allclose(array, theirs[copies.get(name, name)], rtol=1e-6, atol=1e-9, err_msg=name)


@pytest.mark.slow
@pytest.mark.frameworks("torch")
@pytest.mark.parametrize(("name", "pipeline", "microbatches"), RUNS)
def test_processes_of_all_stages_train_as_the_graph_run_whole(
    name: str, pipeline: PipelineRequest, microbatches: int, tmp_path: Path
) -> None:
    plan = plan_of(name, pipeline, microbatches)
    assert len(plan.ties) == (name == "gpt2")
    first, steps, wanted = train_whole(accumulate_gradients(plan.graph, microbatches))
    text = export_stages(make_stage_plan(plan), "torch")
    got = torch_stages.run_stages(tmp_path, text, first | steps[0], steps=steps, processes=4)
    check_steps(plan, got, wanted)


@pytest.mark.slow
@pytest.mark.frameworks("jax")
@pytest.mark.parametrize(("name", "pipeline", "microbatches"), RUNS)
def test_stages_on_host_devices_train_as_the_graph_run_whole(
    name: str, pipeline: PipelineRequest, microbatches: int
) -> None:
    plan = plan_of(name, pipeline, microbatches)
    first, steps, wanted = train_whole(accumulate_gradients(plan.graph, microbatches))
    text = export_stages(make_stage_plan(plan), "shard-map")
    check_steps(plan, jax_stages.run_stages(text, first | steps[0], steps=steps, devices=4), wanted)


@pytest.mark.frameworks("torch")
def test_placements_of_stages_come_with_split_points_and_the_order_of_tasks() -> None:
    pipeline = PipelineRequest(2, "gpipe")
    plan = plan_of("llama-7b", pipeline, 2)
    document = parse_pipeline(json.loads(json.dumps(dump_pipeline(plan, pipeline))), "plan")
    exported = json.loads(export_stages(load_stage_plan(document), "dtensor"))
    assert exported["tasks"][0][0] == {"kind": "forward", "stage": 0, "microbatch": 0}
    assert [stage["rank"] for stage in exported["stages"]] == [0, 1]
    assert exported["stages"][0]["split_point"] is None
    for entry, one in zip(exported["stages"], plan.stages, strict=True):
        assert entry["mesh"] == {"dp": 2}
        assert entry["received"] == [*one.stage.received, *one.stage.received_gradients]
        assert set(entry["values"]) <= set(one.stage.graph.types) | set(one.analysis.program.graph.types)


def test_a_format_without_stages_names_those_that_take_them() -> None:
    plan = make_stage_plan(plan_of("llama-7b", PipelineRequest(2), 1))
    for name in ("sdy", "onnx", "nonsense"):
        with pytest.raises(InvalidRequest, match=rf"format for pipeline stages.*got {name}; wanted one of torch, "):
            export_stages(plan, name)


@pytest.mark.frameworks("torch")
def test_the_command_writes_what_a_plan_read_back_says(tmp_path: Path) -> None:
    pipeline = PipelineRequest(2)
    plan = plan_of("gpt2", pipeline, 2)
    file, out = tmp_path / "stages.json", tmp_path / "stages.py"
    file.write_text(json.dumps(dump_pipeline(plan, pipeline)))
    assert shardplan("export", str(file), "--format", "torch", "-o", str(out)).code == 0
    assert out.read_text() == export_stages(make_stage_plan(plan), "torch")
