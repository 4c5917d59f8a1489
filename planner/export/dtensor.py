"""Shardings in terms of torch's DTensor: a placement for every mesh dim.

Where the axes of a dim are in another order than the mesh's, an axis is strided by those after it that are major to
it. DTensor splits unevenly axis by axis, which is the block rule where a dim has one axis. Where it has several, those
that do not divide the dim are left out, from the minor end, and a remark says so; on a mesh where they are joined to
one axis (`JoinedPlacements`) nothing is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from planner.errors import InvalidMesh, InvalidRequest, InvalidSharding
from planner.export.even_axes import even_split_axes
from planner.ir.mesh import Mesh, MeshAxis
from planner.ir.sharding import Axes, Reduction, Shape, Sharding

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


@dataclass(frozen=True, slots=True)
class JoinedPlacements:
    """A placement per dim of a mesh that has these axes of the plan's mesh as its dims, those of each dim joined."""

    dims: tuple[Axes, ...]
    placements: tuple[Placement, ...]

    def mesh(self, whole: Mesh) -> Mesh:
        """Return the mesh with joined axes."""
        return Mesh(
            tuple(MeshAxis("_".join(whole.names[a] for a in axes), whole.group_size(axes)) for axes in self.dims)
        )

    def device_mesh(self, device_type: str, whole: Mesh) -> DeviceMesh:
        """Return torch's mesh of all processes with joined axes; every process makes the same ones in one order."""
        joined = self.mesh(whole)
        ranks = torch.arange(whole.devices).reshape(whole.shape).permute([axis for axes in self.dims for axis in axes])
        ranks = ranks.reshape(joined.shape)
        if _ascends(ranks):
            return DeviceMesh(device_type, ranks, mesh_dim_names=joined.names)
        groups = [_make_group(ranks.movedim(dim, -1).reshape(-1, ranks.shape[dim])) for dim in range(ranks.ndim)]
        return DeviceMesh.from_group(groups, device_type, mesh=ranks, mesh_dim_names=joined.names)


def _ascends(ranks: torch.Tensor) -> bool:
    """Return whether ranks ascend along every dim of a mesh."""
    return all(bool((ranks.diff(dim=dim) > 0).all()) for dim in range(ranks.ndim))


def _make_group(lines: torch.Tensor) -> dist.ProcessGroup:
    """Make a process group of each line of ranks, in the line's order, and return this process's."""
    made = [(line, dist.new_group(line, sort_ranks=False)) for line in lines.tolist()]
    return next(group for line, group in made if dist.get_rank() in line)


def join_placements(sharding: Sharding, shape: Shape, mesh: Mesh) -> JoinedPlacements:
    """Return placements of all blocks: axes that split a dim unevenly together are joined to one.

    Raises InvalidSharding for halos and offsets.
    """
    uneven = [
        axes
        for size, axes in zip(shape, sharding.split_axes, strict=False)
        if len(axes) > 1 and even_split_axes(axes, size, mesh) != axes
    ]
    alone = [(axis,) for axis in range(len(mesh.axes)) if not any(axis in axes for axes in uneven)]
    dims = tuple(sorted((*uneven, *alone)))
    joined = JoinedPlacements(dims, ())
    place = {axis: number for number, axes in enumerate(dims) for axis in axes}
    renamed = replace(
        sharding,
        split_axes=tuple(tuple(dict.fromkeys(place[axis] for axis in axes)) for axes in sharding.split_axes),
        partial=tuple(place[axis] for axis in sharding.partial),
    )
    placed, _ = placements(renamed, shape, joined.mesh(mesh))
    return replace(joined, placements=placed)


def _reduction(sharding: Sharding) -> str:
    if sharding.reduction not in REDUCTIONS:
        raise InvalidSharding(
            "reduction", got=str(sharding.reduction), wanted=f"one of {', '.join(REDUCTIONS.values())}"
        )
    return REDUCTIONS[sharding.reduction]


MeshPlacements = tuple[DeviceMesh, tuple[Placement, ...]]


def distribute_state(module: torch.nn.Module, device_mesh: DeviceMesh, planned: Mapping[str, MeshPlacements]) -> None:
    """Replace a module's parameters and buffers by DTensors in place; those without placements are replicated.

    `planned` contains meshes and placements by name; `device_mesh` is that of the others. Tied parameters stay one
    tensor. Values are those of the first rank; tensors on the meta device stay there, as DTensors without storage.

    Raises InvalidRequest for a module that is already distributed or lacks a planned name.
    """
    named = dict(_named_state(module))
    if missing := [name for name in planned if name not in named]:
        raise InvalidRequest("module", where=missing[0], got="no such parameter or buffer", wanted="the planned module")
    others = device_mesh, (Replicate(),) * device_mesh.ndim
    chosen = {id(named[name]): placed for name, placed in planned.items()}
    distributed = {
        id(tensor): _distribute(tensor, *chosen.get(id(tensor), others), name=name) for name, tensor in named.items()
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


def check_device_mesh(device_mesh: DeviceMesh, mesh: Mesh) -> None:
    """Raise InvalidMesh for a device mesh that is not `mesh`, or whose ranks do not ascend along every dim.

    torch sorts the ranks of a process group, so that the members of others would hold each other's shards.
    """
    names = device_mesh.mesh_dim_names
    if tuple(device_mesh.shape) != mesh.shape or (names is not None and tuple(names) != mesh.names):
        got = f"{tuple(device_mesh.shape)}, dims {names}"
        raise InvalidMesh("device mesh", got=got, wanted=f"{mesh.shape}, dims {mesh.names}: that of the plan")
    if not _ascends(device_mesh.mesh):
        wanted = "ranks that ascend along every dim: torch sorts those of a process group"
        raise InvalidMesh("device mesh", got=device_mesh.mesh.tolist(), wanted=wanted)
