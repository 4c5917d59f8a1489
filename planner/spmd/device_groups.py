"""Mesh axes from what programs without them state: device groups (HLO's replica_groups), and indices of devices.

A group over mesh axes lists its devices row-major over the axes as they are listed, so a device's place in its group
is a sum of strides times coordinates. The strides are read off the devices next to device 0; the order of the axes is
that of falling strides. Axes of size 1 leave no trace and are not found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes
from planner.spmd.cluster import is_static

Indices = NDArray[np.int64]
"""A number per device of a mesh."""


def find_index_axes(mesh: Mesh, places: Indices) -> Axes | None:
    """Return the axes over whose groups every device has this place; None where there are none."""
    strides = {
        axis: int(places[stride])
        for axis, size in enumerate(mesh.shape)
        if size > 1 and places[stride := int(np.prod(mesh.shape[axis + 1 :]))]
    }
    axes = tuple(sorted(strides, key=lambda axis: -strides[axis]))
    return axes if np.array_equal(mesh.group_index(axes), places) else None


def find_group_axes(mesh: Mesh, groups: NDArray[np.int64]) -> Axes | None:
    """Return the axes whose groups are the rows, in any order of the rows; None where there are none."""
    if sorted(groups.reshape(-1).tolist()) != list(range(mesh.devices)):
        return None
    places = np.zeros(mesh.devices, np.int64)
    places[groups] = np.arange(groups.shape[1])
    axes = find_index_axes(mesh, places)
    if axes is None or sorted(mesh.groups(axes).tolist()) != sorted(groups.tolist()):
        return None
    return axes


def query_values(op: str, attrs: dict[str, Any], mesh: Mesh) -> tuple[Indices, ...]:
    """Return the answers to a query of sizes or indices on every device; none where the mesh or query is dynamic."""
    if not is_static(mesh):
        return ()
    sizes = [np.full(mesh.devices, size, np.int64) for size in mesh.shape]
    axes = attrs.get("axes") or ([attrs["axis"]] if "axis" in attrs else range(len(sizes)))
    match op:
        case "mesh_shape" | "size":
            return tuple(sizes[axis] for axis in axes)
        case "process_multi_index" | "idx":
            return tuple(mesh.coordinates[:, axis] for axis in axes)
        case "process_linear_index":
            return (np.arange(mesh.devices),)
        case _:
            return ()
