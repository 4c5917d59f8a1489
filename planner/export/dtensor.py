"""Shardings in terms of torch's DTensor: a placement for every mesh dim.

Where the axes of a dim are in another order than the mesh's, an axis is strided by those after it that are major to
it. DTensor splits unevenly axis by axis, which is the block rule where a dim has one axis. Where it has several, those
that do not divide the dim are left out, from the minor end, and a remark says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from planner.errors import InvalidMesh, InvalidRequest, InvalidSharding
from planner.export.even_axes import even_split_axes
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Shape, Sharding

REDUCTIONS = {
    Reduction.SUM: "sum",
    Reduction.MAX: "max",
    Reduction.MIN: "min",
    Reduction.PRODUCT: "product",
    Reduction.AVERAGE: "avg",
}


def placements(sharding: Sharding, shape: Shape, mesh: Mesh) -> tuple[tuple[Placement, ...], list[str]]:
    """Return a placement per axis of the mesh, and remarks on what they leave out.

    Raises InvalidSharding for halos and offsets.
    """
    if sharding.halo_sizes or sharding.sharded_dims_offsets:
        raise InvalidSharding("halos and offsets", got=str(sharding), wanted="blocks, which are all DTensor knows")
    by_axis: list[Placement] = [Replicate() for _ in mesh.axes]
    remarks = []
    for axis in sharding.partial:
        by_axis[axis] = Partial(_reduction(sharding))
    for dim, (size, axes) in enumerate(zip(shape, sharding.split_axes, strict=False)):
        split_axes = axes if len(axes) == 1 else even_split_axes(axes, size, mesh)
        if split_axes != axes:
            left_out = ", ".join(mesh.names[axis] for axis in axes[len(split_axes) :])
            remarks.append(f"dim {dim} of {size} is not split along {left_out}: DTensor's uneven parts are others")
        for place, axis in enumerate(split_axes):
            # DTensor splits by mesh axes in the mesh's order; a later axis that splits first leaves its blocks
            # interleaved.
            stride = math.prod(mesh.shape[major] for major in split_axes[:place] if major > axis)
            by_axis[axis] = Shard(dim) if stride == 1 else _StridedShard(dim, split_factor=stride)
    return tuple(by_axis), remarks


def _reduction(sharding: Sharding) -> str:
    if sharding.reduction not in REDUCTIONS:
        raise InvalidSharding(
            "reduction", got=str(sharding.reduction), wanted=f"one of {', '.join(REDUCTIONS.values())}"
        )
    return REDUCTIONS[sharding.reduction]


def distribute_state(
    module: torch.nn.Module, device_mesh: DeviceMesh, planned: Mapping[str, tuple[Placement, ...]], *, mesh: Mesh
) -> None:
    """Replace a module's parameters and buffers by DTensors in place; those without placements are replicated.

    `planned` contains placements by name on `mesh`. Tied parameters stay one tensor. Values are those of the first
    rank; tensors on the meta device stay there, as DTensors without storage.

    Raises InvalidMesh for a device mesh that is not `mesh`, InvalidRequest for a module that is already distributed or
    lacks a planned name.
    """
    _check_device_mesh(device_mesh, mesh)
    named = dict(_named_state(module))
    if missing := [name for name in planned if name not in named]:
        raise InvalidRequest("module", where=missing[0], got="no such parameter or buffer", wanted="the planned module")
    whole = (Replicate(),) * len(mesh.axes)
    chosen = {id(named[name]): placed for name, placed in planned.items()}
    distributed = {
        id(tensor): _distribute(tensor, device_mesh, chosen.get(id(tensor), whole), name=name)
        for name, tensor in named.items()
    }
    for owner in module.modules():
        for held in (owner._parameters, owner._buffers):
            held.update({name: distributed[id(tensor)] for name, tensor in held.items() if tensor is not None})


def _named_state(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _distribute(
    tensor: torch.Tensor, device_mesh: DeviceMesh, placed: tuple[Placement, ...], *, name: str
) -> torch.Tensor:
    if isinstance(tensor, DTensor):
        raise InvalidRequest("module", where=name, got="a DTensor", wanted="tensors that are not distributed yet")
    made = distribute_tensor(tensor, device_mesh, placed)
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    return torch.nn.Parameter(made, requires_grad=tensor.requires_grad) if is_parameter else made


def _check_device_mesh(device_mesh: DeviceMesh, mesh: Mesh) -> None:
    names = device_mesh.mesh_dim_names
    if tuple(device_mesh.shape) != mesh.shape or (names is not None and tuple(names) != mesh.names):
        got = f"{tuple(device_mesh.shape)}, dims {names}"
        raise InvalidMesh("device mesh", got=got, wanted=f"{mesh.shape}, dims {mesh.names}: that of the plan")
