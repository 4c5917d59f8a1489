"""Runs chains of collectives on shards with `planner.run.collectives`, group by group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.ir.collectives import Collective, Kind
from planner.ir.mesh import Mesh
from planner.ir.redistribution import plan_transfers
from planner.ir.sharding import Reduction, Sharding, held_bounds
from planner.run.collectives import Reducer, run_collective
from planner.run.redistribution import PlacedArrays, exchange_cells
from planner.run.transport import Communicator
from tests.testing.layout_oracle import coordinates, part, place

Array = Any
Shape = tuple[int, ...]


def bounds(sharding: Sharding, shape: Shape, mesh: Mesh, device: int) -> list[tuple[int, int]]:
    return [(held.start, held.stop) for held in part(sharding, shape, mesh, device)]


def groups(mesh: Mesh, axes: tuple[int, ...]) -> list[list[int]]:
    """Return the groups of devices with equal coordinates outside `axes`, each ordered along `axes`."""
    found: dict[tuple[int, ...], list[int]] = {}
    for device in range(mesh.devices):
        outside = tuple(c for axis, c in enumerate(coordinates(mesh, device)) if axis not in axes)
        found.setdefault(outside, []).append(device)
    return [sorted(group, key=lambda device: place(mesh, device, axes)) for group in found.values()]


def apply_collective(
    shards: list[Array], move: Collective, source: Sharding, shape: Shape, mesh: Mesh
) -> tuple[list[Array], NDArray[np.int64]]:
    """Return each device's shard after a collective, and the number of elements it received."""
    target = move.target(source)
    if move.kind is Kind.EXCHANGE:
        return apply_redistribution(shards, source, target, shape, mesh, axes=move.axes)
    after: list[Array] = list(shards)
    received = np.zeros(mesh.devices, np.int64)
    for group in groups(mesh, move.axes):
        held = np.array([bounds(source, shape, mesh, device) for device in group]).reshape(len(group), -1, 2)
        wanted = np.array([bounds(target, shape, mesh, device) for device in group]).reshape(len(group), -1, 2)
        mine = [shards[device] for device in group]
        results, taken = run_collective(np, move, source.reduction, shards=mine, held=held, wanted=wanted)
        for device, result, count in zip(group, results, taken, strict=True):
            after[device], received[device] = result, count
    return after, received


def apply_redistribution(
    shards: list[Array], source: Sharding, target: Sharding, shape: Shape, mesh: Mesh, *, axes: tuple[int, ...]
) -> tuple[list[Array], NDArray[np.int64]]:
    """Return each device's shard after a redistribution, and the number of elements it received."""
    wire, wanted = Communicator(mesh.devices), held_bounds(target, shape, mesh)
    neutral = 1 if target.reduction is Reduction.PRODUCT else 0
    after = [np.full((ends[:, 1] - ends[:, 0]).tolist(), neutral, shards[0].dtype) for ends in wanted]
    held = PlacedArrays(shards, held_bounds(source, shape, mesh)[..., 0])
    reducer = Reducer.of(np, source.reduction)
    exchange_cells(
        np,
        wire,
        reducer,
        done=plan_transfers(source, target, shape, mesh, axes),
        held=held,
        wanted=PlacedArrays(after, wanted[..., 0]),
    )
    return after, np.array(wire.received)


def apply_chain(
    shards: list[Array], chain: Iterable[Collective], source: Sharding, shape: Shape, mesh: Mesh
) -> tuple[list[Array], Sharding, NDArray[np.int64]]:
    """Return the shards after a chain, their sharding, and the number of elements each device received."""
    total = np.zeros(mesh.devices, np.int64)
    for move in chain:
        shards, received = apply_collective(shards, move, source, shape, mesh)
        source, total = move.target(source), total + received
    return shards, source, total
