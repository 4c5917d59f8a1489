"""What every device holds of a value: a shape and an element type.

A dim is a number only where it is the same number on every device. `None` (written `?`) is a size that is unknown,
because a mesh axis or a tensor dim is dynamic, or that differs between devices, because blocks are uneven: by the
block rule 7 over 4 is 2,2,2,1, so a dim of 7 sliced over 4 devices is `?`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.errors import InvalidProgram
from planner.ir.dtypes import DTYPE_BYTES
from planner.ir.dynamic_dims import DYNAMIC_DIM, is_known
from planner.ir.graph import MAX_DIM, MAX_RANK, TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Shape, Sharding, block_size, shard_shapes

Dim = int | None
INDEX_DTYPE = "index"


@dataclass(frozen=True, slots=True)
class LocalType:
    """Local shape and element type.

    Raises InvalidProgram for a negative dim, a high rank, and an unknown dtype.
    """

    shape: tuple[Dim, ...]
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype != INDEX_DTYPE and self.dtype not in DTYPE_BYTES:
            raise InvalidProgram("unknown dtype", got=self.dtype, wanted=f"one of {', '.join(DTYPE_BYTES)}")
        if len(self.shape) > MAX_RANK:
            raise InvalidProgram("rank too high", got=len(self.shape), wanted=f"at most {MAX_RANK}")
        for dim in self.shape:
            if dim is not None and not 0 <= dim <= MAX_DIM:
                raise InvalidProgram("dim out of range", where=str(self), got=dim, wanted=f"0 to {MAX_DIM}, or ?")

    @classmethod
    def of(cls, kind: TensorType) -> LocalType:
        return cls(tuple(size if is_known(size) else None for size in kind.shape), kind.dtype)

    @property
    def tensor(self) -> TensorType:
        """The same as the type of a graph's tensor."""
        return TensorType(tuple(DYNAMIC_DIM if size is None else size for size in self.shape), self.dtype)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        return DTYPE_BYTES.get(self.dtype, 8)

    def with_dim(self, dim: int, size: Dim) -> LocalType:
        return LocalType((*self.shape[:dim], size, *self.shape[dim + 1 :]), self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(format_dim(dim) for dim in self.shape)}]"


INDEX = LocalType((), INDEX_DTYPE)
"""A mesh coordinate, a device number or a size."""


def format_dim(dim: Dim) -> str:
    return "?" if dim is None else str(dim)


def are_compatible(one: Dim, other: Dim) -> bool:
    """Return whether two dims can be of the same size."""
    return one is None or other is None or one == other


def multiply_dims(*dims: Dim) -> Dim:
    """Return the product of dims, None where a factor is."""
    known_dims = [dim for dim in dims if dim is not None]
    return math.prod(known_dims) if len(known_dims) == len(dims) else None


def divide_dim(size: Dim, parts: Dim, block: int | None = None) -> Dim:
    """Return the size of every piece of a dim cut into `parts` blocks of `block` (by default ceil(size / parts))."""
    if parts == 1 and block is None:
        return size
    if size is None or parts is None:
        return None
    width = block_size(size, parts) if block is None else block
    return width if width * parts == size else None


def group_size(mesh: Mesh, axes: tuple[int, ...]) -> Dim:
    """Return the number of devices of a group, None where an axis is of unknown size."""
    return multiply_dims(*(mesh.axes[axis].size for axis in axes))


def local_shape(whole: Shape, sharding: Sharding, mesh: Mesh) -> tuple[Dim, ...]:
    """Return the shape that devices hold of a sharded tensor, halos included.

    Uneven blocks, and blocks of unknown size, are None. Raises InvalidMesh where halos or offsets meet a mesh of
    unknown size.
    """
    sizes_or_none = tuple(size if is_known(size) else None for size in whole)
    if not (sharding.halo_sizes or sharding.sharded_dims_offsets):
        split = zip(sizes_or_none, sharding.split_axes, strict=True)
        return tuple(divide_dim(size, group_size(mesh, axes)) for size, axes in split)
    sizes = shard_shapes(sharding, tuple(size or 1 for size in sizes_or_none), mesh)
    alike = (sizes == sizes[0]).all(axis=0)
    return tuple(
        int(size) if even and whole is not None else None
        for size, even, whole in zip(sizes[0], alike, sizes_or_none, strict=True)
    )
