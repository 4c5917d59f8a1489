"""Schedules run to their published bubbles, and the simulation is the longest path of the graph of tasks."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise

import networkx as nx
import pytest

from planner.errors import InvalidRequest
from planner.pipeline_stages.schedules import Pass, PipelineSchedule, ScheduleName, Task
from planner.pipeline_stages.simulate import StageTimes, simulate

EQUAL = StageTimes(3, 4, 2)
SIZES = [(ranks, microbatches) for ranks in range(1, 9) for microbatches in (1, 2, 3, 7, 8, 12, 24)]
SHAPES: list[tuple[ScheduleName, int, int, int]] = [
    ("gpipe", 4, 6, 1),
    ("1f1b", 4, 9, 1),
    ("1f1b", 5, 2, 1),
    ("interleaved", 3, 6, 2),
    ("interleaved", 2, 8, 4),
    ("zb-h1", 4, 9, 1),
    ("zb-h1", 4, 2, 1),
]


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_the_bubble_of_equal_stages_is_the_published_one(name: ScheduleName) -> None:
    for ranks, microbatches in SIZES:
        timeline = simulate(PipelineSchedule(name, ranks, microbatches), [EQUAL] * ranks)
        assert Fraction(timeline.busy_ps, ranks * timeline.step_ps) == 1 - Fraction(ranks - 1, microbatches + ranks - 1)


def test_virtual_stages_divide_the_bubble() -> None:
    for ranks, microbatches in SIZES:
        for chunks in (2, 3, 4):
            if ranks > 1 and microbatches % ranks == 0:
                timeline = simulate(
                    PipelineSchedule("interleaved", ranks, microbatches, chunks), [EQUAL] * ranks * chunks
                )
                longer = Fraction(ranks * timeline.step_ps, timeline.busy_ps) - 1
                assert longer == Fraction(ranks - 1, chunks * microbatches)


def test_zero_bubble_leaves_a_third_of_the_idle_time_of_1f1b_at_its_memory() -> None:
    passes = StageTimes(1, 1, 1)
    for ranks, microbatches in SIZES:
        if microbatches >= ranks:
            split, joined = (
                PipelineSchedule("zb-h1", ranks, microbatches),
                PipelineSchedule("1f1b", ranks, microbatches),
            )
            idle = [simulate(each, [passes] * ranks).step_ps - 3 * microbatches for each in (split, joined)]
            assert idle == [ranks - 1, 3 * (ranks - 1)]
            assert max(map(split.peak_in_flight, range(ranks))) == max(map(joined.peak_in_flight, range(ranks)))


def test_1f1b_holds_as_many_micro_batches_as_stages_follow() -> None:
    for ranks, microbatches in SIZES:
        held = list(map(PipelineSchedule("1f1b", ranks, microbatches).peak_in_flight, range(ranks)))
        assert held == [min(microbatches, ranks - stage) for stage in range(ranks)]
        assert PipelineSchedule("gpipe", ranks, microbatches).peak_in_flight(0) == microbatches


@pytest.mark.parametrize(("name", "ranks", "microbatches", "chunks"), SHAPES)
def test_the_simulation_is_the_longest_path_of_the_tasks(
    name: ScheduleName, ranks: int, microbatches: int, chunks: int
) -> None:
    schedule, pick = PipelineSchedule(name, ranks, microbatches, chunks), random.Random(5)
    for _ in range(20):
        times = [StageTimes(*(pick.randrange(9) for _ in range(6))) for _ in range(schedule.stages)]
        assert simulate(schedule, times).step_ps == longest_path(schedule, times)


def longest_path(schedule: PipelineSchedule, times: list[StageTimes]) -> int:
    """Return the length of the longest path of a step, by edges that each name what one task waits for."""
    paths: nx.DiGraph[object] = nx.DiGraph()

    def duration(task: Task) -> int:
        one = times[task.stage]
        joined = one.backward_ps + (0 if schedule.name == "zb-h1" else one.weight_ps)
        return {Pass.FORWARD: one.forward_ps, Pass.BACKWARD: joined, Pass.WEIGHT: one.weight_ps}[task.kind]

    for rank in range(schedule.ranks):
        order = schedule.order_tasks(rank)
        paths.add_edge("begin", order[0], length=0)
        for task, after in pairwise(order):
            paths.add_edge(task, after, length=duration(task))
        updates = sum(one.update_ps for stage, one in enumerate(times) if stage % schedule.ranks == rank)
        paths.add_edge(order[-1], "end", length=duration(order[-1]) + updates)
    for number in range(schedule.microbatches):
        for stage in range(1, schedule.stages):
            pair = [Task(Pass.FORWARD, one, number) for one in (stage - 1, stage)]
            paths.add_edge(*pair, length=duration(pair[0]) + times[stage - 1].send_forward_ps)
            pair = [Task(Pass.BACKWARD, one, number) for one in (stage, stage - 1)]
            paths.add_edge(*pair, length=duration(pair[0]) + times[stage].send_backward_ps)
    return int(nx.dag_longest_path_length(paths, weight="length"))


@pytest.mark.parametrize(("name", "ranks", "microbatches", "chunks"), SHAPES)
def test_every_task_runs_once(name: ScheduleName, ranks: int, microbatches: int, chunks: int) -> None:
    schedule = PipelineSchedule(name, ranks, microbatches, chunks)
    tasks = [task for rank in range(ranks) for task in schedule.order_tasks(rank)]
    kinds = set(Pass) if name == "zb-h1" else {Pass.FORWARD, Pass.BACKWARD}
    assert len(tasks) == len(set(tasks))
    assert set(tasks) == {Task(k, s, n) for k in kinds for s in range(ranks * chunks) for n in range(microbatches)}
    timeline = simulate(schedule, [EQUAL] * schedule.stages)
    assert [[one.task for one in done] for done in timeline.ranks] == [schedule.order_tasks(r) for r in range(ranks)]


@pytest.mark.parametrize(
    ("name", "ranks", "microbatches", "chunks"),
    [("1f1b", 4, 8, 2), ("interleaved", 4, 6, 2), ("interleaved", 4, 8, 1), ("1f1b", 0, 8, 1), ("late", 2, 2, 1)],
)
def test_schedules_that_cannot_be_are_refused(name: ScheduleName, ranks: int, microbatches: int, chunks: int) -> None:
    with pytest.raises(InvalidRequest):
        PipelineSchedule(name, ranks, microbatches, chunks)
