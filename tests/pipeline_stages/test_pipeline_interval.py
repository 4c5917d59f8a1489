"""The interval of a pipeline's step: that of its only stage, and of several what errors make of the schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.choose.hardware import Hardware, load_profile
from planner.choose.hardware.intervals import NETWORK_INTERVAL, UNMEASURED_OP
from planner.documents.canonical_json import digest_document
from planner.documents.graphs import load_graph
from planner.documents.pipelines import dump_pipeline, parse_pipeline
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from planner.judge.step_interval import find_interval
from planner.pipeline_stages.pipeline_interval import find_pipeline_interval
from planner.pipeline_stages.pipeline_plan import PipelinePlan, simulate_stages
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.planning.plan_types import Request

FITTED = load_profile("h100-sxm")
SIZES: dict[str, Any] = {"width": 32, "heads": 4, "feed_forward": 64, "vocabulary": 32, "batch": 4, "seq": 8}


def plan_stages(stages: int, *, mesh: str = "2", hardware: Hardware = FITTED, microbatches: int = 4) -> PipelinePlan:
    devices = Mesh.parse(mesh)
    document = import_zoo("llama-7b", train="sgd", layers=2, dtype="bf16", **SIZES)
    graph, request = load_graph(GraphDocument.model_validate(document), devices), Request(microbatches=microbatches)
    return plan_pipeline(graph, devices, hardware, pipeline=PipelineRequest(stages), request=request)


def test_the_interval_of_one_stage_is_that_of_its_step() -> None:
    plan = plan_stages(1)
    low_s, high_s = find_pipeline_interval(plan)
    alone = find_interval(plan.stages[0].analysis, plan.step_s)
    assert low_s == pytest.approx(alone.low_s, rel=1e-6)
    assert high_s == pytest.approx(alone.high_s, rel=1e-6)


def test_errors_of_stages_and_of_sends_are_independent() -> None:
    plan = plan_stages(2, mesh="1", hardware=replace(FITTED, op_times=None))
    assert plan.schedule is not None
    steps = []
    for op, send in ((1.0, 1.0), (UNMEASURED_OP[1], 1.0), (1.0, NETWORK_INTERVAL[1])):
        times = [[round(op * time) for time in stage.analysis.times_ps] for stage in plan.stages]
        made = simulate_stages(plan.schedule, plan.stages, times=times, slower_sends=send)
        steps.append(made.step_ps * 1e-12)
    step_s, slower_ops_s, slower_sends_s = steps
    _, high_s = find_pipeline_interval(plan)
    assert step_s == pytest.approx(plan.step_s)
    assert min(slower_ops_s, slower_sends_s) > step_s
    above_s = ((slower_ops_s - step_s) ** 2 + (slower_sends_s - step_s) ** 2) ** 0.5
    assert high_s == pytest.approx(step_s + above_s, rel=1e-6)


def test_a_document_has_the_interval_and_one_without_is_read() -> None:
    document = dump_pipeline(plan_stages(2), PipelineRequest(2))
    assert document["cost"]["low_s"] < document["cost"]["step_s"] < document["cost"]["high_s"]
    older = {key: part for key, part in document.items() if key != "digest"}
    older["cost"] = {key: value for key, value in older["cost"].items() if key not in ("low_s", "high_s")}
    read = parse_pipeline(older | {"digest": digest_document(older)}, "plan")
    assert read.cost is not None
    assert read.cost.high_s is None
