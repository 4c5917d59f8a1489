"""Nested blocks, counted by the digits of device numbers, compared with a list of all devices."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from planner.choose.options import list_layouts
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from planner.reshard.device_traffic import count_by_device
from planner.reshard.nested_splits import compare_splits
from planner.reshard.nested_traffic import all_blocks_nest, count_nested
from planner.reshard.traffic import ReshardTraffic
from tests.testing.seeds import seeds

LENGTHS = (1, 2, 3, 4, 6, 7, 8, 12, 24, 64, 96)
AXES = (1, 2, 2, 3, 4, 6, 8)
SAME_DIGITS = [
    ((0, 1), (0, 1), ()),
    ((0, 1), (0,), ()),
    ((0,), (1, 0), (0, 1)),
    ((0, 1), (1, 0), (0, 1)),
    ((), (1,), ()),
]


@pytest.mark.parametrize(("source", "target", "differing"), SAME_DIGITS)
def test_digits_differ_where_lists_of_axes_part(
    source: tuple[int, ...], target: tuple[int, ...], differing: object
) -> None:
    pair = compare_splits(source, target, (4, 2))
    assert pair.is_nested
    assert pair.differing == differing


def test_coprime_splits_do_not_nest() -> None:
    assert not compare_splits((0,), (1,), (3, 2)).is_nested
    assert compare_splits((0,), (1,), (6, 2)).is_nested


@pytest.mark.parametrize("seed", seeds(150))
def test_counting_by_digits_equals_counting_device_by_device(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.choice(AXES, int(random.integers(1, 4))).tolist()
    mesh = Mesh.parse("x".join(map(str, sizes)))
    shape = tuple(random.choice(LENGTHS, int(random.integers(1, 4))).tolist())
    states = list_layouts(TensorType(shape, "f32"), mesh)
    states = [states[k] for k in random.permutation(len(states))[:24].tolist()]
    if seed % 3 == 0:
        states = [
            Sharding(each.split_axes, (0,), Reduction.SUM)
            for each in states
            if not any(0 in a for a in each.split_axes)
        ]
    bound, exact = (count(tuple(states), tuple(states), shape, mesh=mesh) for count in (count_nested, count_by_device))
    nests = all_blocks_nest(states, states, shape, mesh=mesh)
    assert nests or any(size % prod(sizes) for size in shape) or any(size & size - 1 for size in sizes)
    for name in ("received", "sent_total", "messages"):
        listed, counted = getattr(exact, name), getattr(bound, name)
        assert (counted >= listed).all(), name
        assert (counted == listed).all() or not nests, name


def test_traffic_on_a_million_devices_is_counted_at_once() -> None:
    shape, mesh = (1 << 20, 1 << 20), Mesh.parse("16384")
    states = list_layouts(TensorType(shape, "f32"), mesh)
    found = ReshardTraffic.of(states, states, shape, mesh)
    assert found.received.tolist()[1] == [(1 << 40) - (1 << 26), 0, (1 << 26) - (1 << 12)]
