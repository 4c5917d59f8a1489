"""A resharding as collectives on local tensors whose sizes need not be known.

The documents' path does not depend on the sizes where no split is nested in another. The shapes of the collectives
are then inferred, `?` where a mesh axis or a dim is unknown. A size that only follows from the whole tensor, as after
a gather over a mesh of unknown size, is stated by a cast.
"""

from __future__ import annotations

from typing import Any

from planner.ir.graph import TensorType
from planner.ir.sharding import Sharding
from planner.reshard.documented_path import plan_collectives
from planner.spmd import LocalType, SpmdBuilder, local_shape
from planner.spmd.collectives import call_attributes


def write_moves(
    build: SpmdBuilder, value: str, whole: TensorType, *, source: Sharding, target: Sharding, mesh: str | None = None
) -> str:
    """Append the calls that bring a value into another sharding, and return its new name.

    The value is what devices hold of a tensor of type `whole`. Raises InvalidSharding where the documents' collectives
    do not lead there, and InvalidGraph or InvalidMesh where the path depends on a size that is unknown.
    """
    device_mesh = build.clusters[mesh or build.default_mesh or next(iter(build.clusters))].mesh
    mesh_attrs: dict[str, Any] = {} if mesh is None else {"mesh": mesh}
    for move in plan_collectives(source, target, whole.shape, mesh=device_mesh):
        (value,) = build.call(move.kind, value, **call_attributes(move, source.reduction), **mesh_attrs)
    wanted = LocalType(local_shape(whole.shape, target, device_mesh), whole.dtype)
    if build.types[value] != wanted:
        (value,) = build.call("cast", value, types=[wanted], **mesh_attrs)
    return value
