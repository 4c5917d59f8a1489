"""Sharding of one tensor over a mesh, as in the MLIR mesh dialect.

`split_axes[d]` lists the mesh axes that split dim d, major first. The block rule: a dim of size K over axes with n
devices in all has blocks of ceil(K / n). Shard i holds [i*block, min((i+1)*block, K)), which may be short or empty;
i is the row-major index of the device over the listed axes. `sharded_dims_offsets` replaces the blocks by other
cuts: n + 1 prefix sums for every split dim. `halo_sizes` widens every shard by a number of elements before and after,
for every split dim; what lies outside of the tensor is undefined. Axes in `partial` hold terms whose reduction by
`reduction` is the tensor. The tensor is replicated over every axis that is not named.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidSharding
from planner.ir.dtypes import is_float
from planner.ir.mesh import Mesh

Axes = tuple[int, ...]
Shape = tuple[int, ...]


class Reduction(StrEnum):
    """The operation that combines the terms of a partial tensor."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PRODUCT = "product"
    AVERAGE = "average"
    BITWISE_AND = "bitwise_and"
    BITWISE_OR = "bitwise_or"
    BITWISE_XOR = "bitwise_xor"

    @property
    def neutral(self) -> int | None:
        """The neutral element, where a second copy of a term would change the result; else None."""
        return _NEUTRAL.get(self)

    def dtype_error(self, dtype: str) -> str | None:
        """Return what the elements would have to be for this reduction, or None where `dtype` will do.

        Bits of floats and sums of truth values mean nothing.
        """
        if self in _OF_BITS and is_float(dtype):
            return "integers or bool"
        return "numbers" if self in (Reduction.SUM, Reduction.AVERAGE) and dtype == "bool" else None


_NEUTRAL = {Reduction.SUM: 0, Reduction.PRODUCT: 1, Reduction.BITWISE_XOR: 0}
_OF_BITS = (Reduction.BITWISE_AND, Reduction.BITWISE_OR, Reduction.BITWISE_XOR)


@dataclass(frozen=True, slots=True, order=True)
class Sharding:
    """Mesh axes per tensor dim, partial axes, and halos or offsets of the split dims in order.

    Raises InvalidSharding for a negative or repeated axis, halos and offsets at once, a wrong number of either, a
    negative halo, and offsets that decrease or do not begin at 0.
    """

    split_axes: tuple[Axes, ...]
    partial: Axes = ()
    reduction: Reduction = Reduction.SUM
    halo_sizes: tuple[int, ...] = ()
    sharded_dims_offsets: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "partial", tuple(sorted(self.partial)))
        if not self.partial:
            object.__setattr__(self, "reduction", Reduction.SUM)
        used = [axis for axes in (*self.split_axes, self.partial) for axis in axes]
        self._check(all(axis >= 0 for axis in used), "mesh axis is negative", used, wanted="0 or more")
        self._check(len(set(used)) == len(used), "mesh axis duplicated", used, wanted="each axis at most once")
        if self.halo_sizes or self.sharded_dims_offsets:
            self._check_cuts()

    def _check_cuts(self) -> None:
        halo, offsets, split = self.halo_sizes, self.sharded_dims_offsets, len(self.split_dims)
        self._check(not (halo and offsets), "halo sizes and offsets exclude each other", self, wanted="one of them")
        self._check(
            len(halo) in (0, 2 * split), "number of halo sizes", len(halo), wanted=f"2 for each of {split} split dims"
        )
        self._check(all(size >= 0 for size in halo), "halo size is negative", halo, wanted="0 or more")
        self._check(
            len(offsets) in (0, split), "number of offset lists", len(offsets), wanted=f"{split}: one a split dim"
        )
        for cuts in offsets:
            rising = list(cuts) == sorted(cuts) and cuts[:1] == (0,)
            self._check(rising, "sharded dims offsets", cuts, wanted="0 first, then never less than the one before")

    def _check(self, holds: bool, what: str, got: object, *, wanted: str) -> None:
        if not holds:
            raise InvalidSharding(what, where=str(self), got=str(got), wanted=wanted)

    @property
    def split_dims(self) -> tuple[int, ...]:
        return tuple(dim for dim, axes in enumerate(self.split_axes) if axes)

    def halo_or_offsets(self, dim: int) -> tuple[int, ...]:
        """Return the halo (before, after) or the offsets of a dim; an empty tuple where its blocks follow the rule."""
        place = self.split_dims.index(dim) if dim in self.split_dims else None
        if place is None or not (self.halo_sizes or self.sharded_dims_offsets):
            return ()
        halo = self.halo_sizes[2 * place : 2 * place + 2]
        return self.sharded_dims_offsets[place] if self.sharded_dims_offsets else halo if any(halo) else ()

    @classmethod
    def replicated(cls, rank: int) -> Sharding:
        return cls(((),) * rank)

    def complete(self, rank: int, mesh: Mesh, where: str = "") -> Sharding:
        """Return the same sharding with one list per dim and without axes of size 1.

        A sharding with fewer lists than dims leaves the last dims replicated. Raises InvalidSharding where there are
        more lists than dims, or an axis that the mesh lacks.
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
        if not (self.halo_sizes or self.sharded_dims_offsets):
            lists = tuple(tuple(axis for axis in axes if mesh.axes[axis].size != 1) for axes in lists)
        partial = tuple(axis for axis in self.partial if mesh.axes[axis].size != 1)
        if lists == self.split_axes and partial == self.partial:
            return self
        return replace(self, split_axes=lists, partial=partial)

    def checked(self, shape: Shape, mesh: Mesh, where: str = "") -> Sharding:
        """Return the completed sharding of a tensor of known shape.

        Raises InvalidSharding also where offsets are not n + 1 that end at the dim, or a halo is wider than a
        neighbour's block, and InvalidMesh where offsets meet a mesh axis of unknown size. Halos over such an axis are
        not checked.
        """
        full = self.complete(len(shape), mesh, where)
        for place, dim in enumerate(full.split_dims if full.halo_sizes or full.sharded_dims_offsets else ()):
            if full.halo_sizes and any(mesh.axes[axis].size is None for axis in full.split_axes[dim]):
                continue
            parts = mesh.group_size(full.split_axes[dim])
            if full.sharded_dims_offsets:
                cuts = full.sharded_dims_offsets[place]
                full._check(len(cuts) == parts + 1, f"offsets of dim {dim}", cuts, wanted=f"{parts + 1} of them")
                full._check(
                    cuts[-1] == shape[dim], f"offsets of dim {dim}", cuts, wanted=f"{shape[dim]} last (the dim)"
                )
            elif parts > 1:
                start, stop = block_bounds(shape[dim], parts, np.arange(parts))
                before, after = full.halo_sizes[2 * place : 2 * place + 2]
                core = stop - start
                full._check(
                    before <= core[:-1].min(), f"halo of dim {dim}", before, wanted=f"at most {core[:-1].min()}"
                )
                full._check(after <= core[1:].min(), f"halo of dim {dim}", after, wanted=f"at most {core[1:].min()}")
        return full

    def __str__(self) -> str:
        lists = ",".join(f"[{','.join(map(str, axes))}]" for axes in self.split_axes)
        partial = f" partial={self.reduction}[{','.join(map(str, self.partial))}]" if self.partial else ""
        halo = f" halo_sizes={list(self.halo_sizes)}" if self.halo_sizes else ""
        offsets = f" offsets={[list(cuts) for cuts in self.sharded_dims_offsets]}" if self.sharded_dims_offsets else ""
        return f"[{lists}]{partial}{halo}{offsets}"

    def format_axes(self, mesh: Mesh) -> str:
        """Format the sharding with the names of the axes, as in `[dp · tp] partial sum(pp)`; `·` is an unsplit dim."""
        names = mesh.names
        dims = " ".join("/".join(names[axis] for axis in axes) or "·" for axes in self.split_axes)
        partial = f" {self.reduction}({','.join(names[axis] for axis in self.partial)})" if self.partial else ""
        return f"[{dims}]{partial}"


def block_size(size: int, parts: int) -> int:
    return -(-size // parts)


def block_bounds(size: int, parts: int, index: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the start and stop of blocks `index` of a dim of `size` in `parts` blocks."""
    block = block_size(size, parts)
    return np.minimum(index * block, size), np.minimum((index + 1) * block, size)


