"""Resharding cases: published ones, random ones, and pairs that grow with the mesh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.documents.reshard import read_cases
from planner.errors import InvalidSharding
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding

CASES = Path(__file__).parents[1] / "tests/conformance/reshard_cases.json"
MESHES = [
    "2",
    "3",
    "4",
    "8",
    "2x2",
    "2x3",
    "3x4",
    "2x8",
    "4x4",
    "2x2x2",
    "2x3x2",
    "4x2x4",
    "2x1x4",
    "4x4x4",
    "2x2x2x2",
    "2x2x4x4",
]
FLOATS = (Reduction.SUM, Reduction.MAX, Reduction.MIN, Reduction.PRODUCT, Reduction.AVERAGE)
BITS = (Reduction.BITWISE_AND, Reduction.BITWISE_OR, Reduction.BITWISE_XOR, Reduction.SUM, Reduction.MAX)


@dataclass(frozen=True)
class Case:
    """A resharding of a tensor from one sharding to another."""

    name: str
    source: Sharding
    target: Sharding
    kind: TensorType
    mesh: Mesh

    @property
    def partial(self) -> bool:
        return bool(self.source.partial or self.target.partial)


def published() -> list[Case]:
    return [
        Case(name, before.sharding.checked(kind.shape, mesh), after.sharding.checked(kind.shape, mesh), kind, mesh)
        for name, before, after, kind in read_cases(CASES)
        for mesh in [before.mesh]
    ]


def random_cases(count: int, seed: int = 0) -> Iterator[Case]:
    """Yield random cases: 1 to 4 axes, up to 64 devices, ranks 1 to 4; a third with offsets, a third with halos."""
    for number in range(count):
        random = np.random.default_rng([seed, number])
        mesh = Mesh.parse(MESHES[random.integers(0, len(MESHES))])
        shape = tuple(random.integers(1, 13, random.integers(1, 5)).tolist())
        kinds = BITS if number % 2 else FLOATS
        source, target = (random_sharding(shape, mesh, kinds, random) for _ in range(2))
        yield Case(f"random {number}", source, target, TensorType(shape, "i32" if number % 2 else "f32"), mesh)


def random_sharding(
    shape: tuple[int, ...], mesh: Mesh, kinds: tuple[Reduction, ...], random: np.random.Generator
) -> Sharding:
    lists: list[list[int]] = [[] for _ in (*shape, "partial", "idle")]
    for axis in random.permutation(len(mesh.shape)).tolist():
        lists[random.integers(0, len(lists))].append(axis)
    *split, partial, _ = map(tuple, lists)
    kind = kinds[random.integers(0, len(kinds))]
    parts = [(shape[dim], mesh.group_size(axes)) for dim, axes in enumerate(split) if axes]
    plain = Sharding(tuple(split), partial, kind).checked(shape, mesh)
    form = random.integers(0, 3)
    if form == 0:
        cuts = tuple((0, *sorted(random.integers(0, size + 1, n - 1).tolist()), size) for size, n in parts)
        return Sharding(tuple(split), partial, kind, sharded_dims_offsets=cuts).checked(shape, mesh)
    halos = tuple(random.integers(0, 3, 2 * len(parts)).tolist()) if form == 1 else ()
    try:
        return Sharding(tuple(split), partial, kind, halo_sizes=halos).checked(shape, mesh)
    except InvalidSharding:
        return plain


def pair(mesh: Mesh, partial: bool, seed: int) -> Case:
    random = np.random.default_rng([mesh.devices, len(mesh.axes), seed])
    shape = (int(2 ** random.integers(10, 13)), int(2 ** random.integers(10, 13)))
    ends: list[Sharding] = []
    while len(ends) < 2:
        lists: list[list[int]] = [[], [], [], []]
        for axis in random.permutation(len(mesh.shape)).tolist():
            lists[random.integers(0, 4)].append(axis)
        if partial and not ends and not lists[2]:
            continue
        sums = tuple(lists[2]) if partial and not ends else ()
        ends.append(Sharding((tuple(lists[0]), tuple(lists[1])), sums))
    return Case("pair", ends[0], ends[1], TensorType(shape, "bf16"), mesh)
