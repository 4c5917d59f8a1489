"""What an explanation says of a pipeline is what planning and simulating the moved cuts by themselves gives."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from planner import explain_pipeline
from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.pipeline_stages.cuts import find_units
from planner.pipeline_stages.explain import PipelineExplanation, split_step
from planner.pipeline_stages.pipeline_plan import PipelinePlan, PlannedStage, simulate_stages
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.stage_costs import StageCosts
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request

MESH, HARDWARE = Mesh.parse("2"), load_profile("h100-sxm")


def tiny(name: str = "llama-7b", layers: int = 1, **sizes: Any) -> Graph:
    wanted = {"width": 16, "heads": 4, "vocabulary": 24, "batch": 4, "seq": 8} | sizes
    document = import_zoo(name, train="sgd", layers=layers, dtype="f32", **wanted)
    return load_graph(GraphDocument.model_validate(document), MESH)


def plan_of(graph: Graph, pipeline: PipelineRequest, **request: Any) -> PipelinePlan:
    asked = Request(**{"microbatches": 4, "gap": 0.0} | request)
    return plan_pipeline(graph, MESH, HARDWARE, pipeline=pipeline, request=asked)


@pytest.fixture(scope="module")
def planned() -> PipelinePlan:
    return plan_of(tiny(), PipelineRequest(2))


@pytest.fixture(scope="module")
def explained(planned: PipelinePlan) -> PipelineExplanation:
    return explain_pipeline(planned)


def step_with(plan: PipelinePlan, cuts: list[int]) -> int:
    """Return the step in ps of the best plans of stages with these cuts, each planned from nothing."""
    assert plan.schedule is not None
    units, schedule = find_units(plan.graph), plan.schedule
    costs = StageCosts(units, CostModel(MESH, HARDWARE), plan.request, 4, schedule.is_split, 1, Deadline())
    spans = list(pairwise(cuts))
    plans = [costs.plan(*span, schedule.others_in_flight(stage)) for stage, span in enumerate(spans)]
    stages = [PlannedStage(costs.stage(*span), one) for span, one in zip(spans, plans, strict=True)]
    return simulate_stages(schedule, stages).step_ps


def test_a_moved_cut_takes_what_planning_its_stages_gives(
    planned: PipelinePlan, explained: PipelineExplanation
) -> None:
    count = find_units(planned.graph).count
    (cut,) = explained.cuts
    assert cut.unit == planned.stages[1].stage.first
    for move in cut.moves:
        moved = [0, cut.unit + move.units, count]
        if not 0 < moved[1] < count:
            assert "would be empty" in move.reason
            continue
        assert move.is_solved
        assert move.step_ps == step_with(planned, moved)
        assert move.bound_ps is not None
        assert 0 < move.bound_ps <= move.step_ps
    assert any(move.step_ps for move in cut.moves)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_the_parts_of_a_step_add_up(schedule: Any) -> None:
    plan = plan_of(tiny(), PipelineRequest(2, schedule), gap=0.2)
    parts = split_step(plan)
    assert parts.slowest_ps + parts.fill_ps + parts.sends_ps == parts.step_ps == plan.timeline.step_ps
    assert min(parts.slowest_ps, parts.fill_ps, parts.sends_ps) > 0
    assert min(parts.idle_ps) == parts.step_ps - parts.slowest_ps
    assert np.mean(parts.idle_ps) / parts.step_ps == pytest.approx(plan.timeline.bubble)


def test_the_bound_of_the_cuts_lies_between_the_plan_and_the_bound_of_all(
    planned: PipelinePlan, explained: PipelineExplanation
) -> None:
    bound, step = explained.bound, planned.timeline.step_ps
    assert bound.bound_ps == round(planned.certificate.bound_s * 1e12)
    assert bound.bound_ps <= bound.cuts_ps <= step
    for least, own in zip(bound.stages_ps, explained.stages_ps, strict=True):
        assert 0 < least <= own


def test_without_time_moved_cuts_have_bounds_only(planned: PipelinePlan, explained: PipelineExplanation) -> None:
    hurried = explain_pipeline(planned, Deadline(0.0))
    for quick, slow in zip(hurried.cuts[0].moves, explained.cuts[0].moves, strict=True):
        if slow.step_ps is None:
            assert quick == slow
            continue
        assert quick.step_ps is None
        assert quick.bound_ps is not None
        assert not quick.is_solved
        assert "time limit" in quick.reason
        assert 0 < quick.bound_ps <= slow.step_ps
    assert hurried.parts == explained.parts


def test_a_stage_that_would_be_empty_or_too_large_is_named() -> None:
    graph, alone = tiny(), Mesh.parse("1")
    count = find_units(graph).count

    def plan(stages: int, limit: int | None = None) -> PipelinePlan:
        request = Request(memory_limit_bytes=limit, microbatches=2, gap=0.0)
        return plan_pipeline(graph, alone, HARDWARE, pipeline=PipelineRequest(stages), request=request)

    for cut in explain_pipeline(plan(count)).cuts:
        assert [move.reason for move in cut.moves] == [f"stage {n} would be empty" for n in (cut.stage - 1, cut.stage)]
    free = plan(2)
    tight = plan(2, max(map(free.peak_bytes, range(2))))
    reasons = [move.reason for cut in explain_pipeline(tight).cuts for move in cut.moves]
    assert any("fits in no plan" in reason and "is sufficient" in reason for reason in reasons)
