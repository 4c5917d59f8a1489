"""Capacity questions over HTTP: small ones, answered while the caller waits."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from api.http.requests import BuiltInHardware, MeshInput, at_pointer
from api.options import CapacityOptions, PlanTimeLimit, SweepTimeLimit
from planner.choose import hardware
from planner.documents.capacity import dump_capacity
from planner.documents.graphs import load_mesh
from planner.documents.hardware import read_profile
from planner.documents.schemas import GraphDocument, MeshDocument, validate_document
from planner.documents.strict_model import StrictModel
from planner.ir.mesh import Mesh
from planner.judge.mesh_candidates import enumerate_candidates, parse_device_counts
from planner.usecases.capacity import count_tokens, search_meshes
from planner.usecases.capacity_question import CapacityBudget, CapacityQuestion, CapacityWorkload, HardwareOffer

MAX_CHOICES = 16
"""The most graphs, and the most kinds of hardware, in one question."""


class OfferRequest(StrictModel):
    """A built-in hardware profile, and the price of one device for an hour."""

    name: BuiltInHardware = hardware.DEFAULT_PROFILE
    price_per_device_hour: Annotated[
        float | None, Field(gt=0, le=1e9, description="In any currency; costs are in device-seconds without it.")
    ] = None


class CapacityRequest(CapacityOptions):
    """Graphs, kinds of hardware and numbers of devices; a mesh with sizes to fill in (`?`), else every factorisation.

    Candidates that are not reached within `time_limit_s` are skipped, and `complete` is then false.
    """

    graphs: Annotated[
        list[GraphDocument],
        Field(min_length=1, max_length=MAX_CHOICES, description="The model, in one or several sizes."),
    ]
    hardware: Annotated[
        list[OfferRequest], Field(min_length=1, max_length=MAX_CHOICES, description="The kinds of devices on offer.")
    ] = Field(default=[OfferRequest()])
    mesh: MeshInput | None = None
    plan_time_limit_s: PlanTimeLimit = 10.0
    time_limit_s: SweepTimeLimit = 30.0


def build_capacity_question(request: CapacityRequest) -> CapacityQuestion:
    """Return the question of a request. Raises ShardplanError, with a pointer where it is known."""
    documents = [graph.model_dump(exclude_unset=True) for graph in request.graphs]
    with at_pointer("/hardware"):
        offers = tuple(
            HardwareOffer(read_profile(offer.name), offer.price_per_device_hour) for offer in request.hardware
        )
    with at_pointer("/mesh"):
        mesh = _build_template(request.mesh)
    with at_pointer("/devices"):
        candidates = enumerate_candidates(
            len(documents), len(offers), parse_device_counts(request.devices), axes=request.axes, template=mesh
        )
    with at_pointer(""):
        plan_request = request.to_request()
        return CapacityQuestion(
            tuple(CapacityWorkload(graph, count_tokens(graph)) for graph in documents), offers, candidates, plan_request
        )


def _build_template(mesh: MeshDocument | str | None) -> Mesh | None:
    match mesh:
        case None:
            return None
        case str():
            return Mesh.parse(mesh)
        case document:
            return load_mesh(document)


def answer_capacity(raw: Any) -> dict[str, Any]:
    """Return the capacity document of a request. Raises ShardplanError, with a pointer where it is known."""
    request = validate_document(CapacityRequest, raw, "body")
    search = search_meshes(build_capacity_question(request), time_limit_s=request.time_limit_s)
    with at_pointer(""):
        return dump_capacity(search, CapacityBudget(request.max_step_s, request.max_cost))
