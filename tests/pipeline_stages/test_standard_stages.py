"""Stages in standard layouts take the fastest that fits, and compute what the model does."""

from __future__ import annotations

from functools import cache

import pytest

from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.pipeline_stages.pipeline_plan import PipelinePlan
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.validate import validate_pipeline
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request

MESH, HARDWARE = Mesh.parse("2x4"), load_profile("h100-sxm")
F32, MIXED = {"dtype": "f32"}, {"precision": "bf16-mixed"}
LIMITS = [
    (F32, 1_000_000, "zero1+tp+sp"),
    (F32, 700_000, "zero1+tp+sp, all but contractions recomputed"),
    (F32, 500_000, "fsdp+tp+sp, all but contractions recomputed"),
    (F32, 450_000, "zero1+tp+sp, everything recomputed"),
    (F32, 400_000, "zero2+tp+sp, everything recomputed"),
    (MIXED, 700_000, "zero1+tp+sp"),
    (MIXED, 500_000, "zero2+tp+sp"),
    (MIXED, 450_000, "zero1+tp+sp, all but contractions recomputed"),
    (MIXED, 260_000, "fsdp+tp+sp, everything recomputed"),
]
"""Element types, bytes of a device, and the layout of the first of two stages."""


@cache
def step(**types: str) -> Graph:
    sizes = {"width": 64, "heads": 8, "feed_forward": 128, "vocabulary": 96, "batch": 4, "seq": 64}
    document = import_zoo("llama-7b", train="adam", layers=3, **types, **sizes)  # type: ignore[arg-type]
    return load_graph(GraphDocument.model_validate(document), MESH)


def plan_late(graph: Graph, limit: int, pipeline: PipelineRequest) -> PipelinePlan:
    request = Request(microbatches=4, time_limit_s=1.0, memory_limit_bytes=limit, recompute="auto")
    return plan_pipeline(graph, MESH, HARDWARE, pipeline=pipeline, request=request, deadline=Deadline(0.0))


def check_run(late: PipelinePlan) -> None:
    """Check that the stages compute what the model does, with the bytes and peaks that are predicted."""
    verdict = validate_pipeline(late).verdict
    assert verdict is not None
    assert verdict.verdict == "equal"
    for stage in verdict.stages:
        assert (stage.counted_bytes, stage.counted_peak_bytes) == (stage.predicted_bytes, stage.predicted_peak_bytes)


def test_the_virtual_stages_of_a_rank_fit_together_and_each_holds_what_it_needs() -> None:
    limit = 600_000
    late = plan_late(step(**MIXED), limit, PipelineRequest(2, "interleaved", 2))
    assert max(late.peak_bytes(rank) for rank in range(2)) <= limit
    wanted = ["zero1+tp+sp", "zero1+tp+sp, everything recomputed", "zero1+tp+sp, all but contractions recomputed", "tp"]
    assert [stage.plan.certificate.reason.partition(": ")[2] for stage in late.stages] == wanted
    check_run(late)


@pytest.mark.parametrize(("types", "limit", "name"), LIMITS)
def test_the_fastest_layout_that_fits_is_written_counted_and_run(types: dict[str, str], limit: int, name: str) -> None:
    late = plan_late(step(**types), limit, PipelineRequest(2))
    assert late.stages[0].plan.certificate.reason == f"time limit, before the search: {name}"
    assert max(late.peak_bytes(rank) for rank in range(2)) <= limit
    check_run(late)
