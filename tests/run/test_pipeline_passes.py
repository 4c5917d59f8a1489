"""Stages with short or empty passes, of chains of small layers, equal the graph run whole and hold what was predicted.

Gradients pass through stages that do not read them, are read by late ops only, or do not depend on data.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from planner.choose.hardware import load_profile
from planner.documents.pipelines import dump_pipeline, parse_pipeline, run_document
from planner.ir.mesh import Mesh
from planner.pipeline_stages.cuts import find_units
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.stage_graph import extract_stage
from planner.pipeline_stages.validate import validate_pipeline
from planner.planning.plan_types import Request
from planner.rewrite.accumulate import accumulate_gradients
from tests.testing.layer_chains import chain

# Layers, whether the loss is the sum of the result (or of its squares), stages and micro-batches.
CASES: list[tuple[str, bool, PipelineRequest, int]] = [
    ("w s s- s-", False, PipelineRequest(2, "interleaved", 2), 4),  # a gradient passes a stage that reads another
    ("s- s- w", True, PipelineRequest(3), 4),  # gradients that do not depend on data are sent
    ("s- s- w", True, PipelineRequest(3, "zb-h1"), 4),
    ("s s s-", False, PipelineRequest(3, "zb-h1"), 4),  # a received gradient is read by late ops only
    ("w w s", True, PipelineRequest(2), 2),
    ("m s m", False, PipelineRequest(3, "zb-h1"), 2),  # fewer micro-batches than stages
    ("m m m m", False, PipelineRequest(4, "zb-h1"), 3),
    ("m m m m", False, PipelineRequest(4, "zb-h1"), 1),
]


@pytest.mark.parametrize(("layers", "is_sum", "pipeline", "microbatches"), CASES)
def test_short_passes_equal_the_graph_run_whole(
    layers: str, is_sum: bool, pipeline: PipelineRequest, microbatches: int
) -> None:
    graph, mesh = chain(layers, is_sum=is_sum), Mesh.parse("2")
    request = Request(microbatches=microbatches, gap=0.9)
    planned = plan_pipeline(graph, mesh, load_profile("h100-sxm"), pipeline=pipeline, request=request)
    verdict = validate_pipeline(planned).verdict
    assert verdict is not None
    assert verdict.verdict == "equal", verdict
    assert verdict.counted_sent_bytes == planned.sent_bytes
    for counts, stage in zip(verdict.stages, planned.stages, strict=True):
        assert counts.counted_peak_bytes == stage.analysis.peak_bytes == sum(stage.analysis.peak_by_kind().values())
    document = parse_pipeline(json.loads(json.dumps(dump_pipeline(planned, pipeline))), "plan")
    assert run_document(document, seed=1).verdict == "equal"


def test_gradients_that_do_not_depend_on_data_are_added_up() -> None:
    step = accumulate_gradients(chain("s s", is_sum=True), 3)
    assert [op.inputs for op in step.ops if op.accumulates] == [
        op.values for op in step.ops if op.op == "sum" and op.phase == "backward"
    ]


@pytest.mark.parametrize("value", ["i0", "i1", "i2", "i3"])
def test_an_input_that_the_graph_returns_is_an_output_of_the_stages_that_read_it(value: str) -> None:
    graph = chain("m s m", is_sum=False)
    graph = replace(graph, outputs=(*graph.outputs, value))
    units = find_units(graph)
    for cut in range(1, units.count):
        stages = [extract_stage(units, *span).graph for span in ((0, cut), (cut, units.count))]
        assert [value in stage.outputs for stage in stages] == [value in stage.types for stage in stages]
        assert set(graph.outputs) <= {each for stage in stages for each in stage.outputs}
