"""Schedules to consider where they are left open: virtual stages as far as they shorten the bubble."""

from __future__ import annotations

from fractions import Fraction

import pytest

from planner.errors import InvalidRequest
from planner.pipeline_stages.request import PipelineRequest, ScheduleChoice
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.simulate import StageTimes, simulate

# Schedule, virtual stages, ranks, micro-batches and units; names and virtual stages to consider.
ALONE = [("1f1b", 1), ("zb-h1", 1), ("gpipe", 1)]
CASES: list[tuple[ScheduleChoice, int | None, int, int, int, list[tuple[str, int]]]] = [
    ("auto", None, 16, 16, 255, [ALONE[0], *(("interleaved", count) for count in (2, 4, 8)), *ALONE[1:]]),
    ("auto", None, 16, 24, 255, ALONE),
    ("auto", None, 4, 256, 255, ALONE),
    ("auto", None, 4, 8, 15, [ALONE[0], ("interleaved", 2), *ALONE[1:]]),
    ("auto", None, 1, 8, 15, ALONE[:1]),
    ("auto", 1, 4, 8, 255, ALONE),
    ("auto", 3, 4, 8, 255, [("interleaved", 3)]),
    ("interleaved", None, 4, 8, 15, [("interleaved", 2)]),
    ("1f1b", 1, 4, 8, 255, ALONE[:1]),
]


@pytest.mark.parametrize(("name", "chunks", "ranks", "microbatches", "units", "wanted"), CASES)
def test_schedules_that_are_left_open_are_those_that_shorten_the_bubble(
    name: ScheduleChoice, chunks: int | None, ranks: int, microbatches: int, units: int, wanted: list[tuple[str, int]]
) -> None:
    listed = PipelineRequest(None, name, chunks).list_schedules(ranks, microbatches, units)
    assert [(schedule.name, schedule.chunks) for schedule in listed] == wanted
    for schedule in listed:
        equal = simulate(schedule, [StageTimes(1, 1, 1)] * schedule.stages)
        longer = Fraction(ranks * equal.step_ps, equal.busy_ps) - 1
        assert schedule.bubble_overhead == pytest.approx(float(longer))


def test_what_is_not_given_is_open_only_where_the_schedule_has_virtual_stages() -> None:
    assert PipelineRequest.parse("auto", "1f1b", None) == PipelineRequest(None, "1f1b", 1)
    assert PipelineRequest.parse("4", "auto", None) == PipelineRequest(4, "auto", None)


def test_interleaved_micro_batches_that_cannot_be_grouped_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="micro-batches of interleaved"):
        PipelineRequest(4, "interleaved", None).list_schedules(4, 6, 255)


def test_the_bubble_of_one_rank_is_none() -> None:
    assert PipelineSchedule("1f1b", 1, 4).bubble_overhead == 0.0
