"""Exported stages train as the graph run whole: five steps on processes over gloo, and on JAX's host devices.

Collectives take next to no time on the hardware that is planned for, so that all plans are sharded.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
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
from planner.ir.program import Reshard
from planner.pipeline_stages.export.formats import export_stages
from planner.pipeline_stages.export.stage_plan import make_stage_plan
from planner.pipeline_stages.pipeline_plan import PipelinePlan
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest, ScheduleChoice
from planner.planning.plan_types import Request
from planner.rewrite.accumulate import accumulate_gradients
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs, random_later_data
from tests.testing import jax_stages, torch_stages
from tests.testing.command_line import shardplan
from tests.testing.layer_chains import chain

STEPS = 5
CPU = load_profile("cpu")
LINK = replace(CPU.links["memory"], latency_s=0.0, step_s=0.0, bandwidth=8e11)
HARDWARE = replace(CPU, launch_s=0.0, memory_bandwidth=2e7, links={"memory": LINK})
TINY: dict[str, Any] = {"width": 16, "heads": 2, "feed_forward": 32, "vocabulary": 24, "batch": 2, "seq": 8}


def request_on(*meshes: str, schedule: ScheduleChoice = "1f1b", chunks: int = 1) -> PipelineRequest:
    """Return the request for a rank on each of these meshes."""
    return PipelineRequest(len(meshes), schedule, chunks, tuple(map(Mesh.parse, meshes)))


RUNS = [
    ("gpt2", PipelineRequest(2), 3),
    ("gpt2", PipelineRequest(2, "interleaved", 2), 2),
    ("llama-7b", PipelineRequest(2, "gpipe"), 2),
    ("llama-7b", PipelineRequest(2, "zb-h1"), 3),
    ("llama-7b", PipelineRequest(2), 1),
    ("llama-7b", request_on("dp=2,tp=2", "tp=2", schedule="zb-h1"), 3),
    ("gpt2", request_on("dp=2,tp=2", "tp=4"), 2),
    ("gpt2", request_on("dp=2", "tp=4", "dp=3", schedule="gpipe"), 2),  # a gradient passes a stage
    ("gpt2", request_on("dp=2", "dp=2,tp=2", schedule="interleaved", chunks=2), 2),
]


@cache
def plan_of(name: str, pipeline: PipelineRequest, microbatches: int) -> PipelinePlan:
    layers = 2 if (pipeline.virtual_stages or 1) > 1 else 1
    document = import_zoo(name, train="adam", layers=layers, dtype="f64", **TINY)
    mesh = pipeline.meshes[0] if pipeline.meshes else Mesh.parse("dp=2")
    graph = load_graph(GraphDocument.model_validate(document), mesh)
    request = Request(microbatches=microbatches, gap=0.5)
    return plan_pipeline(graph, mesh, HARDWARE, pipeline=pipeline, request=request)


def has_collectives(plan: PipelinePlan) -> bool:
    return all(any(isinstance(done, Reshard) for done in program.instructions) for _, program in plan.programs)


def run_exported(plan: PipelinePlan, target: str, folder: Path, *, by_torchrun: bool = False) -> None:
    """Compare five steps of exported stages with the graph run whole."""
    assert plan.schedule is not None
    first, steps, wanted = train_whole(accumulate_gradients(plan.graph, plan.schedule.microbatches))
    text, arrays = export_stages(make_stage_plan(plan), target), first | steps[0]
    if target == "torch":
        got = torch_stages.run_stages(
            folder, text, arrays, steps=steps, processes=plan.devices, by_torchrun=by_torchrun
        )
    else:
        got = jax_stages.run_stages(text, arrays, steps=steps, devices=plan.devices)
    check_steps(plan, got, wanted)


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


TARGETS = [
    pytest.param("torch", marks=pytest.mark.frameworks("torch")),
    pytest.param("shard-map", marks=pytest.mark.frameworks("jax")),
]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "pipeline", "microbatches"), RUNS)
def test_all_stages_train_as_the_graph_run_whole(
    name: str, pipeline: PipelineRequest, microbatches: int, target: str, tmp_path: Path
) -> None:
    plan = plan_of(name, pipeline, microbatches)
    assert len(plan.ties) == (name == "gpt2")
    assert has_collectives(plan)
    run_exported(plan, target, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_gradients_pass_stages_that_share_ranks_in_another_layout(target: str, tmp_path: Path) -> None:
    graph, pipeline = chain("m s s w", is_sum=True, dtype="f64"), PipelineRequest(2, "interleaved", 2)
    request = Request(microbatches=2, gap=0.5)
    plan = plan_pipeline(graph, Mesh.parse("2"), HARDWARE, pipeline=pipeline, request=request)
    layouts = [{value: one.sent_as(value) for value in one.stage.sent_gradients} for one in plan.stages]
    assert layouts[1].keys() == layouts[2].keys() == layouts[3].keys()
    assert layouts[1] != layouts[3]
    run_exported(plan, target, tmp_path, by_torchrun=True)


@pytest.mark.frameworks("torch")
def test_placements_of_stages_come_with_split_points_and_the_order_of_tasks() -> None:
    pipeline = request_on("dp=2", "dp=2,tp=2", schedule="gpipe")
    plan = plan_of("llama-7b", pipeline, 2)
    document = parse_pipeline(json.loads(json.dumps(dump_pipeline(plan, pipeline))), "plan")
    exported = json.loads(export_stages(load_stage_plan(document), "dtensor"))
    assert exported["tasks"][0][0] == {"kind": "forward", "stage": 0, "microbatch": 0}
    assert [stage["rank"] for stage in exported["stages"]] == [0, 1]
    assert [stage["devices"] for stage in exported["stages"]] == [[0, 1], [2, 3, 4, 5]]
    assert [stage["mesh"] for stage in exported["stages"]] == [{"dp": 2}, {"dp": 2, "tp": 2}]
    assert exported["stages"][0]["split_point"] is None
    for entry, one in zip(exported["stages"], plan.stages, strict=True):
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
