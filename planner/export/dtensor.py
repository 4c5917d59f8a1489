"""Shardings in terms of torch's DTensor: a placement for every mesh dim.

Where the axes of a dim are in another order than the mesh's, an axis is strided by those after it that are major to
it. DTensor splits unevenly axis by axis, which is the block rule where a dim has one axis. Where it has several, those
that do not divide the dim are left out, from the minor end, and a remark says so.
"""

from __future__ import annotations

import math

from torch.distributed.tensor import Partial, Placement, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from planner.errors import InvalidSharding
from planner.export.uniform_shards import even_split_axes
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
            stride = math.prod(mesh.shape[major] for major in split_axes[:place] if major > axis)
            by_axis[axis] = Shard(dim) if stride == 1 else _StridedShard(dim, split_factor=stride)
    return tuple(by_axis), remarks


def _reduction(sharding: Sharding) -> str:
    if sharding.reduction not in REDUCTIONS:
        raise InvalidSharding(
            "reduction", got=str(sharding.reduction), wanted=f"one of {', '.join(REDUCTIONS.values())}"
        )
    return REDUCTIONS[sharding.reduction]
