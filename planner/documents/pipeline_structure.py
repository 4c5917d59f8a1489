"""Checks that the parts of a pipeline's document fit each other, before anything is computed from them."""

from __future__ import annotations

from planner.documents.pipeline_sections import PipelineDocument, ScheduleDocument
from planner.errors import InvalidDocument
from planner.pipeline_stages.schedules import PipelineSchedule


def check_structure(document: PipelineDocument, where: str) -> None:
    """Raise InvalidDocument for stages or tasks that are not those of the schedule."""
    if (document.schedule is None) != (document.cost is None):
        raise InvalidDocument("schedule and cost", where=where, got="one of them", wanted="both or none")
    if document.schedule is None:
        if document.stages or document.timeline:
            raise InvalidDocument("stages without a schedule", where=f"{where}: stages", wanted="none")
        return
    schedule = load_schedule(document.schedule)
    if len(document.stages) != schedule.stages:
        count = len(document.stages)
        raise InvalidDocument("number of stages", where=f"{where}: stages", got=count, wanted=schedule.stages)
    begin = 0
    for number, stage in enumerate(document.stages):
        if stage.units[0] != begin or stage.rank != number % schedule.ranks:
            got, wanted = f"{stage.units[0]} on rank {stage.rank}", f"{begin} on rank {number % schedule.ranks}"
            raise InvalidDocument("first unit of a stage", where=f"{where}: stages: {number}", got=got, wanted=wanted)
        begin = stage.units[1]
    tasks = [[(task.kind, task.stage, task.microbatch) for task in rank] for rank in document.timeline]
    count = schedule.chunks * schedule.microbatches * (3 if schedule.is_split else 2)
    is_right = [len(rank) for rank in tasks] == [count] * schedule.ranks and all(
        listed == [(task.kind.value, task.stage, task.microbatch) for task in schedule.order_tasks(rank)]
        for rank, listed in enumerate(tasks)
    )
    if not is_right:
        wanted = f"those of the schedule {schedule.name}, in its order"
        raise InvalidDocument("tasks of the ranks", where=f"{where}: timeline", got="others", wanted=wanted)


def load_schedule(listed: ScheduleDocument) -> PipelineSchedule:
    """Return the schedule of a document. Raises InvalidRequest for one that cannot be."""
    return PipelineSchedule(listed.name, listed.ranks, listed.microbatches, listed.virtual_stages)
