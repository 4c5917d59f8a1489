"""Sharding of one tensor over a mesh, as in the MLIR mesh dialect.

`split_axes[d]` lists the mesh axes that split dim d, major first. The block rule: a dim of size K over axes
with n devices in all has blocks of ceil(K / n); shard i holds [i*block, min((i+1)*block, K)), possibly short
or empty, where i is the row-major index of the device over the listed axes. Axes in `partial` hold terms
whose reduction by `reduction` is the tensor. An axis named nowhere replicates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidSharding
from planner.model.mesh import Mesh

Axes = tuple[int, ...]
Shape = tuple[int, ...]


class Reduction(StrEnum):
    """How the terms of a partial tensor combine."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PRODUCT = "product"
    AVERAGE = "average"
    BITWISE_AND = "bitwise_and"
    BITWISE_OR = "bitwise_or"
    BITWISE_XOR = "bitwise_xor"


@dataclass(frozen=True, slots=True, order=True)
class Sharding:
    """Mesh axes per tensor dim, plus partial axes. Raises InvalidSharding for a negative or repeated axis."""

    split_axes: tuple[Axes, ...]
    partial: Axes = ()
    reduction: Reduction = Reduction.SUM

    def __post_init__(self) -> None:
        used = [axis for axes in (*self.split_axes, self.partial) for axis in axes]
        if any(axis < 0 for axis in used):
            raise InvalidSharding("mesh axis is negative", where=str(self), wanted="0 or more")
        if len(set(used)) != len(used):
            raise InvalidSharding("mesh axis duplicated", where=str(self), wanted="each axis at most once")
        object.__setattr__(self, "partial", tuple(sorted(self.partial)))
        if not self.partial:
            object.__setattr__(self, "reduction", Reduction.SUM)

    @classmethod
    def replicated(cls, rank: int) -> Sharding:
        return cls(((),) * rank)

    def completed(self, rank: int, mesh: Mesh, where: str = "") -> Sharding:
        """The same sharding with one list per dim (a shorter one leaves the tail replicated), without axes of size 1.

        Raises InvalidSharding when there are more lists than dims, or an axis the mesh lacks.
        """
        if len(self.split_axes) > rank:
            raise InvalidSharding(
                "more lists than dims",
                where=where,
                got=len(self.split_axes),
                wanted=f"at most {rank} (the rank)",
            )
        for axis in (axis for axes in (*self.split_axes, self.partial) for axis in axes):
            if axis >= len(mesh.axes):
                raise InvalidSharding("mesh axis out of range", where=where, got=axis, wanted=f"below {len(mesh.axes)}")
        lists = self.split_axes + ((),) * (rank - len(self.split_axes))
        split = tuple(tuple(axis for axis in axes if mesh.axes[axis].size != 1) for axes in lists)
        return Sharding(split, tuple(axis for axis in self.partial if mesh.axes[axis].size != 1), self.reduction)

    def __str__(self) -> str:
        lists = ",".join(f"[{','.join(map(str, axes))}]" for axes in self.split_axes)
        partial = f" partial={self.reduction}[{','.join(map(str, self.partial))}]" if self.partial else ""
        return f"[{lists}]{partial}"

    def named(self, mesh: Mesh) -> str:
        """`[dp · tp] partial sum(pp)`: the sharding in the axes' names; `·` is an unsplit dim."""
        names = mesh.names
        dims = " ".join("/".join(names[axis] for axis in axes) or "·" for axes in self.split_axes)
        partial = f" {self.reduction}({','.join(names[axis] for axis in self.partial)})" if self.partial else ""
        return f"[{dims}]{partial}"


def block_size(size: int, parts: int) -> int:
    return -(-size // parts)


def block_bounds(size: int, parts: int, index: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and stop of block `index` of a dim of `size` in `parts` blocks."""
    block = block_size(size, parts)
    return np.minimum(index * block, size), np.minimum((index + 1) * block, size)


def shard_bounds(sharding: Sharding, shape: Shape, mesh: Mesh) -> NDArray[np.int64]:
    """[devices, dims, 2]: start and stop of what every device holds, in elements of the whole tensor."""
    bounds = np.zeros((mesh.devices, len(shape), 2), np.int64)
    for dim, (size, axes) in enumerate(zip(shape, sharding.split_axes, strict=True)):
        start, stop = block_bounds(size, mesh.group_size(axes), mesh.group_index(axes))
        bounds[:, dim, 0], bounds[:, dim, 1] = start, stop
    return bounds


def shard_shape(sharding: Sharding, shape: Shape, mesh: Mesh) -> Shape:
    """Shape of the largest shard (the first device's)."""
    return tuple(block_size(size, mesh.group_size(axes)) for size, axes in zip(shape, sharding.split_axes, strict=True))


def shard_elements(sharding: Sharding, shape: Shape, mesh: Mesh) -> int:
    return math.prod(shard_shape(sharding, shape, mesh))
