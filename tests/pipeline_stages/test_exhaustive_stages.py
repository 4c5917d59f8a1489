"""Stages are those of trying every partition, schedule and choice of layouts, and bounds hold for all of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import solvers
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.ir.mesh import Mesh
from planner.pipeline_stages.cuts import find_units
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.schedules import PipelineSchedule, ScheduleName
from planner.pipeline_stages.simulate import StageTimes, simulate
from planner.pipeline_stages.stage_graph import extract_stage
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from tests.testing.exhaustive_stages import ExhaustiveStages, compare_stages, time_steps
from tests.testing.random_trainings import random_training
from tests.testing.seeds import seeds

MODEL = CostModel(Mesh.parse("2"), load_profile("h100-sxm"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))  # how long a seed takes differs too much for others every day
def test_stages_are_those_of_trying_everything(seed: int) -> None:
    for row in compare_stages(seed, [MODEL]):
        assert row.bound_ps <= row.least_ps <= row.step_ps
        assert row.is_separate


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_stages_on_other_meshes_are_those_of_trying_everything(seed: int) -> None:
    models = [CostModel(Mesh.parse(mesh), MODEL.hardware) for mesh in (("2", "1"), ("1", "2"), ("1", "3"))[seed % 3]]
    for row in compare_stages(seed, models):
        assert row.bound_ps <= row.least_ps <= row.step_ps
        assert row.is_separate


@pytest.mark.parametrize("seed", seeds(8))
def test_virtual_stages_are_cut_as_well_as_by_trying_every_partition(seed: int) -> None:
    model, graph, microbatches = (
        CostModel(Mesh.parse("1"), MODEL.hardware),
        random_training(seed, 6),
        2 * (1 + seed % 3),
    )
    request, asked = Request(microbatches=microbatches, gap=0.0), PipelineRequest(2, "interleaved", 2)
    plan = plan_pipeline(graph, model.mesh, model.hardware, pipeline=asked, request=request)
    least = ExhaustiveStages(graph, [model]).find_least_step(PipelineSchedule("interleaved", 2, microbatches, 2))
    assert plan.certificate.bound_s <= least * PICO * (1 + 1e-12)
    assert plan.timeline.step_ps == least


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1"])
@pytest.mark.parametrize("limit_s", [None, 0.0])
def test_what_a_stage_sends_is_there_when_its_pass_ends(name: ScheduleName, limit_s: float | None) -> None:
    request = Request(microbatches=4, gap=0.0, time_limit_s=None if limit_s is None else 1.0)
    plan = plan_pipeline(
        random_training(4, 2),
        MODEL.mesh,
        MODEL.hardware,
        pipeline=PipelineRequest(2, name),
        request=request,
        deadline=Deadline(limit_s),
    )
    for one in plan.stages:
        program = one.analysis.program
        repeated = {value for done in program.instructions[: program.loop_end] for value in done.results}
        outputs = dict(zip(program.graph.outputs, program.outputs, strict=True))
        assert {outputs[value] for value in (*one.stage.sent, *one.stage.sent_gradients)} <= repeated


@pytest.mark.parametrize("limit", [None, 0.95, 0.6])
def test_the_least_listed_work_of_a_stage_is_that_of_its_optimum(limit: float | None) -> None:
    units = find_units(random_training(7, 2))
    graph = extract_stage(units, 0, 1).make_step(3, (1, 0), is_split=False)
    problem = formulate(graph, MODEL).problem
    fastest = solvers.solve(problem).assignment
    assert fastest is not None
    most = None if limit is None else int(limit * solvers.evaluate(problem, fastest).peak)
    listed = ExhaustiveStages(units.graph, [MODEL], most)
    schedule = PipelineSchedule("1f1b", 2, 3)
    best = solvers.solve(formulate(graph, MODEL, most).problem).cost
    work = listed.list_choices(schedule, 0, extract_stage(units, 0, 1)).work(3)
    assert (work.min() if work.size else None) == best


@pytest.mark.parametrize("seed", seeds(12))
def test_steps_are_timed_as_they_are_simulated(seed: int) -> None:
    random = np.random.default_rng(seed)
    for name, ranks in product(("1f1b", "gpipe", "zb-h1"), (1, 2, 3)):
        schedule = PipelineSchedule(name, ranks, int(random.integers(1, 6)))  # type: ignore[arg-type]
        times = random.integers(1, 100, (ranks, 4))
        sent = random.integers(0, 50, (ranks, 2))
        sent[-1, 0] = sent[0, 1] = 0
        stages = [StageTimes(*map(int, (*own, *send))) for own, send in zip(times, sent, strict=True)]
        moved = [(sent[n, 0], sent[n + 1, 1]) for n in range(ranks - 1)]
        timed = time_steps(schedule, [own[None] for own in times], moved)
        assert timed.tolist() == [simulate(schedule, stages).step_ps]
