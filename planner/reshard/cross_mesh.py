"""An exchange between two meshes, such as from one pipeline stage to the next, or from one plan to another.

Both meshes number their devices alike, but their axes are unrelated. So all terms of a partial source are combined, and
all devices form one group (the mesh dialect's collective_permute between meshes).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidMesh
from planner.ir.mesh import MAX_DEVICES, Mesh
from planner.ir.redistribution import NON_IDEMPOTENT, clip_bounds, match_transfers
from planner.ir.sharding import Shape, Sharding, held_bounds
from planner.ir.transfers import Endpoints, Transfers

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class PlacedSharding:
    """A sharding on a mesh whose device i is number `devices[i]`. Raises InvalidMesh where the numbers do not fit."""

    sharding: Sharding
    mesh: Mesh
    devices: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.devices) != self.mesh.devices:
            wanted = f"{self.mesh.devices}, one for each of {self.mesh.notation}"
            raise InvalidMesh("number of devices", got=len(self.devices), wanted=wanted)
        numbers = Counter(self.devices)
        if wrong := [number for number, count in numbers.items() if count > 1 or not 0 <= number < MAX_DEVICES]:
            raise InvalidMesh("device number", got=wrong[0], wanted=f"0 to {MAX_DEVICES - 1}, each once")

    def scatter_by_number(self, values: Integers, devices: int) -> Integers:
        """Return values of the mesh's devices by device number, `[devices, ...]`; 0 for all other devices."""
        by_number = np.zeros((devices, *values.shape[1:]), values.dtype)
        by_number[list(self.devices)] = values
        return by_number

    def held_boxes(self, shape: Shape, devices: int) -> Integers:
        """Return the bounds of what each device holds, `[devices, dims, 2]`; other devices hold nothing.

        They include halos, which may reach beyond the tensor.
        """
        return self.scatter_by_number(held_bounds(self.sharding, shape, self.mesh), devices)


def plan_cross_mesh_transfers(source: PlacedSharding, target: PlacedSharding, shape: Shape) -> Transfers:
    """Return the transfers from one placed sharding to another; devices are counted up to the highest number."""
    count = max(*source.devices, *target.devices) + 1
    held, wanted = (clip_bounds(place.held_boxes(shape, count), shape) for place in (source, target))
    wants = np.ones(target.mesh.devices, bool)
    if target.sharding.reduction in NON_IDEMPOTENT:
        wants = target.mesh.group_index(target.sharding.partial) == 0
    whole = np.ones(source.mesh.devices, np.int64)
    term = source.mesh.group_index(source.sharding.partial)
    return match_transfers(
        Endpoints(
            held,
            source.scatter_by_number(whole, count).astype(bool),
            wanted,
            target.scatter_by_number(wants.astype(np.int64), count).astype(bool),
            np.zeros(count, np.int64),
            source.scatter_by_number(term, count),
            source.mesh.group_size(source.sharding.partial),
        )
    )
