"""Count the elements that devices still lack of a target sharding: what every method has to send them.

Devices that are joined by some mesh axes count as one device. It holds what any of them holds, and wants what any of
them wants.

    held whole    a device lacks the box that it wants, except for the box that it holds
    in n terms    a device holds at most one term of each element and lacks all that it wants. For an element that m
                  devices want, n - 1 terms move to be combined, then m - 1 copies of the result. In all that is what
                  the devices want plus n - 2 times the tensor

No collective lowers this count by more than what is received, so that the bound is consistent, as A* needs. Boxes are
products over the dims, and so are the unions of the boxes of joined devices, because no mesh axis splits two dims.
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
    """The elements of a target that groups of devices lack; the target is checked against the shape.

    `joined` are the mesh axes along which devices count as one.
    """

    target: Sharding
    shape: Shape
    mesh: Mesh
    joined: Axes = ()
    _length_cache: dict[object, Integers] = field(default_factory=dict)

    def of(self, held: Sharding) -> Integers:
        """Return what each group of joined devices lacks under a sharding, `[groups]`."""
        if self.count_terms(held) > 1:
            return self.wanted
        kept = self._is_wanting.copy()
        for dim in range(len(self.shape)):
            kept *= self._overlap_length(held, dim)
        lacked: Integers = self.wanted - kept
        return lacked

    def total(self, held: Sharding) -> int:
        """Return the number of elements that all devices have to receive together."""
        return int(self.of(held).sum()) + max(self.count_terms(held) - 2, 0) * math.prod(self.shape)

    @cached_property
    def wanted(self) -> Integers:
        """The number of elements that each group wants, `[groups]`."""
        wanted = self._is_wanting.copy()
        for dim in range(len(self.shape)):
            wanted *= self._overlap_length(self.target, dim)
        return wanted

    @cached_property
    def _is_wanting(self) -> Integers:
        # Of the terms of a partial target, all but the first may be neutral elements, which nobody has to send.
        flags = np.ones(self.mesh.devices, bool)
        if self.target.reduction in NON_IDEMPOTENT:
            flags = self.mesh.group_index(self.target.partial) == 0
        wants: Integers = self._any_joined(flags[None])[0].astype(np.int64)
        return wants

    def count_terms(self, held: Sharding) -> int:
        """Return the number of terms of an element that have to be combined across groups."""
        kept = self.target.partial if held.reduction is self.target.reduction else ()
        return self.mesh.group_size([axis for axis in held.partial if axis not in kept and axis not in self.joined])

    def _overlap_length(self, held: Sharding, dim: int) -> Integers:
        """Return the length along a dim of what each group holds of what it wants, `[groups]`."""
        split, target = (split_along(each, dim) for each in (held, self.target))
        key = dim, split
        if key not in self._length_cache:
            bounds = [split_bounds(each, self.shape[dim], self.mesh) for each in (split, target)]
            self._length_cache[key] = self._common_length(*bounds)
        return self._length_cache[key]

    def _common_length(self, one: Integers, other: Integers) -> Integers:
        """Return the common length of the intervals `[2, devices]` of each group, `[groups]`."""
        if not self.joined:
            kept: Integers = np.maximum(np.minimum(one[1], other[1]) - np.maximum(one[0], other[0]), 0)
            return kept
        cuts = np.unique(np.stack([one, other]))
        inside = [self._any_joined((each[0] <= cuts[:-1, None]) & (cuts[:-1, None] < each[1])) for each in (one, other)]
        common: Integers = np.diff(cuts) @ (inside[0] & inside[1])
        return common

    def _any_joined(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return whether a flag `[rows, devices]` is set on any device of a group, `[rows, groups]`."""
        if not self.joined:
            return flags
        grid = flags.reshape(len(flags), *self.mesh.shape).any(axis=tuple(axis + 1 for axis in self.joined))
        return grid.reshape(len(flags), -1)
