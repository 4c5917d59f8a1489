"""What a device holds under halos and offsets; a sharding describes elements, not a list of sizes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from planner.errors import InvalidMesh, InvalidSharding, ShardplanError
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding, held_bounds, shard_shape, shard_shapes
from tests.testing.layout_oracle import box

Shape = tuple[int, ...]
OFFSETS = Sharding(((), (0,)), sharded_dims_offsets=((0, 2, 5, 9, 14),))

# mesh, shape, sharding, the largest shard, start and stop of every dim on some devices
HALOS = [
    # conformance 27: a core of 2 rows with 1 before and 2 after is 5 rows
    ("2x3", (4, 8), Sharding(((0,), ()), halo_sizes=(1, 2)), (5, 8), {0: [(-1, 4), (0, 8)], 5: [(1, 6), (0, 8)]}),
    ("4", (8, 16), Sharding(((0,), ()), halo_sizes=(1, 2)), (5, 16), {1: [(1, 6), (0, 16)]}),
    # conformance 27: [1,2,2,3] is of two dims; a dim that is not split has none
    (
        "2x2",
        (4, 8),
        Sharding(((0,), (1,)), halo_sizes=(1, 2, 2, 3)),
        (5, 9),
        {0: [(-1, 4), (-2, 7)], 3: [(1, 6), (2, 11)]},
    ),
    (
        "2x2",
        (4, 9, 8),
        Sharding(((0,), (), (1,)), halo_sizes=(1, 2, 2, 3)),
        (5, 9, 9),
        {1: [(-1, 4), (0, 9), (2, 11)]},
    ),
]


@pytest.mark.parametrize(("mesh", "shape", "sharding", "largest", "held"), HALOS)
def test_a_shard_is_its_core_and_the_halo_around_it(
    mesh: str, shape: Shape, sharding: Sharding, largest: Shape, held: dict[int, list[tuple[int, int]]]
) -> None:
    devices = Mesh.parse(mesh)
    assert sharding.checked(shape, devices) == sharding
    assert shard_shape(sharding, shape, devices) == largest
    bounds = held_bounds(sharding, shape, devices)
    for device in range(devices.devices):
        assert [tuple(each) for each in bounds[device].tolist()] == box(sharding, shape, devices, device)
    assert {device: box(sharding, shape, devices, device) for device in held} == held


# conformance 2, conformance 27: nothing is known of blocks over an axis of unknown size, so nothing is refused
def test_a_halo_over_an_axis_of_unknown_size_is_taken_as_it_is() -> None:
    wide = Sharding(((0,), ()), halo_sizes=(1, 9))
    assert wide.checked((8, 16), Mesh.parse("?")) == wide
    with pytest.raises(InvalidMesh, match="mesh axis size is unknown"):
        held_bounds(wide, (8, 16), Mesh.parse("?"))


# conformance 29
def test_offsets_cut_a_dim_where_they_say() -> None:
    mesh = Mesh.parse("4")
    assert OFFSETS.checked((4, 14), mesh) == OFFSETS
    assert shard_shapes(OFFSETS, (4, 14), mesh).tolist() == [[4, 2], [4, 3], [4, 4], [4, 5]]
    assert held_bounds(OFFSETS, (4, 14), mesh)[:, 1].tolist() == [[0, 2], [2, 5], [5, 9], [9, 14]]


ROWS = ((0,), ())
# mesh, shape, halo sizes, offsets, the error, part of the message
REFUSED = [
    # conformance 27: two numbers for each dim that is split, no more and no fewer
    ("4", (8, 16), (1,), (), InvalidSharding, "number of halo sizes (got 1; wanted 2 for each of 1 split dims"),
    ("4", (8, 16), (1, 2, 0, 0), (), InvalidSharding, "number of halo sizes (got 4; wanted 2 for each of 1 split dims"),
    ("4", (8, 16), (1, -2), (), InvalidSharding, "halo size is negative"),
    ("4", (8, 16), (3, 0), (), InvalidSharding, "halo of dim 0 (got 3; wanted at most 2"),
    ("4", (7, 16), (0, 2), (), InvalidSharding, "halo of dim 0 (got 2; wanted at most 1"),
    ("4", (5, 16), (2, 0), (), InvalidSharding, "halo of dim 0 (got 2; wanted at most 1"),
    # conformance 31
    ("4", (8, 16), (1, 2), ((0, 2, 4, 6, 8),), InvalidSharding, "halo sizes and offsets exclude each other"),
    # conformance 32
    ("2", (2, 16), (), ((0, 2),), InvalidSharding, "offsets of dim 0 (got (0, 2); wanted 3 of them"),
    ("2", (2, 16), (), ((0, 3, 2),), InvalidSharding, "then never less than the one before"),
    ("2", (4, 16), (), ((0, 1, 2, 4),), InvalidSharding, "wanted 3 of them"),
    ("?", (4, 16), (), ((0, 2, 4),), InvalidMesh, "mesh axis size is unknown"),
    # conformance 33
    ("2", (4, 16), (), ((1, 2, 4),), InvalidSharding, "0 first"),
    ("2", (4, 16), (), ((0, 2, 9),), InvalidSharding, "wanted 4 last (the dim)"),
    ("2", (4, 16), (), ((0, 2, 3),), InvalidSharding, "wanted 4 last (the dim)"),
]


@pytest.mark.parametrize(("mesh", "shape", "halo", "offsets", "error", "words"), REFUSED)
def test_invalid_offsets_are_refused(
    mesh: str,
    shape: Shape,
    halo: tuple[int, ...],
    offsets: tuple[tuple[int, ...], ...],
    error: type[ShardplanError],
    words: str,
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        Sharding(ROWS, halo_sizes=halo, sharded_dims_offsets=offsets).checked(shape, Mesh.parse(mesh), "value 'x'")


# conformance 40: the attribute is the same for every size; the sizes follow from the tensor, none is padded
@pytest.mark.parametrize(
    ("size", "blocks"), [(8, [2, 2, 2, 2]), (7, [2, 2, 2, 1]), (5, [2, 2, 1, 0]), (1, [1, 0, 0, 0])]
)
def test_a_sharding_fixes_no_sizes(size: int, blocks: list[int]) -> None:
    mesh, sharding = Mesh.parse("4"), Sharding(((0,),))
    assert sharding.checked((size,), mesh) == sharding
    shapes = shard_shapes(sharding, (size,), mesh)[:, 0]
    assert shapes.tolist() == blocks
    assert np.sum(shapes) == size
