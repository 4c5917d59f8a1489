"""What devices still lack on the way to a sharding: elements that no method can spare them.

Devices joined by some mesh axes count as one that holds what any of them holds, and wants what any of them wants.

    held whole    a device lacks the box it wants without the box it holds
    in n terms    it holds one term of each element at most, and lacks all it wants. Of an element that m devices want,
                  n - 1 terms must move to be combined and m - 1 copies of the result: together what the devices want
                  and n - 2 times the tensor

In all this falls by no more than what is received, whatever the collective: a consistent bound. Boxes are products
over the dims, and so are the unions of the boxes of joined devices, because no mesh axis splits two dims.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.ir.mesh import Mesh
from planner.ir.redistribution import NON_IDEMPOTENT
from planner.ir.sharding import Axes, Shape, Sharding
from planner.reshard.dim_splits import split_along, split_bounds

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class MissingElements:
    """Elements that joined devices lack of a target; it is checked against the shape."""

    target: Sharding
    shape: Shape
    mesh: Mesh
    joined: Axes = ()
    _length_cache: dict[object, Integers] = field(default_factory=dict)

    def of(self, held: Sharding) -> Integers:
        """[groups of joined devices]: what each lacks. Where terms may be neutral, only the first counts as wanting."""
        if self.count_terms(held) > 1:
            return self.wanted
        kept = self._is_wanting.copy()
        for dim in range(len(self.shape)):
            kept *= self._overlap_length(held, dim)
        lacked: Integers = self.wanted - kept
        return lacked

    def total(self, held: Sharding) -> int:
        """What all must receive together."""
        return int(self.of(held).sum()) + max(self.count_terms(held) - 2, 0) * math.prod(self.shape)

    @cached_property
    def wanted(self) -> Integers:
        """[groups]: elements that each wants."""
        wanted = self._is_wanting.copy()
        for dim in range(len(self.shape)):
            wanted *= self._overlap_length(self.target, dim)
        return wanted

    @cached_property
    def _is_wanting(self) -> Integers:
        flags = np.ones(self.mesh.devices, bool)
        if self.target.reduction in NON_IDEMPOTENT:
            flags = self.mesh.group_index(self.target.partial) == 0
        wants: Integers = self._any_joined(flags[None])[0].astype(np.int64)
        return wants

    def count_terms(self, held: Sharding) -> int:
        """How many terms of an element must be combined that are not joined."""
        kept = self.target.partial if held.reduction is self.target.reduction else ()
        return self.mesh.group_size([axis for axis in held.partial if axis not in kept and axis not in self.joined])

    def _overlap_length(self, held: Sharding, dim: int) -> Integers:
        """[groups]: length along a dim of what each holds of what it wants."""
        way, target = (split_along(each, dim) for each in (held, self.target))
        key = dim, way
        if key not in self._length_cache:
            bounds = [split_bounds(each, self.shape[dim], self.mesh) for each in (way, target)]
            self._length_cache[key] = self._common_length(*bounds)
        return self._length_cache[key]

    def _common_length(self, one: Integers, other: Integers) -> Integers:
        """[groups]: length of what both [2, devices] intervals of any joined devices have in common."""
        if not self.joined:
            kept: Integers = np.maximum(np.minimum(one[1], other[1]) - np.maximum(one[0], other[0]), 0)
            return kept
        cuts = np.unique(np.stack([one, other]))
        inside = [self._any_joined((each[0] <= cuts[:-1, None]) & (cuts[:-1, None] < each[1])) for each in (one, other)]
        common: Integers = np.diff(cuts) @ (inside[0] & inside[1])
        return common

    def _any_joined(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """[rows, groups] from [rows, devices]."""
        if not self.joined:
            return flags
        grid = flags.reshape(len(flags), *self.mesh.shape).any(axis=tuple(axis + 1 for axis in self.joined))
        return grid.reshape(len(flags), -1)
