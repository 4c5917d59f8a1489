"""Capacity questions over HTTP: their schema, and the planner's values they describe."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from api.http.requests import BuiltInHardware, MeshInput, at_pointer
from api.options import CapacityOptions, ModelOptions
from planner.choose import hardware
from planner.documents.graphs import load_mesh
from planner.documents.hardware import read_profile
from planner.documents.schemas import GraphDocument, MeshDocument
from planner.documents.strict_model import StrictModel
from planner.errors import InvalidRequest
from planner.frontends.zoo import SEQUENCE
from planner.frontends.zoo.models import find_model
from planner.ir.mesh import Mesh
from planner.judge.mesh_candidates import enumerate_candidates, parse_device_counts
from planner.usecases.capacity_question import CapacityQuestion, CapacityWorkload, HardwareOffer
from planner.usecases.capacity_workloads import read_workload, zoo_workloads

SIZES = ("layers", "width", "heads", "kv_heads", "feed_forward", "vocabulary", "experts")
MAX_CHOICES = 16
"""The most graphs, and the most kinds of hardware, in one question."""


class OfferRequest(StrictModel):
    """A built-in hardware profile, and the price of one device for an hour."""

    name: BuiltInHardware = hardware.DEFAULT_PROFILE
    price_per_device_hour: Annotated[
        float | None, Field(gt=0, le=1e9, description="In any currency; costs are in device-seconds without it.")
    ] = None


class ModelRequest(ModelOptions):
    """A built-in model, as `GET /v1/models/{name}/graph` has it."""

    name: Annotated[str, Field(max_length=64, description="The name of a built-in model.")]

    @property
    def options(self) -> dict[str, Any]:
        """The sizes, and how the model is trained."""
        return self.model_dump(exclude={"name", "batch", "seq"})


class CapacityRequest(CapacityOptions):
    """Graphs or built-in models, kinds of hardware, numbers of devices, and a mesh with sizes to fill in (`?`).

    Without a mesh every factorisation is a candidate. A model is given as `import zoo` has it on the command line.

    Candidates that are not reached within `time_limit_s`, from the start of the search, are skipped, and `complete` is
    then false.
    """

    graphs: Annotated[
        list[GraphDocument],
        Field(max_length=MAX_CHOICES, description="The model, in one or several sizes."),
    ] = Field(default=[])
    models: Annotated[
        list[ModelRequest],
        Field(max_length=MAX_CHOICES, description="The model as a built-in one, in one or several sizes."),
    ] = Field(default=[])
    hardware: Annotated[
        list[OfferRequest], Field(min_length=1, max_length=MAX_CHOICES, description="The kinds of devices on offer.")
    ] = Field(default=[OfferRequest()])
    mesh: MeshInput | None = None
    jobs: Annotated[int, Field(ge=1, le=1024, description="Meshes planned at the same time, where workers allow.")] = 4


def check_capacity_request(request: CapacityRequest) -> None:
    """Check a request without building its models. Raises ShardplanError, with a pointer where it is known."""
    sketches = []
    for number, model in enumerate(request.models):
        with at_pointer(f"/models/{number}"):
            sizes = {key: value for key, value in model.options.items() if key in SIZES}
            seq = model.seq or min(SEQUENCE, find_model(model.name, sizes).positions)
            sketches.append(CapacityWorkload({"name": model.name}, model.batch * seq, model.batch))
    build_capacity_question(request, sketches, most=1)


def build_capacity_question(
    request: CapacityRequest, models: list[CapacityWorkload], most: int | None = None
) -> CapacityQuestion:
    """Return the question of a request with its models; `most`: only so many candidates are listed.

    Raises ShardplanError, with a pointer where it is known.
    """
    workloads = [*(read_workload(graph.model_dump(exclude_unset=True)) for graph in request.graphs), *models]
    with at_pointer("/graphs"):
        if not 1 <= len(workloads) <= MAX_CHOICES:
            raise InvalidRequest("graphs and models", got=len(workloads), wanted=f"1 to {MAX_CHOICES} together")
    with at_pointer("/hardware"):
        offers = tuple(
            HardwareOffer(read_profile(offer.name), offer.price_per_device_hour) for offer in request.hardware
        )
    with at_pointer("/mesh"):
        mesh = _build_template(request.mesh)
    with at_pointer("/devices"):
        candidates = enumerate_candidates(
            len(workloads),
            len(offers),
            parse_device_counts(request.devices),
            axes=request.axes,
            template=mesh,
            most=most,
        )
    with at_pointer(""):
        return CapacityQuestion(tuple(workloads), offers, candidates, request.to_request(), request.tokens)


def _build_template(mesh: MeshDocument | str | None) -> Mesh | None:
    match mesh:
        case None:
            return None
        case str():
            return Mesh.parse(mesh)
        case document:
            return load_mesh(document)


def build_models(request: CapacityRequest) -> list[CapacityWorkload]:
    """Build the built-in models of a request."""
    return [
        workload
        for model in request.models
        for workload in zoo_workloads(model.name, batches=[model.batch], seqs=[model.seq], **model.options)
    ]
