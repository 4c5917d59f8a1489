"""Halos of a shard: elements of the neighbours' cores kept before and after the device's own core.

A shard with halos [b, a] on a split dim holds b elements that belong to the device before it, its core, and a
elements of the device after it. update_halo fills them again, into halos that may have other sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.spmd.op_def import DYNAMIC, CallSignature
from planner.spmd.types import Dim, LocalType, are_compatible, group_size

Halo = tuple[Dim, Dim]


def per_dim(split_axes: Sequence[Sequence[int]], sizes: Sequence[Dim], rank: int) -> list[Halo]:
    """Return the halo (before, after) of every dim; an unsplit dim has none."""
    pairs = iter(zip(sizes[::2], sizes[1::2], strict=True))
    lists = [*split_axes, *[()] * (rank - len(split_axes))]
    return [next(pairs) if listed else (0, 0) for listed in lists]


def halo_types(s: CallSignature) -> tuple[LocalType, ...]:
    """Infer the type of the source's core with the destination's halos."""
    rank = s.input.rank
    old = per_dim(s.attrs["split_axes"], s.attrs["source_halo_sizes"], rank)
    new = per_dim(s.attrs["split_axes"], s.attrs["destination_halo_sizes"], rank)
    dims = [_resized(s, dim, *each) for dim, each in enumerate(zip(s.input.shape, old, new, strict=True))]
    result = LocalType(tuple(dims), s.input.dtype)
    scalars = sum(each is DYNAMIC for end in ("source", "destination") for each in s.attrs[f"{end}_halo_sizes"])
    if len(s.operands) - scalars > 1:
        into = s.operands[1]
        fits = into.rank == rank and all(map(are_compatible, into.shape, result.shape))
        if not fits or into.dtype != result.dtype:
            s.refuse("destination of update_halo", str(into), f"{result}, the core with the destination's halos")
        return (into,)
    return (result,)


def _resized(s: CallSignature, dim: int, size: Dim, old: Halo, new: Halo) -> Dim:
    if size is None or DYNAMIC in old:
        return None
    core = size - sum(each or 0 for each in old)
    if core < 0:
        s.refuse(f"source halo of dim {dim} is larger than the shard", list(old), f"at most {size} in all")
    axes = s.attrs["split_axes"][dim] if dim < len(s.attrs["split_axes"]) else ()
    has_neighbours = group_size(s.mesh, tuple(axes)) != 1
    if has_neighbours and any(each is not None and each > core for each in new):
        s.refuse(f"halo of dim {dim} is wider than the neighbour's core", list(new), f"at most {core}")
    return None if DYNAMIC in new else core + sum(each or 0 for each in new)
