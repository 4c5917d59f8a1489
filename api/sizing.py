"""A question of capacity asked over HTTP: few meshes, looked at while the caller waits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from api.asking import MAX_SEED, MeshAsked, pointed
from planner.capacity import survey, tokens
from planner.choose import hardware
from planner.documents.capacity import capacity_document
from planner.documents.graphs import mesh_from
from planner.documents.hardware import profile_document
from planner.documents.schemas import GraphDocument, MeshDocument, checked
from planner.documents.strict import Id, Name, Strict
from planner.judge.candidates import candidates, counts
from planner.model.mesh import Mesh
from planner.plans import Request
from planner.sweep import Asked, Budget, Offer, Question

MOST = 16
"""Graphs, or kinds of hardware, in one question."""


class OfferAsked(Strict):
    """A built-in hardware profile, and what a device of it costs an hour."""

    name: Id = hardware.DEFAULT
    hour: Annotated[float, Field(gt=0, le=1e9)] | None = None


class CapacityAsked(Strict):
    """Graphs, hardware and numbers of devices; a mesh with sizes to fill in (`?`), else every factorisation. What takes
    longer than `time_limit_s` in all is left, and said to be: `complete` is false."""

    graphs: Annotated[list[GraphDocument], Field(min_length=1, max_length=MOST)]
    devices: Annotated[Name, Field(description="8,16,24, or 8..512, which doubles.")]
    hardware: Annotated[list[OfferAsked], Field(min_length=1, max_length=MOST)] = Field(default=[OfferAsked()])
    mesh: MeshAsked | None = None
    axes: Annotated[int, Field(ge=1, le=3)] = 2
    memory_limit_bytes: Annotated[int, Field(ge=1, le=1 << 62)] | None = None
    gap: Annotated[float, Field(ge=0, lt=1)] = 0.01
    recompute: Literal["none", "auto"] = "none"
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    plan_time_limit_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    time_limit_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    max_step_s: Annotated[float, Field(gt=0)] | None = None
    max_cost: Annotated[float, Field(gt=0)] | None = None


def question_from(asked: CapacityAsked) -> Question:
    """Raises ShardplanError, with a pointer where it is known."""
    documents = [graph.model_dump(exclude_unset=True) for graph in asked.graphs]
    with pointed("/hardware"):
        offers = tuple(Offer(profile_document(each.name), each.hour) for each in asked.hardware)
    with pointed("/mesh"):
        mesh = _template(asked.mesh)
    with pointed("/devices"):
        listed = candidates(len(documents), len(offers), counts(asked.devices), asked.axes, mesh)
    request = Request(
        asked.memory_limit_bytes, asked.gap, asked.plan_time_limit_s, seed=asked.seed, recompute=asked.recompute
    )
    with pointed(""):
        return Question(tuple(Asked(each, tokens(each)) for each in documents), offers, listed, request)


def _template(asked: MeshDocument | str | None) -> Mesh | None:
    match asked:
        case None:
            return None
        case str():
            return Mesh.parse(asked)
        case document:
            return mesh_from(document)


def capacity(raw: Any) -> dict[str, Any]:
    """The document of what was found. Raises ShardplanError, with a pointer where it is known."""
    asked = checked(CapacityAsked, raw, "body")
    found = survey(question_from(asked), time_limit_s=asked.time_limit_s)
    with pointed(""):
        return capacity_document(found, Budget(asked.max_step_s, asked.max_cost))
