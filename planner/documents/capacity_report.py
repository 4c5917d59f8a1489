"""The shape of capacity documents, for reports."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from planner.documents.pipeline_sections import PipelineRequestDocument
from planner.documents.plan_sections import RequestDocument
from planner.documents.schemas import validate_document
from planner.documents.strict_model import Id, Name, Size, StrictModel, Version2

FORMAT = "shardplan.capacity"
MAX_CANDIDATES = 1 << 16


class CapacityGraphDocument(StrictModel):
    """A graph, the tokens and sequences that one pass over it processes, and its passes before each update."""

    name: Name
    tokens: Size | None
    batch: Size | None = None
    microbatches: Size = 1


class OfferDocument(StrictModel):
    """A hardware profile, the price of one of its devices for an hour, and its rated power in watts."""

    name: Id
    price_per_device_hour: float | None
    power_w: float | None = None


class CapacityRequestDocument(RequestDocument):
    """How every candidate is planned; without a limit, the memory of the hardware counts."""

    memory_limit_bytes: Size | None  # type: ignore[assignment]


class CandidateDocument(StrictModel):
    """A graph on a mesh of one kind of hardware: its plan's figures, or why it was skipped.

    `mesh` is that of each stage. `initial_bound_s` and `initial_bound_bytes` are lower bounds known without planning.
    `step_s` is the step with the overlap that counts, by which candidates are compared; `low_s` and `high_s` are its
    interval, and no plan of the candidate has a step below `step_bound_s`, less than it by `step_gap`. `objective_s` is
    the sum of the plan's instructions, for which the solver proves `bound_s` and `gap`. `dominated_by` is the mesh
    whose plan proves this one no better. `searched` is false for a plan in standard layouts that no search has
    improved, for lack of time. The figures of tokens and of a run are those of `planner.usecases.capacity_figures`.
    """

    graph: Size
    hardware: Id
    mesh: Name
    stages: Annotated[int, Field(ge=1)] = 1
    devices: Annotated[int, Field(ge=1)]
    initial_bound_s: Annotated[float, Field(gt=0)]
    initial_bound_bytes: Size
    status: Name
    step_s: float | None = None
    step_bound_s: float | None = None
    step_gap: float | None = None
    objective_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    bound_s: float | None = None
    gap: float | None = None
    peak_bytes: Size | None = None
    least_limit_bytes: Size | None = None
    wall_s: float | None = None
    schedule: Name | None = None
    virtual_stages: Size | None = None
    searched: bool | None = None
    bubble: float | None = None
    cost: float | None = None
    time_s: float | None = None
    mfu: float | None = None
    tokens_per_s: float | None = None
    tokens_per_device_s: float | None = None
    device_hours_per_million_tokens: float | None = None
    cost_per_million_tokens: float | None = None
    energy_kwh_per_million_tokens: float | None = None
    run_days: float | None = None
    run_device_hours: float | None = None
    run_cost: float | None = None
    run_energy_kwh: float | None = None
    skip_reason: Name | None
    dominated_by: Name | None


class FrontierPlanDocument(StrictModel):
    id: Id
    verdict: Name | None


class FrontierDocument(CandidateDocument):
    """A candidate that no other one beats."""

    plan: FrontierPlanDocument | None


class CapacityDocument(StrictModel):
    """The answer to a capacity question (`planner.documents.capacity`)."""

    format: Literal["shardplan.capacity"]
    version: Version2
    id: Id
    unit: Literal["step", "token"]
    cost_unit: Literal["price", "device_s"]
    request: CapacityRequestDocument
    pipeline: PipelineRequestDocument | None = None
    run_tokens: float | None = None
    graphs: Annotated[list[CapacityGraphDocument], Field(min_length=1)]
    hardware: Annotated[list[OfferDocument], Field(min_length=1)]
    complete: bool
    planned: Size
    candidates: Annotated[list[CandidateDocument], Field(min_length=1, max_length=MAX_CANDIDATES)]
    frontier: list[FrontierDocument]
    smallest_feasible: CandidateDocument | None
    cheapest: CandidateDocument | None
    fastest: CandidateDocument | None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(one.graph >= len(self.graphs) for one in self.candidates):
            raise ValueError("the number of one of the graphs")
        return self


def checked_capacity(raw: Any, where: str) -> dict[str, Any]:
    """Return a valid capacity document. Raises InvalidDocument."""
    return validate_document(CapacityDocument, raw, where).model_dump(mode="json", exclude_unset=True)
