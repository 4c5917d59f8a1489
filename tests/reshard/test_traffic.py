"""Traffic of exchanges: the closed form for all pairs compared with the transfers of each pair."""

from __future__ import annotations

import numpy as np
import pytest

from planner.choose.options import list_layouts
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.redistribution import plan_transfers
from planner.ir.sharding import Reduction, Sharding
from planner.reshard.traffic import ReshardTraffic
from tests.testing.random_shardings import random_sharding
from tests.testing.seeds import seeds

SIZES = [("4", (8, 8)), ("2x4", (8, 16)), ("2x3", (7, 5, 6)), ("2x2x2", (16, 8)), ("1x3", (7,)), ("2x2", ())]
CUT = [
    Sharding(((0,), ()), halo_sizes=(1, 2)),
    Sharding(((0,), (1,)), halo_sizes=(1, 0, 0, 2)),
    Sharding(((0,), ()), sharded_dims_offsets=((0, 1, 8),)),
    Sharding(((), (1, 0)), sharded_dims_offsets=((0, 8, 8, 12, 12),)),
    Sharding(((), ())),
    Sharding(((1,), (0,))),
]


def pairs(shardings: list[Sharding], shape: tuple[int, ...], mesh: Mesh) -> None:
    found = ReshardTraffic.of(shardings, shardings, shape, mesh)
    for i, source in enumerate(shardings):
        for j, target in enumerate(shardings):
            done = plan_transfers(source, target, shape, mesh)
            counted = ReshardTraffic.of_pair(source, target, shape, mesh=mesh)
            assert found.received[i, j] == done.received.max() == counted.received[0, 0]
            assert done.sent.max() == counted.sent[0, 0]
            assert found.sent[i, j] <= done.sent.max() or source.halo_sizes, "an even share is the least"


@pytest.mark.parametrize(("mesh", "shape"), SIZES)
def test_all_pairs_receive_what_their_transfers_say(mesh: str, shape: tuple[int, ...]) -> None:
    pairs(list_layouts(TensorType(shape, "f32"), Mesh.parse(mesh)), shape, Mesh.parse(mesh))


def test_halos_and_offsets_count_too() -> None:
    pairs(CUT, (8, 12), Mesh.parse("2x2"))


@pytest.mark.parametrize("seed", seeds(100))
def test_the_lower_bound_of_the_busiest_device_is_no_more_than_it_receives(seed: int) -> None:
    random = np.random.default_rng(seed)
    mesh = Mesh.parse(("2x2", "2x3", "4", "2x2x2")[seed % 4])
    shape = tuple(random.integers(1, 9, 2).tolist())
    drawn = [random_sharding(shape, mesh, (Reduction.SUM,), random) for _ in range(2)]
    source, target = (Sharding(each.split_axes, each.partial, each.reduction) for each in drawn)
    if set(source.partial) - set(target.partial):
        received, messages = ReshardTraffic.lower_bound(source, target, shape, mesh=mesh)
        counted = ReshardTraffic.of_pair(source, target, shape, mesh=mesh)
        assert received <= counted.received[0, 0]
        assert messages <= counted.messages[0, 0]


@pytest.mark.parametrize(("mesh", "shape"), SIZES)
def test_the_holders_of_a_block_send_even_shares_of_it(mesh: str, shape: tuple[int, ...]) -> None:
    devices = Mesh.parse(mesh)
    states = list_layouts(TensorType(shape, "f32"), devices)
    found = ReshardTraffic.of(states, states, shape, devices)
    for i, source in enumerate(states):
        for j, target in enumerate(states):
            done = plan_transfers(source, target, shape, devices)
            boxes = done.endpoints.held.reshape(devices.devices, -1)
            _, block, holders = np.unique(boxes, axis=0, return_inverse=True, return_counts=True)
            sent = np.bincount(block, done.sent).astype(np.int64)
            assert found.sent[i, j] == (-(-sent // holders)).max()


@pytest.mark.parametrize(("mesh", "shape"), SIZES)
def test_a_device_gets_a_message_from_every_block_it_needs(mesh: str, shape: tuple[int, ...]) -> None:
    devices = Mesh.parse(mesh)
    states = list_layouts(TensorType(shape, "f32"), devices)
    found = ReshardTraffic.of(states, states, shape, devices)
    for i, source in enumerate(states):
        for j, target in enumerate(states):
            done = plan_transfers(source, target, shape, devices)
            blocks = {tuple(map(tuple, box)): n for n, box in enumerate(done.endpoints.held.tolist())}
            block = np.array([blocks[tuple(map(tuple, box))] for box in done.endpoints.held.tolist()])
            links = set(zip(block[done.copy.sender].tolist(), done.copy.receiver.tolist(), strict=True))
            most = max((sum(to == device for _, to in links) for device in range(devices.devices)), default=0)
            assert found.messages[i, j] == most