def shard_bounds(sharding: Sharding, shape: Shape, mesh: Mesh) -> NDArray[np.int64]:
    """Return the start and stop of every device's shard without halos: `[devices, dims, 2]`, in the whole tensor."""
    bounds = np.zeros((mesh.devices, len(shape), 2), np.int64)
    offsets = dict(zip(sharding.split_dims, sharding.sharded_dims_offsets, strict=False))
    for dim, (size, axes) in enumerate(zip(shape, sharding.split_axes, strict=True)):
        index = mesh.group_index(axes)
        if dim in offsets:
            cuts = np.array(offsets[dim], np.int64)
            bounds[:, dim, 0], bounds[:, dim, 1] = cuts[index], cuts[index + 1]
        else:
            bounds[:, dim, 0], bounds[:, dim, 1] = block_bounds(size, mesh.group_size(axes), index)
    return bounds


def held_bounds(sharding: Sharding, shape: Shape, mesh: Mesh) -> NDArray[np.int64]:
    """Return the start and stop of every device's shard with its halos: `[devices, dims, 2]`.

    Halos may reach beyond the tensor.
    """
    bounds = shard_bounds(sharding, shape, mesh)
    for place, dim in enumerate(sharding.split_dims if sharding.halo_sizes else ()):
        before, after = sharding.halo_sizes[2 * place : 2 * place + 2]
        bounds[:, dim] += (-before, after)
    return bounds


def shard_shapes(sharding: Sharding, shape: Shape, mesh: Mesh) -> NDArray[np.int64]:
    """Return the shape of every device's shard, halos included: `[devices, dims]`."""
    bounds = held_bounds(sharding, shape, mesh)
    shapes: NDArray[np.int64] = bounds[..., 1] - bounds[..., 0]
    return shapes


def shard_shape(sharding: Sharding, shape: Shape, mesh: Mesh) -> Shape:
    """Return the largest shard size of every dim, halos included.

    That is the first device's shard, unless there are offsets.
    """
    if sharding.halo_sizes or sharding.sharded_dims_offsets:
        return tuple(int(size) for size in shard_shapes(sharding, shape, mesh).max(axis=0, initial=0))
    return tuple(block_size(size, mesh.group_size(axes)) for size, axes in zip(shape, sharding.split_axes, strict=True))


def shard_elements(sharding: Sharding, shape: Shape, mesh: Mesh) -> int:
    return math.prod(shard_shape(sharding, shape, mesh))
