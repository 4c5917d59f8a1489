"""Rounds of messages: no device sends or receives twice in a round, and there are as few rounds as possible."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from planner.ir.mesh import Mesh
from planner.ir.redistribution import plan_transfers
from planner.ir.sharding import Sharding
from planner.ir.transfers import DeviceMessages
from planner.reshard.comm_rounds import color_edges, count_rounds, min_rounds
from tests.testing.seeds import seeds

SEEDS = seeds(60)
EXCHANGES = [
    ("4", (8, 8), Sharding(((0,), ())), Sharding(((), (0,)))),
    ("2x3", (6, 6), Sharding(((0,), (1,))), Sharding(((1,), (0,)))),
    ("3x4", (16, 23), Sharding(((0,), (1,))), Sharding(((1,), (0,)))),
    ("2x4", (5, 7), Sharding(((1, 0), ())), Sharding(((), ()))),
    ("2x2", (4, 4), Sharding(((), ()), (0, 1)), Sharding(((0,), ()))),
    ("4", (8, 8), Sharding(((0,), ())), Sharding(((0,), ()))),
]


def proper(messages: DeviceMessages, devices: int) -> None:
    found = color_edges(messages, devices).tolist()
    for ends in (messages.sender.tolist(), messages.receiver.tolist()):
        assert max(Counter(zip(ends, found, strict=True)).values(), default=1) == 1
        assert max(Counter(ends).values(), default=0) <= min_rounds(messages, devices)
    assert set(found) == set(range(min_rounds(messages, devices)))


@pytest.mark.parametrize("between", [(2, 20), (10, 30)])
@pytest.mark.parametrize("seed", SEEDS)
def test_any_messages_take_as_many_rounds_as_the_busiest_device_has(seed: int, between: tuple[int, int]) -> None:
    random = np.random.default_rng(seed)
    devices = int(random.integers(*between))
    sender, receiver = np.nonzero(random.random((devices, devices)) < random.random())
    proper(DeviceMessages(sender, receiver, np.ones_like(sender)), devices)


def test_an_exchange_of_all_with_all_takes_one_round_per_partner() -> None:
    sender, receiver = np.nonzero(~np.eye(64, dtype=bool))
    messages = DeviceMessages(sender, receiver, np.ones_like(sender))
    proper(messages, 64)
    assert min_rounds(messages, 64) == 63


@pytest.mark.parametrize(("mesh", "shape", "source", "target"), EXCHANGES)
def test_the_messages_of_an_exchange_are_packed(
    mesh: str, shape: tuple[int, ...], source: Sharding, target: Sharding
) -> None:
    done = plan_transfers(source, target, shape, Mesh.parse(mesh))
    for messages, count in zip(done.messages, count_rounds(done), strict=True):
        proper(messages, done.devices)
        assert min_rounds(messages, done.devices) == count
