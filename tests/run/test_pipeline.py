"""Stages that run in the order of a schedule equal the graph run whole, and hold and send what was predicted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.in_flight import ALONE
from planner.ir.mesh import Mesh
from planner.pipeline_stages.pipeline_plan import PipelinePlan
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.validate import run_stages, validate_pipeline
from planner.planning.plan_types import Request
from planner.run.pipeline import RunTask

TINY: dict[str, Any] = {"width": 16, "heads": 4, "feed_forward": 32, "vocabulary": 24, "batch": 4, "seq": 8}
RUNS = [
    ("llama-7b", "2", PipelineRequest(2), 5, {}),
    ("llama-7b", "2", PipelineRequest(3, "gpipe"), 4, {}),
    ("llama-7b", "2x2", PipelineRequest(3, "zb-h1"), 5, {}),
    ("llama-7b", "2", PipelineRequest(2, "interleaved", 2), 4, {}),
    ("llama-7b", "2", PipelineRequest(2), 3, {"recompute": "auto", "memory_limit_bytes": 90_000}),
    ("llama-7b", "4", PipelineRequest(2), 4, {"memory_limit_bytes": 45_000}),
    ("mixtral-8x7b", "2", PipelineRequest(4), 2, {}),
    ("llama-7b", "2", PipelineRequest(2, meshes=(Mesh.parse("2"), Mesh.parse("2x2"))), 3, {}),
    ("llama-7b", "4", PipelineRequest(3, "zb-h1", 1, tuple(map(Mesh.parse, ("4", "2", "3")))), 3, {}),
    ("llama-7b", "2x2", PipelineRequest(2, "interleaved", 2, (Mesh.parse("2x2"), Mesh.parse("4"))), 4, {}),
]


def plan_of(name: str, mesh: str, pipeline: PipelineRequest, *, microbatches: int, **request: Any) -> PipelinePlan:
    experts: dict[str, Any] = {"experts": 4} if "mixtral" in name else {}
    document = import_zoo(name, train="adam", layers=2, dtype="f32", **TINY, **experts)
    graph = load_graph(GraphDocument.model_validate(document), Mesh.parse(mesh))
    wanted = Request(microbatches=microbatches, gap=0.5, **request)
    return plan_pipeline(graph, Mesh.parse(mesh), load_profile("cpu"), pipeline=pipeline, request=wanted)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mesh", "pipeline", "microbatches", "request_"), RUNS)
def test_all_stages_equal_the_graph_run_whole(
    name: str, mesh: str, pipeline: PipelineRequest, microbatches: int, request_: dict[str, Any]
) -> None:
    planned = plan_of(name, mesh, pipeline, microbatches=microbatches, **request_)
    assert planned.stages, planned.certificate.reason
    verdict = validate_pipeline(planned).verdict
    assert verdict is not None
    assert verdict.verdict == "equal", verdict
    assert verdict.counted_sent_bytes == verdict.predicted_sent_bytes > 0
    assert len(verdict.stages) == len(planned.stages)
    assert verdict.devices == planned.devices
    for counts, stage in zip(verdict.stages, planned.stages, strict=True):
        assert counts.counted_peak_bytes == counts.predicted_peak_bytes == stage.analysis.peak_bytes
        assert counts.counted_bytes == counts.predicted_bytes


def test_a_peak_that_leaves_out_what_is_in_flight_is_found() -> None:
    planned = plan_of("llama-7b", "2", PipelineRequest(2), microbatches=3)
    assert planned.schedule is not None
    programs = [one.analysis.program for one in planned.stages]
    alone = [replace(program, graph=replace(program.graph, in_flight=ALONE)) for program in programs]
    timed = sorted((one for done in planned.timeline.ranks for one in done), key=lambda one: (one.begin_ps, one.end_ps))
    tasks = [RunTask(one.task.kind.value, one.task.stage, one.task.microbatch) for one in timed]
    for given, verdict in ((programs, "equal"), (alone, "different")):
        stages = [(one.stage, program) for one, program in zip(planned.stages, given, strict=True)]
        assert run_stages(planned.graph, stages, tasks, ranks=2).verdict == verdict
