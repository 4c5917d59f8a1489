"""The options of pipeline stages, as `api.options` declares all others."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from planner.documents.strict_model import StrictModel
from planner.errors import InvalidRequest
from planner.pipeline_stages.request import MAX_STAGES, PipelineRequest, ScheduleChoice

MAX_MESHES = 65_536
"""Characters of the meshes of all ranks."""


class PipelineOptions(StrictModel):
    """Which pipelines to consider; none where neither `pipeline` nor `pipeline_meshes` is given."""

    pipeline: Annotated[
        str | None,
        Field(
            max_length=16,
            description="Stages that follow each other, each on a mesh of its own of this shape: a number, or auto for "
            "the least device-seconds.",
        ),
    ] = None
    schedule: Annotated[
        ScheduleChoice | None,
        Field(description="The order of forward and backward passes; capacity considers all where none is given."),
    ] = None
    virtual_stages: Annotated[
        int | None,
        Field(
            ge=1,
            le=MAX_STAGES,
            description="Stages of each rank, for the schedule interleaved; 2, 4, 8, ... where no number is given.",
        ),
    ] = None

    pipeline_meshes: Annotated[
        str | None,
        Field(
            max_length=MAX_MESHES,
            description="The mesh of each rank, where they are not all of one shape: 2x4/2x4/8, or "
            "dp=2,tp=4/dp=4,tp=4. The first is also the mesh of the plan.",
        ),
    ] = None

    def to_pipeline(self, default: ScheduleChoice = "1f1b") -> PipelineRequest | None:
        """Return which pipelines to consider; `default`: the schedule where none is given."""
        if self.pipeline is None and self.pipeline_meshes is None:
            if (self.schedule, self.virtual_stages) != (None, None):
                raise InvalidRequest("schedule", got="no pipeline", wanted="a number of stages, or auto")
            return None
        return PipelineRequest.parse(self.pipeline, self.schedule or default, self.virtual_stages, self.pipeline_meshes)
