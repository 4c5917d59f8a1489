"""Exchanges between two meshes: pipeline stages, the same devices as another mesh, some devices in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.errors import InvalidMesh
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding, held_bounds
from planner.reshard.cross_mesh import PlacedSharding, plan_cross_mesh_transfers
from planner.run.collectives import Reducer
from planner.run.cross_mesh import verify_cross_mesh
from planner.run.redistribution import PlacedArrays, exchange_cells
from planner.run.transport import Communicator
from tests.testing.layout_oracle import agree, shard_array, unshard_array
from tests.testing.random_shardings import random_sharding
from tests.testing.seeds import seeds

SEEDS = seeds(200)
MESHES = ["2", "3", "2x2", "2x3", "4", "2x2x2", "1x4"]
KINDS = (Reduction.SUM, Reduction.MAX, Reduction.BITWISE_XOR, Reduction.BITWISE_AND)


def random_place(
    shape: tuple[int, ...], random: np.random.Generator, devices: int, kinds: tuple[Reduction, ...] = KINDS
) -> PlacedSharding:
    mesh = Mesh.parse(MESHES[random.integers(0, len(MESHES))])
    numbers = random.permutation(devices)[: mesh.devices]
    return PlacedSharding(random_sharding(shape, mesh, kinds, random), mesh, tuple(numbers.tolist()))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tensor_goes_from_any_devices_to_any_others(seed: int) -> None:  # conformance 56
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(1, 9, random.integers(0, 4)).tolist())
    whole = random.integers(0, 50, shape)
    source, target = (random_place(shape, random, 12) for _ in range(2))
    done = plan_cross_mesh_transfers(source, target, shape)
    wire, shards = Communicator(done.devices), shard_array(np.asarray(whole), source.sharding, source.mesh, random)
    held: list[Any] = [None] * done.devices
    made: list[Any] = [None] * done.devices
    for number, shard in zip(source.devices, shards, strict=True):
        held[number] = shard
    bounds = held_bounds(target.sharding, shape, target.mesh)
    for number, box in zip(target.devices, bounds, strict=True):
        made[number] = np.zeros((box[:, 1] - box[:, 0]).tolist(), whole.dtype)
    origins = [
        place.scatter_by_number(held_bounds(place.sharding, shape, place.mesh)[..., 0], done.devices)
        for place in (source, target)
    ]
    reducer = Reducer.of(np, source.sharding.reduction)
    exchange_cells(
        np, wire, reducer, done=done, held=PlacedArrays(held, origins[0]), wanted=PlacedArrays(made, origins[1])
    )
    got = [made[number] for number in target.devices]
    assert agree(np.asarray(unshard_array(got, target.sharding, shape, target.mesh)), np.asarray(whole))
    assert wire.received == done.received.tolist()
    assert verify_cross_mesh(source, target, TensorType(shape, "i32"), seed=seed)


def test_a_stage_hands_its_halves_to_the_next() -> None:  # conformance 56
    mesh, half = Mesh.parse("2"), Sharding(((0,),))
    done = plan_cross_mesh_transfers(PlacedSharding(half, mesh, (0, 1)), PlacedSharding(half, mesh, (2, 3)), (4,))
    assert done.copy.sender.tolist() == [0, 1]
    assert done.copy.receiver.tolist() == [2, 3]
    assert done.received.tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize("seed", seeds(40))
def test_no_more_is_received_than_is_lacked(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(1, 9, 2).tolist())
    source, target = (random_place(shape, random, 10) for _ in range(2))
    if source.sharding.partial or target.sharding.partial:
        return
    lacked = 0
    for number, box in zip(target.devices, target.held_boxes(shape, 10)[list(target.devices)], strict=True):
        wanted = {
            tuple(at) for at in np.ndindex(*shape) if all(lo <= i < hi for i, (lo, hi) in zip(at, box, strict=True))
        }
        own = source.held_boxes(shape, 10)[number] if number in source.devices else np.zeros((2, 2))
        lacked += sum(not all(lo <= i < hi for i, (lo, hi) in zip(at, own, strict=True)) for at in wanted)
    assert plan_cross_mesh_transfers(source, target, shape).received.sum() == lacked


@pytest.mark.parametrize(
    ("devices", "words"), [((0,), "number of devices"), ((1, 1), "device number"), ((0, -1), "device number")]
)
def test_devices_are_distinct_and_as_many_as_the_mesh_has(devices: tuple[int, ...], words: str) -> None:
    with pytest.raises(InvalidMesh, match=words):
        PlacedSharding(Sharding(((0,),)), Mesh.parse("2"), devices)
