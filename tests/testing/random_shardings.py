"""Random shardings of a shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from planner.errors import InvalidSharding
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding


def random_sharding(
    shape: tuple[int, ...], mesh: Mesh, kinds: Sequence[Reduction], random: np.random.Generator
) -> Sharding:
    lists: list[list[int]] = [[] for _ in (*shape, "partial", "idle")]
    for axis in random.permutation(len(mesh.shape)).tolist():
        lists[random.integers(0, len(lists))].append(axis)
    split, partial = tuple(map(tuple, lists[:-2])), tuple(lists[-2])
    plain = Sharding(split, partial, kinds[int(random.integers(0, len(kinds)))])
    parts = [math.prod(mesh.shape[a] for a in plain.split_axes[dim]) for dim in plain.split_dims]
    sizes = [shape[dim] for dim in plain.split_dims]
    pairs = list(zip(sizes, parts, strict=True))
    match random.integers(0, 3):
        case 0:
            cut = [(0, *sorted(random.integers(0, k + 1, n - 1).tolist()), k) for k, n in pairs]
            return Sharding(split, partial, plain.reduction, sharded_dims_offsets=tuple(cut))
        case 1:
            halos = [random.integers(0, 3, 2).tolist() for _ in pairs]
            made = Sharding(split, partial, plain.reduction, halo_sizes=tuple(size for pair in halos for size in pair))
            try:
                return made.checked(shape, mesh)
            except InvalidSharding:
                return plain
        case _:
            return plain
