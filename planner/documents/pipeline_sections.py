"""The document of a pipeline's plan."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from planner.documents.plan_sections import HardwareDocument, RequestDocument
from planner.documents.schemas import MeshDocument, PlanDocument, PlannedGraphDocument
from planner.documents.strict_model import Id, Name, Size, StrictModel, Version

Pair = Annotated[list[Size], Field(min_length=2, max_length=2)]


class TaskDocument(StrictModel):
    """A pass of a micro-batch through a stage, and when it begins and ends from the start of the step."""

    kind: Literal["forward", "backward", "weight"]
    stage: Size
    microbatch: Size
    begin_s: float
    end_s: float


class PipelineRequestDocument(StrictModel):
    """Which pipelines were considered; `stages` null: 1, 2, 4, ...; `meshes`: of each rank, null where all have one."""

    stages: Size | None
    schedule: Literal["gpipe", "1f1b", "interleaved", "zb-h1", "auto"]
    virtual_stages: Size | None
    meshes: Annotated[list[Name], Field(min_length=1, max_length=1024)] | None = None


class PipelinedRequestDocument(RequestDocument):
    """What was requested."""

    pipeline: PipelineRequestDocument


class PipelineSolverDocument(StrictModel):
    """The certificate: no partition into stages has a step below `bound_s`, in any schedule considered."""

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    objective_s: float | None
    bound_s: float
    gap: float | None
    wall_s: float | None
    reason: Name
    versions: dict[Name, int | Name]


class ScheduleDocument(StrictModel):
    """The schedule; each rank runs `virtual_stages` stages."""

    name: Literal["gpipe", "1f1b", "interleaved", "zb-h1"]
    ranks: Size
    virtual_stages: Size
    microbatches: Size


class PipelineCostDocument(StrictModel):
    """Figures of the step; bytes are of the device that receives or holds most, those sent of all devices.

    `low_s`, `high_s`: the interval of the step, from the errors of what prices it; null in documents without one.
    """

    step_s: float
    low_s: float | None = None
    high_s: float | None = None
    bubble: float
    mfu: float
    devices: Size
    collective_bytes: Size
    sent_bytes: Size
    peak_memory_bytes: Size


class StageDocument(StrictModel):
    """A stage: the units [first, last) of the graph on the devices of a rank, and its plan.

    Times of passes and sends are of one micro-batch; `step_s` is of all passes and the update. `in_flight`: other
    micro-batches held between forward and backward pass, and between backward pass and that for parameters.
    """

    rank: Size
    units: Pair
    layers: list[Name]
    in_flight: Pair
    step_s: float
    forward_s: float
    backward_s: float
    weight_s: float
    update_s: float
    send_forward_s: float
    send_backward_s: float
    peak_memory_bytes: Size
    received: list[Id]
    sent: list[Id]
    plan: PlanDocument


class StageCountsDocument(StrictModel):
    """Bytes of a stage's busiest device: received in collectives, and held at the peak."""

    counted_bytes: Size
    predicted_bytes: Size
    counted_peak_bytes: Size
    predicted_peak_bytes: Size


class PipelineVerdictDocument(StrictModel):
    """The result of running all stages against the unsharded graph; an error that is not finite is null."""

    verdict: Literal["equal", "different"]
    max_relative_error: float | None
    counted_sent_bytes: Size
    predicted_sent_bytes: Size
    devices: Size
    stages: list[StageCountsDocument]


class PipelineDocument(StrictModel):
    """A training step in pipeline stages, with the `timeline` of the tasks of each rank.

    `mesh` is that of each stage; where the request has a mesh for each rank, it is that of the first. Two stages hold a
    copy of each parameter that is `tied`, and exchange its gradients once in a step.
    """

    format: Literal["shardplan.pipeline"]
    version: Version
    id: str
    graph: PlannedGraphDocument
    mesh: MeshDocument
    hardware: HardwareDocument
    request: PipelinedRequestDocument
    solver: PipelineSolverDocument
    schedule: ScheduleDocument | None
    cost: PipelineCostDocument | None
    tied: list[Id] = Field(default_factory=list)
    stages: list[StageDocument]
    timeline: list[list[TaskDocument]]
    verdict: PipelineVerdictDocument | None
    digest: str


AnyPlanDocument = PlanDocument | PipelineDocument
"""A plan, with or without stages."""
