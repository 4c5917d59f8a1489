"""Capacity documents from files, as a report shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from planner.documents.plan_sections import RequestDocument
from planner.documents.schemas import validate_document
from planner.documents.strict_model import Id, Name, Size, StrictModel, Version2

FORMAT = "shardplan.capacity"
MAX_CANDIDATES = 1 << 16


class CapacityGraphDocument(StrictModel):
    """A graph, and how many tokens one of its steps takes in."""

    name: Name
    tokens: Size | None


class OfferDocument(StrictModel):
    """A hardware profile, and the price of an hour of one device."""

    name: Id
    price_per_device_hour: float | None


class CapacityRequestDocument(RequestDocument):
    """How every candidate is planned; without a limit the hardware's memory counts."""

    memory_limit_bytes: Size | None  # type: ignore[assignment]


class CandidateDocument(StrictModel):
    """A mesh of one hardware for one graph: what its plan takes, or why it was not planned."""

    graph: Size
    hardware: Id
    mesh: Name
    devices: Annotated[int, Field(ge=1)]
    initial_bound_s: Annotated[float, Field(gt=0)]
    initial_bound_bytes: Size
    status: Name
    objective_s: float | None = None
    bound_s: float | None = None
    gap: float | None = None
    peak_bytes: Size | None = None
    least_limit_bytes: Size | None = None
    wall_s: float | None = None
    cost: float | None = None
    time_s: float | None = None
    mfu: float | None = None
    skip_reason: Name | None
    dominated_by: Name | None


class FrontierPlanDocument(StrictModel):
    id: Id
    verdict: Name | None


class FrontierDocument(CandidateDocument):
    """A candidate that no other beats."""

    plan: FrontierPlanDocument | None


class CapacityDocument(StrictModel):
    """The answer to a capacity question (`planner.documents.capacity`)."""

    format: Literal["shardplan.capacity"]
    version: Version2
    id: Id
    unit: Literal["step", "token"]
    cost_unit: Literal["price", "device_s"]
    request: CapacityRequestDocument
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
    """The capacity document in a JSON value. Raises InvalidDocument."""
    return validate_document(CapacityDocument, raw, where).model_dump(mode="json", exclude_unset=True)
