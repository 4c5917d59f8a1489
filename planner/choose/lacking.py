"""What devices still lack on the way to a sharding: bytes that no method can avoid.

A device lacks the elements of the box it wants that it does not hold; where the terms of some partial axes must
still be combined, all of them, for it holds one term of each at most. The sum over the devices is the least they
receive in all. It falls by no more than what is received, whatever the collective: a consistent bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.model.exchange import UNEQUAL
from planner.model.mesh import Mesh
from planner.model.sharding import Shape, Sharding, block_bounds, held_bounds

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lacking:
    """Elements lacked before a target is reached; `target` is checked against the shape."""

    target: Sharding
    shape: Shape
    mesh: Mesh
    _common: dict[object, Integers] = field(default_factory=dict)
    _wanted: list[Integers] = field(default_factory=list)

    def __post_init__(self) -> None:
        wants = np.ones(self.mesh.devices, np.int64)
        if self.target.reduction in UNEQUAL:
            wants = (self.mesh.group_index(self.target.partial) == 0).astype(np.int64)
        bounds = [self._bounds(self.target, dim) for dim in range(len(self.shape))]
        self._wanted.extend([*bounds, _product([wants, *(ends[1] - ends[0] for ends in bounds)])])
        self._common[None] = wants

    def devices(self, held: Sharding) -> Integers:
        """[devices]: elements that every device lacks. Where terms change nothing, the target's first devices alone
        count."""
        wanted = self._wanted[-1]
        if self.combines(held):
            return wanted
        kept = [self._kept(held, dim) for dim in range(len(self.shape))]
        lacking: Integers = wanted - _product([self._common[None], *kept])
        return lacking

    def total(self, held: Sharding) -> int:
        """Elements that all devices together lack."""
        return int(self.devices(held).sum())

    def combines(self, held: Sharding) -> bool:
        """Whether terms must be combined before the target is reached."""
        if not held.partial:
            return False
        alike = held.reduction is self.target.reduction
        return not (alike and set(held.partial) <= set(self.target.partial))

    def _kept(self, held: Sharding, dim: int) -> Integers:
        key = dim, held.split_axes[dim], held.cut(dim)
        if key not in self._common:
            low, high = self._bounds(held, dim)
            first, last = self._wanted[dim]
            self._common[key] = np.maximum(np.minimum(high, last) - np.maximum(low, first), 0)
        return self._common[key]

    def _bounds(self, sharding: Sharding, dim: int) -> Integers:
        """[2, devices]: start and stop along one dim, cut off at the tensor's ends."""
        if sharding.cut(dim):
            held = held_bounds(sharding, self.shape, self.mesh)[:, dim]
            return np.ascontiguousarray(held.clip(0, self.shape[dim]).T)
        axes = sharding.split_axes[dim]
        return np.stack(block_bounds(self.shape[dim], self.mesh.group_size(axes), self.mesh.group_index(axes)))


def _product(factors: list[Integers]) -> Integers:
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    return product
