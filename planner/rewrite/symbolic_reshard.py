"""A resharding as collectives on local tensors whose sizes need not be known.

The documents' route is the same whatever the sizes, where no split is nested in another; the collectives' shapes are
then inferred, `?` where a mesh axis or a dim is unknown. A size that only the whole tensor tells, as after a gather
over a mesh of unknown size, is stated by a cast.
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
    """Append the calls that bring a value, what devices hold of `whole`, into another sharding; its new name.

    Raises InvalidSharding where the documents' collectives do not lead there, InvalidGraph or InvalidMesh where the
    route depends on a size that is unknown.
    """
    over = build.clusters[mesh or build.default_mesh or next(iter(build.clusters))].mesh
    stated: dict[str, Any] = {} if mesh is None else {"mesh": mesh}
    for move in plan_collectives(source, target, whole.shape, mesh=over):
        (value,) = build.call(move.kind, value, **call_attributes(move, source.reduction), **stated)
    wanted = LocalType(local_shape(whole.shape, target, over), whole.dtype)
    if build.types[value] != wanted:
        (value,) = build.call("cast", value, types=[wanted], **stated)
    return value
