"""Devices that receive and hold the same are counted once; expanded, the counts equal those device by device."""

from __future__ import annotations

import numpy as np
import pytest

from planner.ir.basis_moves import list_basis_moves
from planner.ir.collectives import count_received_elements
from planner.ir.device_classes import DeviceClasses, held_elements, received_elements
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding, shard_shapes
from tests.testing.random_shardings import random_sharding
from tests.testing.seeds import seeds

MESHES = ("2x2", "4", "2x3", "3x1x2", "2x2x2", "6x2")


@pytest.mark.parametrize("seed", seeds(200))
def test_grids_expand_to_what_every_device_holds_and_receives(seed: int) -> None:
    random = np.random.default_rng(seed)
    mesh = Mesh.parse(MESHES[seed % len(MESHES)])
    shape = tuple(random.integers(1, 13, int(random.integers(1, 4))).tolist())
    source = random_sharding(shape, mesh, (Reduction.SUM,), random)
    size = held_elements(source, shape, mesh)
    moved = [
        (move, received_elements(move, source, shape, mesh=mesh)) for move, _ in list_basis_moves(source, shape, mesh)
    ]
    classes = DeviceClasses.of([size, *(grid for _, grid in moved)], mesh)
    assert (classes.expand(classes.pick(size)) == shard_shapes(source, shape, mesh).prod(axis=1)).all()
    for move, grid in moved:
        wanted = count_received_elements(move, source, shape, mesh=mesh)
        assert (classes.expand(classes.pick(grid)) == wanted).all(), str(move)


@pytest.mark.parametrize("mesh", MESHES)
def test_the_first_device_of_every_class_is_the_first_that_is_in_it(mesh: str) -> None:
    devices = Mesh.parse(mesh)
    grids = [
        np.arange(size).reshape([-1 if k == axis else 1 for k in range(len(devices.shape))]) // 2
        for axis, size in enumerate(devices.shape)
    ]
    classes = DeviceClasses.of(grids, devices)
    number = classes.expand(np.arange(len(classes)))
    assert [classes.first_device(each) for each in range(len(classes))] == np.unique(number, return_index=True)[
        1
    ].tolist()
    assert [classes.find(device) for device in range(devices.devices)] == number.tolist()


def test_devices_of_an_even_split_are_one_class_on_any_mesh() -> None:
    mesh = Mesh.parse("16384")
    grid = held_elements(Sharding(((0,), ())), (1 << 20, 8), mesh)
    assert len(DeviceClasses.of([grid], mesh)) == grid.size == 1
