"""Reshard requests over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from api.http.requests import BuiltInHardware, MeshInput, at_pointer, build_mesh
from api.options import ReshardOptions
from api.reshard import solve_reshard
from planner.choose import hardware
from planner.documents.graphs import load_sharding
from planner.documents.schemas import ShardingDocument, validate_document
from planner.documents.strict_model import AxisLists, Name, Shape
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.reshard.cross_mesh import PlacedSharding

DeviceNumbers = Annotated[list[Annotated[int, Field(ge=0, le=1 << 20)]], Field(max_length=1 << 14, fail_fast=True)]
ShardingInput = Annotated[ShardingDocument | AxisLists, Field(description="A sharding, or its split_axes alone.")]


class ReshardRequest(ReshardOptions):
    """A tensor, its sharding before, and its sharding after, on the same mesh or another."""

    name: Annotated[Name, Field(description="Repeated in the answer.")] = "reshard"
    mesh: MeshInput
    shape: Annotated[Shape, Field(description="Sizes of the whole tensor.")]
    source: ShardingInput
    target: ShardingInput
    hardware: BuiltInHardware = hardware.DEFAULT_PROFILE
    target_mesh: MeshInput | None = None
    devices: Annotated[DeviceNumbers | None, Field(description="Numbers of the mesh's devices; else from 0.")] = None
    target_devices: Annotated[
        DeviceNumbers | None, Field(description="Numbers of the target mesh's devices; else from 0.")
    ] = None


def answer_reshard(raw: Any) -> dict[str, Any]:
    """Return the reshard document of a request. Raises ShardplanError, with a pointer where it is known."""
    request = validate_document(ReshardRequest, raw, "body")
    source_mesh = build_mesh(request.mesh, "/mesh")
    target_mesh = source_mesh if request.target_mesh is None else build_mesh(request.target_mesh, "/target_mesh")
    with at_pointer("/hardware"):
        profile = hardware.load_profile(request.hardware)
    target_devices = (
        request.devices if request.target_devices is None and request.target_mesh is None else request.target_devices
    )
    before = _build_layout(request.source, source_mesh, request.devices, key="source")
    after = _build_layout(request.target, target_mesh, target_devices, key="target")
    kind = TensorType(tuple(request.shape), request.dtype)
    return solve_reshard(request.name, before, after, kind=kind, profile=profile, options=request)


def _build_layout(
    sharding: ShardingDocument | list[list[int | str]], mesh: Mesh, devices: list[int] | None, *, key: str
) -> PlacedSharding:
    document = sharding if isinstance(sharding, ShardingDocument) else ShardingDocument(split_axes=sharding)
    with at_pointer(f"/{key}"):
        return PlacedSharding(
            load_sharding(document, mesh), mesh, tuple(range(mesh.devices) if devices is None else devices)
        )
