"""Where the time is up before anything is solved, stages are in standard layouts, and the bound holds all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.pipeline_stages import paths
from planner.pipeline_stages.cuts import find_units
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.rank_costs import RankCosts
from planner.pipeline_stages.request import PipelineRequest, ScheduleChoice
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.stage_costs import Part, StageCosts
from planner.pipeline_stages.step_bounds import StepBounds
from planner.pipeline_stages.validate import list_tasks, run_stages, validate_pipeline
from planner.planning.deadline import Deadline, TimeLimitReached
from planner.planning.plan_types import Request

MESH, HARDWARE, OVER = Mesh.parse("2x2"), load_profile("h100-sxm"), Deadline(0.0)
PARTS: list[Part] = ["step", "loop", "long", 2, 4, "passes", "through", "forward"]


def tiny(layers: int = 3, **sizes: Any) -> Graph:
    wanted = {"width": 64, "heads": 4, "feed_forward": 128, "vocabulary": 96, "batch": 4, "seq": 64} | sizes
    document = import_zoo("llama-7b", train="adam", layers=layers, dtype="f32", **wanted)
    return load_graph(GraphDocument.model_validate(document), MESH)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1"])
def test_without_time_stages_have_standard_layouts_and_a_bound(schedule: ScheduleChoice) -> None:
    pipeline, request = PipelineRequest(2, schedule), Request(microbatches=4, gap=0.0, time_limit_s=1.0)
    late = plan_pipeline(tiny(), MESH, HARDWARE, pipeline=pipeline, request=request, deadline=OVER)
    assert late.certificate.status == "feasible"
    assert late.certificate.reason == "work or time limit"
    assert len(late.stages) == 2
    assert all("before the search" in stage.plan.certificate.reason for stage in late.stages)
    unlimited = replace(request, gap=0.2, time_limit_s=None)
    best = plan_pipeline(tiny(), MESH, HARDWARE, pipeline=pipeline, request=unlimited)
    assert 0 < late.certificate.bound_s <= best.step_s <= late.step_s


def test_a_run_that_the_time_is_too_short_for_gives_no_verdict() -> None:
    request = Request(microbatches=4, gap=0.0, time_limit_s=1.0)
    late = plan_pipeline(tiny(layers=1), MESH, HARDWARE, pipeline=PipelineRequest(2), request=request, deadline=OVER)
    assert validate_pipeline(late, OVER) == late
    verdict = validate_pipeline(late).verdict
    assert verdict is not None
    assert verdict.verdict == "equal"


def test_a_run_reads_the_clock_before_each_instruction() -> None:
    request, pipeline = Request(microbatches=4, gap=0.0, time_limit_s=1.0), PipelineRequest(2)
    plan = plan_pipeline(tiny(layers=1), MESH, HARDWARE, pipeline=pipeline, request=request, deadline=OVER)
    programs, tasks, seen = plan.programs, list_tasks(plan.timeline), list[tuple[int, int]]()

    def stop_in_third_pass(done: int, total: int) -> None:
        seen.append((done, total))
        if seen.count((2, total)) > 3:
            raise TimeLimitReached

    with pytest.raises(TimeLimitReached):
        run_stages(plan.graph, programs, tasks, ranks=2, on_progress=stop_in_third_pass)
    assert seen[-1] == (2, len(tasks))
    assert seen.count((0, len(tasks))) > len(programs[0][1].instructions) // 2


def test_without_time_and_with_an_open_number_of_stages_the_bound_is_that_of_all_numbers() -> None:
    request = Request(microbatches=4, gap=0.0, time_limit_s=1.0)
    late = plan_pipeline(tiny(), MESH, HARDWARE, pipeline=PipelineRequest(None), request=request, deadline=OVER)
    assert late.certificate.status == "feasible"
    assert 0 < late.certificate.bound_s <= late.step_s


def test_stages_that_fit_in_no_standard_layout_are_unknown_without_time() -> None:
    request = Request(microbatches=4, time_limit_s=1.0, memory_limit_bytes=400_000)
    late = plan_pipeline(tiny(), MESH, HARDWARE, pipeline=PipelineRequest(2), request=request, deadline=OVER)
    assert late.certificate.status == "unknown"
    assert not late.stages


def test_where_paths_take_too_long_to_find_the_own_work_of_stages_and_ranks_bounds_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    units, model, microbatches = find_units(tiny(layers=1)), CostModel(MESH, HARDWARE), 16
    for has_paths in (True, False):
        monkeypatch.setattr(paths, "MAX_TASKS", 2 * 2 * microbatches - (not has_paths))
        costs = StageCosts(units, model, Request(gap=0.0), microbatches, False, 1, OVER)
        bounds = StepBounds(PipelineSchedule("1f1b", 2, microbatches), RankCosts((costs,)))
        assert bool(bounds.paths) == has_paths
        means = list(bounds.mixed.list_sums([units.may_be_stages] * 2, [costs.matrix("passes")] * 2))
        tables, own = bounds.list_tables(np.inf), bounds.list_own_work()
        assert all((table >= work).all() for table, work in zip(tables, own, strict=True))
        for cut in range(1, units.count):
            mean = max(first[0, cut] + last[cut, -1] for first, last in means)
            assert has_paths or tables[0][0, cut] == max(own[0][0, cut], mean)
            assert has_paths or tables[1][cut, -1] == max(own[1][cut, -1], mean)


@pytest.mark.parametrize("part", PARTS)
def test_the_least_time_of_the_ops_of_a_unit_is_below_its_solved_bound(part: Part) -> None:
    units, model = find_units(tiny(layers=1)), CostModel(MESH, HARDWARE)
    floors = StageCosts(units, model, Request(gap=0.0), 4, True, 1, OVER).matrix(part)
    solved = StageCosts(units, model, Request(gap=0.0), 4, True, 1, Deadline()).matrix(part)
    inside = np.triu(np.ones_like(solved, bool), 1)
    assert (floors[inside] > 0).all()
    assert (floors <= solved)[inside].all()
    assert (floors < solved)[inside].any()
