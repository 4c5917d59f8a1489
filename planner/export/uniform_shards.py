"""Shards that are the same on all devices: one type per value, and the axes that split a dim evenly."""

from __future__ import annotations

from planner.errors import InvalidSharding
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.ir.sharding import Axes


def uniform_shard_types(program: Program) -> dict[str, TensorType]:
    """Return the type of what every device holds, by value, halos included.

    Raises InvalidSharding, naming the value, where a dim is split unevenly or has offsets.
    """
    return {name: _shard_type(program, name) for name in program.values}


def _shard_type(program: Program, name: str) -> TensorType:
    held = program.values[name]
    sharding, shape = held.sharding, list(held.type.shape)
    where = f"value {name!r}"
    if sharding.sharded_dims_offsets:
        raise InvalidSharding("no text for offsets in a program", where=where, got=str(sharding))
    for dim, axes in enumerate(sharding.split_axes):
        parts = program.mesh.group_size(axes)
        if shape[dim] % parts:
            got, wanted = f"{shape[dim]} over {parts} devices", "a multiple (shards must all be alike)"
            raise InvalidSharding(f"dim {dim} is split unevenly", where=where, got=got, wanted=wanted)
        shape[dim] = shape[dim] // parts + sum(sharding.halo_or_offsets(dim) or ())
    return TensorType(tuple(shape), held.type.dtype)


def even_split_axes(axes: Axes, size: int, mesh: Mesh) -> Axes:
    """Return as many of the axes, from the major end, as divide the dim."""
    while size % mesh.group_size(axes):
        axes = axes[:-1]
    return axes
