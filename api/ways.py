"""A resharding asked over HTTP: the document of the cheapest way between two places."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from api.asking import MeshAsked, mesh_asked, pointed
from planner.choose import hardware
from planner.choose.route import Objective
from planner.documents.graphs import sharding_from
from planner.documents.reshards import reshard_document
from planner.documents.schemas import ShardingDocument, checked
from planner.documents.strict import AxisLists, Dtype, Id, Name, Shape, Strict
from planner.migration import runs_right, way_between
from planner.model.between import Place
from planner.model.graph import TensorType
from planner.model.mesh import Mesh

Devices = Annotated[list[Annotated[int, Field(ge=0, le=1 << 20)]], Field(max_length=1 << 14, fail_fast=True)]
ShardingAsked = Annotated[ShardingDocument | AxisLists, Field(description="A sharding, or its split_axes alone.")]


class ReshardAsked(Strict):
    """A tensor and its shardings before and after; another mesh to go to, and the numbers of devices, if given."""

    name: Name = "reshard"
    mesh: MeshAsked
    shape: Shape
    dtype: Dtype = "f32"
    source: ShardingAsked
    target: ShardingAsked
    objective: Literal["time", "bytes"] = "time"
    memory_limit_bytes: Annotated[int, Field(ge=1, le=1 << 62)] | None = None
    hardware: Id = hardware.DEFAULT
    target_mesh: MeshAsked | None = None
    devices: Devices | None = None
    target_devices: Devices | None = None
    schedule: bool = False
    check: Annotated[bool, Field(description="Run it on every logical device.")] = True


def reshard(raw: Any) -> dict[str, Any]:
    """The way that was asked for. Raises ShardplanError, with a pointer where it is known."""
    asked = checked(ReshardAsked, raw, "body")
    here = mesh_asked(asked.mesh, "/mesh")
    there = here if asked.target_mesh is None else mesh_asked(asked.target_mesh, "/target_mesh")
    with pointed("/hardware"):
        profile = hardware.load(asked.hardware)
    numbers = asked.devices if asked.target_devices is None and asked.target_mesh is None else asked.target_devices
    before = _place(asked.source, here, asked.devices, "source")
    after = _place(asked.target, there, numbers, "target")
    kind = TensorType(tuple(asked.shape), asked.dtype)
    way = way_between(before, after, kind, profile, Objective(asked.objective), asked.memory_limit_bytes)
    return reshard_document(asked.name, way, runs_right(way) if asked.check else None, asked.schedule)


def _place(asked: ShardingDocument | list[list[int | str]], mesh: Mesh, devices: list[int] | None, key: str) -> Place:
    document = asked if isinstance(asked, ShardingDocument) else ShardingDocument(split_axes=asked)
    with pointed(f"/{key}"):
        return Place(sharding_from(document, mesh), mesh, tuple(range(mesh.devices) if devices is None else devices))
