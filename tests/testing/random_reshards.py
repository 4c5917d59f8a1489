"""Random reshardings of small tensors, from sources that may be partial with replicas, and the least bytes of each."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from tests.testing.layout_oracle import box
from tests.testing.random_shardings import random_sharding

MESHES = ["2", "4", "2x3", "2x4", "2x2x2", "4x4", "3x1x2", "2x8"]
KINDS = (Reduction.SUM, Reduction.MAX)


def count_least_elements(source: Sharding, target: Sharding, shape: tuple[int, ...], mesh: Mesh) -> int:
    """Count, element by element, what all devices have to receive to hold a target that is not partial.

    Of an element in n terms, n - 1 terms meet where one is held, and each further device that wants it gets the result.
    """
    terms = math.prod(mesh.shape[axis] for axis in source.partial)
    held, wanted = ([box(each, shape, mesh, device) for device in range(mesh.devices)] for each in (source, target))
    total = 0
    for element in np.ndindex(shape):
        wanting = [device for device in range(mesh.devices) if has(wanted[device], element)]
        holding = [device for device in wanting if has(held[device], element)]
        total += len(wanting) - len(holding) if terms == 1 else terms - 1 + len(wanting) - bool(holding)
    return total


def has(bounds: list[tuple[int, int]], element: tuple[int, ...]) -> bool:
    return all(start <= at < stop for (start, stop), at in zip(bounds, element, strict=True))


def random_reshard(seed: int) -> tuple[Sharding, Sharding, TensorType, CostModel]:
    """A source that may be partial and have replicas, and a target that is not partial."""
    random = np.random.default_rng(seed)
    mesh = Mesh.parse(MESHES[random.integers(0, len(MESHES))])
    shape = tuple(random.integers(1, 7, random.integers(0, 3)).tolist())
    source, target = (random_sharding(shape, mesh, KINDS, random).checked(shape, mesh) for _ in range(2))
    return source, replace(target, partial=()), TensorType(shape, "f32"), CostModel(mesh, load_profile("h100-sxm"))
