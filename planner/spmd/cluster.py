"""The meshes of a program, and the devices that fill them.

A cluster (the RFC's word for a mesh) assigns a device number to every position of a mesh, row-major. Several clusters
may share devices: a sub-cluster is the part of a cluster where some axes are held fixed. Sizes may be unknown (`?`)
as in the mesh dialect: a dim size of zero or less, or missing at the end, is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import InvalidMesh
from planner.ir.mesh import Mesh, MeshAxis


@dataclass(frozen=True, slots=True)
class Cluster:
    """A mesh and the numbers of its devices, row-major; none where a mesh size is unknown."""

    mesh: Mesh
    devices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not is_static(self.mesh):
            if self.devices:
                raise InvalidMesh("devices of a mesh of unknown size", got=len(self.devices), wanted="none")
            return
        if not self.devices:
            object.__setattr__(self, "devices", tuple(range(self.mesh.devices)))
        if len(self.devices) != self.mesh.devices or len(set(self.devices)) != len(self.devices):
            raise InvalidMesh(
                "devices of a mesh", got=list(self.devices), wanted=f"{self.mesh.devices} different numbers"
            )
        if min(self.devices) < 0:
            raise InvalidMesh("device number", got=min(self.devices), wanted="0 or more")

    @classmethod
    def parse(cls, text: str, first: int = 0) -> Cluster:
        """Read `2x4` or `dp=2,tp=4`, filled with consecutive devices from `first` on."""
        mesh = Mesh.parse(text)
        return cls(mesh, tuple(range(first, first + mesh.devices)) if is_static(mesh) else ())


def is_static(mesh: Mesh) -> bool:
    return all(axis.size is not None for axis in mesh.axes)


def declare_mesh(rank: int, dim_sizes: Sequence[int]) -> Mesh:
    """Return the mesh of the RFC's `mesh.cluster(rank, dim_sizes)`. Raises InvalidMesh for more sizes than axes."""
    if len(dim_sizes) > rank:
        raise InvalidMesh("more dim sizes than mesh axes", got=len(dim_sizes), wanted=f"at most {rank} (the rank)")
    sizes = [*dim_sizes, *[0] * (rank - len(dim_sizes))]
    return Mesh(tuple(MeshAxis(str(i), size if size > 0 else None) for i, size in enumerate(sizes)))


def select_sub_cluster(cluster: Cluster, fixed: Mapping[int, int]) -> Cluster:
    """Return the devices at the given coordinates of the fixed axes, over the remaining axes.

    Raises InvalidMesh for an axis or coordinate out of range, when no axis is left, or where a size is unknown.
    """
    mesh = cluster.mesh
    for axis, place in fixed.items():
        if not 0 <= axis < len(mesh.axes):
            raise InvalidMesh("sub_cluster axis", where=mesh.notation, got=axis, wanted=f"0 to {len(mesh.axes) - 1}")
        size = mesh.shape[axis]
        if not 0 <= place < size:
            raise InvalidMesh(f"sub_cluster coordinate on axis {axis}", got=place, wanted=f"0 to {size - 1}")
    left = tuple(axis for i, axis in enumerate(mesh.axes) if i not in fixed)
    if not left:
        raise InvalidMesh("sub_cluster leaves no axis", got=dict(fixed), wanted=f"fewer than {len(mesh.axes)} axes")
    grid = np.array(cluster.devices).reshape(mesh.shape)
    part = grid[tuple(fixed.get(i, slice(None)) for i in range(len(mesh.axes)))]
    return Cluster(Mesh(left, mesh.device), tuple(int(device) for device in part.reshape(-1)))
