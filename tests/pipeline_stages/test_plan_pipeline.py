"""A pipeline's plan is the best of all partitions, its bound is below all, and its document is read back."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.pipelines import dump_pipeline, load_stages, parse_pipeline
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidDocument, InvalidGraph, InvalidRequest
from planner.frontends.zoo import import_zoo
from planner.ir.accounting import Accounting
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.pipeline_stages.cuts import find_units
from planner.pipeline_stages.pipeline_plan import PipelinePlan, PlannedStage, simulate_stages
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest, ScheduleChoice
from planner.pipeline_stages.schedules import PipelineSchedule, ScheduleName
from planner.pipeline_stages.stage_costs import StageCosts
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from tests.testing.seeds import seeds

MESH, HARDWARE = Mesh.parse("2"), load_profile("h100-sxm")
SCHEDULES: list[ScheduleName] = ["1f1b", "gpipe", "zb-h1"]
CHOICES: list[ScheduleChoice] = [*SCHEDULES, "auto"]


def tiny(layers: int = 1, train: str | None = "sgd", **sizes: Any) -> Graph:
    wanted = {"width": 16, "heads": 4, "feed_forward": 32, "vocabulary": 24, "batch": 4, "seq": 8} | sizes
    document = import_zoo("llama-7b", train=train, layers=layers, dtype="f32", **wanted)
    return load_graph(GraphDocument.model_validate(document), MESH)


def plan_of(graph: Graph, pipeline: PipelineRequest, **request: Any) -> PipelinePlan:
    return plan_pipeline(
        graph, MESH, HARDWARE, pipeline=pipeline, request=Request(**{"microbatches": 4, "gap": 0.0} | request)
    )


def try_everything(graph: Graph, schedule: PipelineSchedule, request: Request) -> float:
    """Return the least step in ps over all partitions, each stage with its own best plan."""
    units, model = find_units(graph), CostModel(MESH, HARDWARE)
    costs = StageCosts(units, model, request, schedule.microbatches, schedule.is_split, 1, Deadline())
    steps = []
    for inner in combinations(range(1, units.count), schedule.stages - 1):
        spans = list(pairwise((0, *inner, units.count)))
        plans = [costs.plan(*span, schedule.others_in_flight(stage)) for stage, span in enumerate(spans)]
        if all(plan.analysis for plan in plans):
            stages = [PlannedStage(costs.stage(*span), plan) for span, plan in zip(spans, plans, strict=True)]
            steps.append(simulate_stages(schedule, stages).step_ps)
    return min(steps)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(8))
def test_the_plan_is_no_longer_than_any_of_stages_planned_apart(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes: dict[str, Any] = {"width": 16 * int(random.integers(1, 4)), "vocabulary": 24 * int(random.integers(1, 40))}
    graph = tiny(**sizes, seq=8 * int(random.integers(1, 5)))
    schedule = PipelineSchedule(SCHEDULES[seed % 3], int(random.integers(2, 4)), int(random.integers(1, 6)))
    request = Request(microbatches=schedule.microbatches, gap=0.0)
    pipeline = PipelineRequest(schedule.ranks, schedule.name)
    planned = plan_pipeline(graph, MESH, HARDWARE, pipeline=pipeline, request=request)
    # It may be shorter than that of stages which each take the least time for their own work.
    assert planned.timeline.step_ps <= try_everything(graph, schedule, request)
    assert 0 < planned.certificate.bound_s <= planned.step_s


def test_bounds_of_long_steps_count_micro_batches_in_flight() -> None:
    model, request = CostModel(MESH, HARDWARE), Request(memory_limit_bytes=108_000, gap=0.0)
    costs = StageCosts(find_units(tiny(layers=2, train="adam")), model, request, 8, False, 1, Deadline())
    for held in ((0, 0), (3, 0)):
        costs.certify("long", 0, 3, held=held)
    alone, more = (costs.matrix("long", held)[0, 3] for held in ((0, 0), (3, 0)))
    assert alone < more < np.inf


def test_one_stage_takes_the_step_of_a_plan_without_stages() -> None:
    planned = plan_of(tiny(), PipelineRequest(1))
    (stage,) = planned.stages
    assert planned.timeline.step_ps == stage.analysis.step_ps
    assert planned.timeline.bubble == 0
    assert not planned.sends


@pytest.mark.slow
def test_stages_of_equal_content_are_solved_once_and_named_apart() -> None:
    planned = plan_of(tiny(layers=6), PipelineRequest(4, "gpipe"), gap=0.2)
    shown = [stage.analysis.program.graph.ops[0].id for stage in planned.stages]
    assert len(set(shown)) == 4
    for stage in planned.stages:
        program = stage.analysis.program
        assert set(program.graph.types) <= program.values.keys()
        assert Analysis(program, planned.model).step_ps == stage.analysis.step_ps


@pytest.mark.parametrize(
    "pipeline", [PipelineRequest(2), PipelineRequest(2, "zb-h1"), PipelineRequest(2, "interleaved", 2)]
)
def test_a_document_is_read_back(pipeline: PipelineRequest) -> None:
    planned = plan_of(tiny(layers=2), pipeline, gap=0.2)
    document = json.loads(json.dumps(dump_pipeline(planned, pipeline)))
    loaded = load_stages(parse_pipeline(document, "plan"))
    assert len(loaded) == len(document["stages"]) == (pipeline.virtual_stages or 1) * 2
    for (_, program), entry in zip(loaded, document["stages"], strict=True):
        assert int(Accounting(program).live.max()) == entry["peak_memory_bytes"]
        assert sum(entry["plan"]["memory"]["by_kind"].values()) == entry["peak_memory_bytes"]
        assert Analysis(program, planned.model).step_ps == pytest.approx(entry["step_s"] * 1e12)
    assert document["timeline"][0][0]["kind"] == "forward"
    document["stages"][0]["step_s"] *= 2
    with pytest.raises(InvalidDocument, match="not as it was written"):
        parse_pipeline(document, "plan")


@pytest.mark.slow
def test_the_number_of_stages_may_be_left_open() -> None:
    planned = plan_of(tiny(), PipelineRequest(None), gap=0.05)
    assert planned.schedule is not None
    assert planned.schedule.ranks == 1


@pytest.mark.parametrize(
    ("schedule", "chunks", "ranks"), [("interleaved", 2, 2), ("interleaved", None, 1), ("auto", 2, 2)]
)
def test_an_open_number_of_stages_leaves_out_those_without_a_schedule(
    schedule: ScheduleChoice, chunks: int | None, ranks: int
) -> None:
    planned = plan_of(tiny(), PipelineRequest(None, schedule, chunks), microbatches=2, gap=0.9)
    assert planned.schedule is not None
    assert planned.schedule.ranks == ranks


@pytest.mark.slow
def test_the_best_schedule_may_be_left_open() -> None:
    steps = {name: plan_of(tiny(), PipelineRequest(2, name), gap=0.05).step_s for name in CHOICES}
    assert steps["auto"] == min(steps.values())


@pytest.mark.slow
def test_fewer_micro_batches_than_stages_are_planned_with_their_bubble() -> None:
    planned = plan_of(tiny(), PipelineRequest(4), microbatches=2, gap=0.3)
    assert planned.timeline.bubble > 0.5


@pytest.mark.slow
def test_what_fits_no_memory_is_infeasible_with_a_limit_that_is_enough() -> None:
    graph = tiny(train="adam")
    planned = plan_of(graph, PipelineRequest(2), memory_limit_bytes=20_000)
    assert planned.certificate.status == "infeasible"
    assert not planned.stages
    assert "is sufficient" in planned.certificate.reason


BAD: list[tuple[PipelineRequest, dict[str, Any], str]] = [
    (PipelineRequest(6), {}, "more stages than parts of the graph.*got 6; wanted at most 5"),
    (PipelineRequest(2, "interleaved", 2), {"microbatches": 3}, "micro-batches of interleaved.*multiple of the 2"),
    (PipelineRequest(2, "1f1b", 2), {}, "virtual stages.*interleaved"),
    (PipelineRequest(2), {"microbatches": 1, "global_batch": 6}, "global batch"),
    (PipelineRequest(None, "interleaved", 6), {"microbatches": 2}, "more stages than parts of the graph.*got 12"),
    (PipelineRequest(2), {"objective": "bytes"}, "objective of a pipeline"),
]


@pytest.mark.parametrize(("pipeline", "request_", "message"), BAD)
def test_what_cannot_be_is_refused(pipeline: PipelineRequest, request_: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        plan_of(tiny(), pipeline, **request_)


def test_a_graph_without_phases_is_refused() -> None:
    with pytest.raises(InvalidGraph, match="without phases"):
        plan_of(tiny(train=None), PipelineRequest(2))


@pytest.mark.parametrize("stages", ["0", "-1", "two", "1.5", "99999999999"])
def test_a_number_of_stages_is_a_number_or_auto(stages: str) -> None:
    with pytest.raises(InvalidRequest, match="pipeline stages"):
        PipelineRequest.parse(stages, "1f1b", 1)


def test_a_bound_of_a_stage_holds_for_equal_and_longer_ones() -> None:
    costs = StageCosts(
        find_units(tiny(layers=4, train="adam")), CostModel(MESH, HARDWARE), Request(), 8, False, 1, Deadline()
    )
    before = costs.matrix("step", (1, 0)).copy()
    assert costs.certify("step", 1, 5, held=(1, 0))
    costs.certified["step", (1, 0)] = dict.fromkeys(costs.certified["step", (1, 0)], 2 * before[1, 5])
    after, more = costs.matrix("step", (1, 0)), before[1, 5]
    assert after[3, 7] == before[3, 7] + more
    assert after[1, 6] == pytest.approx(before[1, 6] + more)
    assert after[1, 4] == before[1, 4]
    assert not costs.certify("step", 3, 7, held=(1, 0))
