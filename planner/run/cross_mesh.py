"""Runs an exchange between two meshes on logical devices and compares it with the tensor it moves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.ir.graph import TensorType
from planner.ir.sharding import Shape, held_bounds
from planner.reshard.cross_mesh import PlacedSharding, plan_cross_mesh_transfers
from planner.run.backend import run_dtype
from planner.run.collectives import Reducer, combine_terms
from planner.run.redistribution import PlacedArrays, exchange_cells
from planner.run.transport import Communicator
from planner.run.undef import poison_value

Array = Any
Box = NDArray[np.int64]


def verify_cross_mesh(source: PlacedSharding, target: PlacedSharding, kind: TensorType, *, seed: int = 0) -> bool:
    """Return whether an exchange of a random tensor leaves every device its target shard, and moves what was
    predicted.
    """
    random = np.random.default_rng(seed)
    whole = random.integers(0, 2 if kind.dtype == "bool" else 100, kind.shape).astype(run_dtype(np, kind.dtype, "f64"))
    held, targets = (_shards(place, whole, full) for place, full in ((source, True), (target, False)))
    done = plan_cross_mesh_transfers(source, target, kind.shape)
    wire, reducer = Communicator(done.devices), Reducer.of(np, source.sharding.reduction)
    ends = [
        _place_shards(each, place, done.devices, shape=kind.shape)
        for each, place in ((held, source), (targets, target))
    ]
    exchange_cells(np, wire, reducer, done, *ends)
    return wire.received == done.received.tolist() and _matches_tensor(whole, targets, target)


def _shards(place: PlacedSharding, whole: Array, full: bool) -> list[Array]:
    """Return a shard per device of the mesh: its part of the tensor if `full`, otherwise undefined.

    Of partial terms the first is the tensor; the others are neutral.
    """
    neutral = place.sharding.reduction.neutral
    first = (place.mesh.group_index(place.sharding.partial) == 0).tolist()
    shards = []
    for box, leads in zip(held_bounds(place.sharding, whole.shape, place.mesh), first, strict=True):
        means = leads or neutral is None
        shard = np.full(
            (box[:, 1] - box[:, 0]).tolist(), poison_value(np, whole.dtype) if means else neutral, whole.dtype
        )
        if full and means:
            here, there = _inside_slices(box, whole.shape)
            shard[here] = whole[there]
        shards.append(shard)
    return shards


def _place_shards(shards: list[Array], place: PlacedSharding, devices: int, *, shape: Shape) -> PlacedArrays:
    """Return shards by device number."""
    arrays: list[Array] = [None] * devices
    for number, shard in zip(place.devices, shards, strict=True):
        arrays[number] = shard
    origins = held_bounds(place.sharding, shape, place.mesh)[..., 0]
    return PlacedArrays(arrays, place.scatter_by_number(origins, devices))


def _inside_slices(box: Box, shape: Shape) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return where in a shard, and where in the tensor, the part of a box inside the tensor lies."""
    low, high = np.clip(box, 0, np.array(shape, np.int64).reshape(-1, 1)).T
    here = tuple(slice(*ends) for ends in zip((low - box[:, 0]).tolist(), (high - box[:, 0]).tolist(), strict=True))
    return here, tuple(slice(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True))


def _matches_tensor(whole: Array, shards: list[Array], place: PlacedSharding) -> bool:
    """Return whether shards, their terms combined, are those of a tensor."""
    reducer, boxes = Reducer.of(np, place.sharding.reduction), held_bounds(place.sharding, whole.shape, place.mesh)
    for group in place.mesh.groups(place.sharding.partial).tolist():
        here, there = _inside_slices(boxes[group[0]], whole.shape)
        total = combine_terms(np, reducer, [shards[device][here] for device in group])
        if not np.array_equal(total, whole[there]):
            return False
    return True
