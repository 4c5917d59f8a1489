"""A mean of paths never exceeds a step, and has the bubble of equal stages where these are all that can be."""

from __future__ import annotations

import random

import numpy as np
import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.ir.mesh import Mesh
from planner.pipeline_stages.cuts import find_units
from planner.pipeline_stages.mixed_paths import MixedPath, TimeShares, mix_paths, mix_ranks
from planner.pipeline_stages.paths import list_paths, split_parts
from planner.pipeline_stages.rank_costs import RankCosts
from planner.pipeline_stages.schedules import Pass, PipelineSchedule
from planner.pipeline_stages.simulate import StageTimes, simulate
from planner.pipeline_stages.stage_costs import StageCosts
from planner.pipeline_stages.stage_graph import extract_stage
from planner.pipeline_stages.step_bounds import StepBounds
from planner.pipeline_stages.task_graph import build_task_graph
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from tests.testing.exhaustive_stages import ExhaustiveStages, time_steps
from tests.testing.random_trainings import random_training
from tests.testing.seeds import seeds
from tests.testing.stage_choices import Integers

MODEL = CostModel(Mesh.parse("2"), load_profile("h100-sxm"))
SCHEDULES = [
    PipelineSchedule("gpipe", 3, 5),
    PipelineSchedule("1f1b", 4, 9),
    PipelineSchedule("1f1b", 5, 2),
    PipelineSchedule("1f1b", 1, 3),
    PipelineSchedule("interleaved", 2, 8, 2),
    PipelineSchedule("interleaved", 3, 6, 2),
    PipelineSchedule("interleaved", 2, 4, 4),
    PipelineSchedule("zb-h1", 4, 9),
    PipelineSchedule("zb-h1", 4, 2),
]
FILLED = [one for one in SCHEDULES if not one.is_split or one.microbatches >= one.ranks]
"""Those with enough micro-batches for the formula of the bubble."""
SMALL = [PipelineSchedule("gpipe", 2, 3), PipelineSchedule("1f1b", 3, 4), PipelineSchedule("zb-h1", 3, 4)]
SMALL += [PipelineSchedule("interleaved", 2, 4, 2), PipelineSchedule("interleaved", 2, 2, 2)]


def measure(schedule: PipelineSchedule, mixed: MixedPath, times: list[StageTimes]) -> float:
    """Return the length of a mean of paths."""
    tasks = [[one.task_ps(kind, is_split=schedule.is_split) for one in times] for kind in Pass]
    updates = sum(share * one.update_ps for share, one in zip(mixed.update, times, strict=True))
    return float((mixed.met * np.array(tasks)[: len(mixed.met)]).sum() + updates)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_mean_of_paths_is_no_longer_than_any_step(schedule: PipelineSchedule) -> None:
    pick, stages = random.Random(7), schedule.stages
    for update, least in ((0.0, 0.0), (0.3, 0.5), (4.0, 0.9)):
        shares = TimeShares(0.3, 0.6 if schedule.is_split else 1.0, update, (least / stages,) * stages)
        for mixed in (mix_paths(schedule, shares), mix_ranks(schedule)):
            for most in (2, 9, 1000) * 20:
                times = [StageTimes(*(pick.randrange(most) for _ in range(6))) for _ in range(stages)]
                assert measure(schedule, mixed, times) <= simulate(schedule, times).step_ps * (1 + 1e-12)


@pytest.mark.parametrize("schedule", FILLED, ids=str)
def test_of_equal_stages_the_mean_has_the_bubble_of_the_formula(schedule: PipelineSchedule) -> None:
    stages, through = schedule.stages, 2 / 3 if schedule.is_split else 1.0
    mixed = mix_paths(schedule, TimeShares(1 / 3, through, 0.0, (1 / stages,) * stages))
    # Passes take at least 1 in each stage, in which forward pass, and that with backward pass, take these shares.
    step = sum(share * part.sum() for share, part in zip((1, through, 1 / 3), split_parts(mixed.met), strict=True))
    work = schedule.microbatches * schedule.chunks
    assert step == pytest.approx(work * (1 + schedule.bubble_overhead), rel=1e-6)


@pytest.mark.parametrize("schedule", [one for one in FILLED if one.ranks > 1], ids=str)
def test_where_stages_share_time_as_they_like_a_bubble_is_proven(schedule: PipelineSchedule) -> None:
    stages, work = schedule.stages, schedule.microbatches / schedule.ranks
    mixed = mix_paths(schedule, TimeShares(1 / 3, 2 / 3 if schedule.is_split else 1.0, 0.0, (0.0,) * stages))
    passes, through, _ = split_parts(mixed.met)
    proven = min(passes + (2 / 3 if schedule.is_split else 0) * through) / work - 1
    assert 0.3 * schedule.bubble_overhead <= proven <= schedule.bubble_overhead * (1 + 1e-6) + 1e-6


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_traced_paths_are_as_long_as_the_simulation(schedule: PipelineSchedule) -> None:
    pick, kinds = random.Random(3), 3 if schedule.is_split else 2
    for _ in range(20):
        times = [StageTimes(*(pick.randrange(9) for _ in range(3))) for _ in range(schedule.stages)]
        tasks = np.array([[one.task_ps(k, is_split=schedule.is_split) for one in times] for k in Pass][:kinds], float)
        ranks = np.arange(schedule.ranks)
        met = build_task_graph(schedule).trace_paths(np.repeat(tasks[None], len(ranks), axis=0), ranks)
        assert (met * tasks).sum(axis=(1, 2)).tolist() == [done[-1].end_ps for done in simulate(schedule, times).ranks]


def test_paths_of_many_tasks_are_found_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = PipelineSchedule("interleaved", 2, 8, 2)
    whole = list_paths(schedule)
    monkeypatch.setattr("planner.pipeline_stages.task_graph.BLOCK", 3 * 8 * schedule.stages)
    assert list_paths(schedule) == whole


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("schedule", SMALL, ids=str)
def test_bounds_are_below_every_step_of_random_stages(schedule: PipelineSchedule, seed: int) -> None:
    graph, random_rows = random_training(seed, schedule.stages), np.random.default_rng(seed)
    units = find_units(graph)
    sizes = schedule.microbatches, schedule.is_split, schedule.chunks
    bounds = StepBounds(schedule, RankCosts((StageCosts(units, MODEL, Request(gap=0.0), *sizes, Deadline()),)))
    least, tables = bounds.mixed.bound_step(), bounds.list_tables(np.inf)
    spans = [(n, n + 1) for n in range(schedule.stages)]
    steps = sample_steps(ExhaustiveStages(graph, [MODEL]), schedule, spans, random_rows)
    assert 0 < least <= steps.min()
    assert all(table[span] <= steps.min() for table, span in zip(tables, spans, strict=True))


def sample_steps(
    everything: ExhaustiveStages,
    schedule: PipelineSchedule,
    spans: list[tuple[int, int]],
    random_rows: np.random.Generator,
) -> Integers:
    """Return steps of stages without sends, whose choices are the best for random weights of their parts."""
    times = []
    for number, span in enumerate(spans):
        listed = everything.list_choices(schedule, number, extract_stage(everything.units, *span)).times
        weights = random_rows.exponential(size=(4, 200)) * [[schedule.microbatches]] ** np.array([[1], [1], [1], [0]])
        times.append(listed[(listed @ weights).argmin(axis=0)])
    nothing = np.zeros(1, np.int64)
    return time_steps(schedule, times, [(nothing, nothing)] * (len(spans) - 1))
