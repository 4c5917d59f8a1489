"""Exchanges between two meshes: stages of a pipeline, the same devices in another mesh, some devices in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.errors import InvalidMesh
from planner.model.between import Place, between
from planner.model.graph import TensorType
from planner.model.mesh import Mesh
from planner.model.sharding import Reduction, Sharding, held_bounds
from planner.run.between import arrives
from planner.run.exchange import Placed, exchange_tiles
from planner.run.fabric import Wire
from planner.run.transfer import Reducer
from tests.testing.layout_oracle import agree, assembled, laid_out
from tests.testing.random_shardings import random_sharding
from tests.testing.seeds import seeds

SEEDS = seeds(200)
MESHES = ["2", "3", "2x2", "2x3", "4", "2x2x2", "1x4"]
KINDS = (Reduction.SUM, Reduction.MAX, Reduction.BITWISE_XOR, Reduction.BITWISE_AND)


def random_place(
    shape: tuple[int, ...], random: np.random.Generator, devices: int, kinds: tuple[Reduction, ...] = KINDS
) -> Place:
    mesh = Mesh.parse(MESHES[random.integers(0, len(MESHES))])
    numbers = random.permutation(devices)[: mesh.devices]
    return Place(random_sharding(shape, mesh, kinds, random), mesh, tuple(numbers.tolist()))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tensor_goes_from_any_devices_to_any_others(seed: int) -> None:  # conformance 56
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(1, 9, random.integers(0, 4)).tolist())
    whole = random.integers(0, 50, shape)
    source, target = (random_place(shape, random, 12) for _ in range(2))
    done = between(source, target, shape)
    wire, shards = Wire(done.devices), laid_out(np.asarray(whole), source.sharding, source.mesh, random)
    held: list[Any] = [None] * done.devices
    made: list[Any] = [None] * done.devices
    for number, shard in zip(source.devices, shards, strict=True):
        held[number] = shard
    bounds = held_bounds(target.sharding, shape, target.mesh)
    for number, box in zip(target.devices, bounds, strict=True):
        made[number] = np.zeros((box[:, 1] - box[:, 0]).tolist(), whole.dtype)
    origins = [
        place.spread(held_bounds(place.sharding, shape, place.mesh)[..., 0], done.devices) for place in (source, target)
    ]
    reducer = Reducer.of(np, source.sharding.reduction)
    exchange_tiles(np, wire, reducer, done, Placed(held, origins[0]), Placed(made, origins[1]))
    got = [made[number] for number in target.devices]
    assert agree(np.asarray(assembled(got, target.sharding, shape, target.mesh)), np.asarray(whole))
    assert wire.received == done.received.tolist()
    assert arrives(source, target, TensorType(shape, "i32"), seed)


def test_a_stage_hands_its_halves_to_the_next() -> None:  # conformance 56
    mesh, half = Mesh.parse("2"), Sharding(((0,),))
    done = between(Place(half, mesh, (0, 1)), Place(half, mesh, (2, 3)), (4,))
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
    for number, box in zip(target.devices, target.boxes(shape, 10)[list(target.devices)], strict=True):
        wanted = {
            tuple(at) for at in np.ndindex(*shape) if all(lo <= i < hi for i, (lo, hi) in zip(at, box, strict=True))
        }
        own = source.boxes(shape, 10)[number] if number in source.devices else np.zeros((2, 2))
        lacked += sum(not all(lo <= i < hi for i, (lo, hi) in zip(at, own, strict=True)) for at in wanted)
    assert between(source, target, shape).received.sum() == lacked


@pytest.mark.parametrize(
    ("devices", "words"), [((0,), "number of devices"), ((1, 1), "device number"), ((0, -1), "device number")]
)
def test_devices_are_as_many_as_the_mesh_has_and_each_is_another(devices: tuple[int, ...], words: str) -> None:
    with pytest.raises(InvalidMesh, match=words):
        Place(Sharding(((0,),)), Mesh.parse("2"), devices)
