"""Which pipelines to consider for a training step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from planner.errors import InvalidRequest
from planner.pipeline_stages.schedules import PipelineSchedule, ScheduleName
from planner.planning.plan_types import Request

AUTO = "auto"
MAX_STAGES = 1024
LEAST_BUBBLE = 0.02
"""Bubble, as a share of the work, below which more virtual stages are not considered where their number is open."""
AUTO_NAMES: tuple[ScheduleName, ...] = ("1f1b", "interleaved", "zb-h1", "gpipe")
ScheduleChoice = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "auto"]


@dataclass(frozen=True, slots=True)
class PipelineRequest:
    """Which pipelines to consider.

    stages          ranks of the pipeline; None: 1, 2, 4, ... as many as there are units
    schedule        the order of passes; "auto": the fastest of all that the virtual stages allow
    virtual_stages  stages of each rank; None: 1 where the schedule has no more, and otherwise also 2, 4, 8, ... as far
                    as that many shorten the bubble
    """

    stages: int | None = 1
    schedule: ScheduleChoice = "1f1b"
    virtual_stages: int | None = 1

    def __post_init__(self) -> None:
        if self.stages is not None and not 1 <= self.stages <= MAX_STAGES:
            raise InvalidRequest("pipeline stages", got=self.stages, wanted=f"1 to {MAX_STAGES}, or auto")
        if self.schedule not in get_args(ScheduleChoice):
            raise InvalidRequest("schedule", got=self.schedule, wanted=f"one of {', '.join(get_args(ScheduleChoice))}")
        if self.virtual_stages is not None and not 1 <= self.virtual_stages <= MAX_STAGES:
            raise InvalidRequest("virtual stages", got=self.virtual_stages, wanted=f"1 to {MAX_STAGES}")

    @classmethod
    def parse(cls, stages: str, schedule: ScheduleChoice, virtual_stages: int | None) -> PipelineRequest:
        """Return the request for stages as they are written: a number, or `auto`."""
        if stages != AUTO and not stages.isdecimal():
            raise InvalidRequest("pipeline stages", got=stages, wanted=f"1 to {MAX_STAGES}, or auto")
        if virtual_stages is None and schedule not in ("auto", "interleaved"):
            virtual_stages = 1
        return cls(None if stages == AUTO else int(stages[:9]), schedule, virtual_stages)

    def list_stage_counts(self) -> list[int]:
        """Return the numbers of ranks to consider: the one that is given, or all powers of two.

        Virtual stages need two ranks or more.
        """
        if self.stages is not None:
            return [self.stages]
        first = 0 if self.virtual_stages in (None, 1) else 1
        return [1 << power for power in range(first, MAX_STAGES.bit_length())]

    def check_schedule(self, microbatches: int) -> None:
        """Raise InvalidRequest where the given number of stages has no such schedule, whatever the graph is."""
        if self.stages is not None:
            self.list_schedules(self.stages, microbatches, MAX_STAGES)

    def list_schedules(self, ranks: int, microbatches: int, units: int) -> list[PipelineSchedule]:
        """Return the schedules to consider with a number of ranks, for a graph of so many units.

        Raises InvalidRequest where no schedule is possible.
        """
        if ranks == 1 and self.virtual_stages in (None, 1):
            return [PipelineSchedule("1f1b", 1, microbatches)]
        chunks = {"interleaved": self._list_chunks(ranks, microbatches, units)}
        if self.schedule != "auto":
            listed = chunks.get(self.schedule) or [self.virtual_stages or (2 if self.schedule in chunks else 1)]
            return [PipelineSchedule(self.schedule, ranks, microbatches, count) for count in listed]
        alone = [1] if self.virtual_stages in (None, 1) else []
        return [
            PipelineSchedule(name, ranks, microbatches, count)
            for name in AUTO_NAMES
            for count in chunks.get(name, alone)
        ]

    def _list_chunks(self, ranks: int, microbatches: int, units: int) -> list[int]:
        """Return the virtual stages of each rank to consider with the schedule interleaved."""
        if self.virtual_stages is not None:
            return [self.virtual_stages] if self.virtual_stages > 1 else []
        listed, chunks = list[int](), 1
        while microbatches % ranks == 0 and ranks - 1 > LEAST_BUBBLE * microbatches * chunks:
            chunks *= 2
            listed += [chunks] if ranks * chunks <= units else []
        return listed


def check_stage_overlap(request: Request) -> None:
    """Raise InvalidRequest for a request with stages that asks for overlap."""
    if request.overlap:
        raise InvalidRequest("overlap of a pipeline", got=request.overlap, wanted="0: stages are priced without it")
