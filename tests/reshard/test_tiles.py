"""Tiles between two shardings: the resharding note's maps and figure, and a slow oracle that labels every element."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.documents.graphs import load_sharding
from planner.documents.schemas import ShardingDocument, validate_document
from planner.errors import InvalidSharding
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding, shard_shapes
from planner.reshard.tiles import (
    Grid,
    Tiles,
    count_kept_elements,
    count_wanted_elements,
    cut_period,
    min_received_elements,
    shard_indices,
)
from tests.testing.layout_oracle import layouts, part, shard_array

Shape = tuple[int, ...]
ROWS_FIRST, COLUMNS_FIRST = Sharding(((0,), (1,))), Sharding(((1,), (0,)))
# M, N, K, L: meshes and tensors on which the maps are checked
SIZES = [(2, 3, 6, 6), (3, 4, 16, 23), (5, 2, 27, 14), (2, 3, 12, 18), (2, 3, 1, 7), (4, 3, 5, 2)]


def at(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def grids(m: int, n: int, shape: Shape) -> tuple[Grid, Grid]:
    mesh = Mesh.parse(f"{m}x{n}")
    return Grid.of(ROWS_FIRST, shape, mesh), Grid.of(COLUMNS_FIRST, shape, mesh)


# conformance 99
def test_the_row_first_map_equals_the_notes() -> None:
    grid, _ = grids(3, 4, (16, 23))
    shard, local = grid.locate(at(13, 17))
    assert (shard.tolist(), local.tolist()) == ([2, 2], [1, 5])
    assert grid.element(at(2, 2), at(1, 5)).tolist() == [13, 17]


@pytest.mark.parametrize(("M", "N", "K", "L"), SIZES)
def test_the_maps_are_floor_divisions_by_the_blocks(M: int, N: int, K: int, L: int) -> None:
    source, target = grids(M, N, (K, L))
    for i, j in product(range(K), range(L)):
        for grid, block in (source, at(-(-K // M), -(-L // N))), (target, at(-(-K // N), -(-L // M))):
            shard, local = grid.locate(at(i, j))
            assert shard.tolist() == (at(i, j) // block).tolist()
            assert local.tolist() == (at(i, j) % block).tolist()
            assert grid.element(shard, local).tolist() == [i, j]


# conformance 100
def test_the_column_first_map_is_right_and_the_check_in_the_note_is_out_of_range() -> None:
    _, grid = grids(5, 2, (27, 14))
    with pytest.raises(InvalidSharding, match=r"dim 1: element out of range \(got 19; wanted 0 or more, below 14"):
        grid.locate(at(9, 19))
    with pytest.raises(InvalidSharding, match=r"dim 1: shard out of range \(got 6; wanted 0 or more, below 5"):
        grid.element(at(0, 6), at(9, 1))  # device (6, 0): axis 0 splits dim 1
    shard, local = grid.locate(at(9, 13))
    assert (shard.tolist(), local.tolist()) == ([0, 4], [9, 1])


# conformance 101
@pytest.mark.parametrize(("M", "N", "K", "L"), SIZES)
def test_the_composed_map_leads_to_the_target_device(M: int, N: int, K: int, L: int) -> None:
    source, target = grids(M, N, (K, L))
    for i, j in product(range(K), range(L)):
        (m, n), (k, l) = (each.tolist() for each in source.locate(at(i, j)))  # noqa: E741
        p = (n * -(-L // N) + l) // -(-L // M)
        q = (m * -(-K // M) + k) // -(-K // N)
        shard, _ = target.locate(source.element(at(m, n), at(k, l)))
        assert shard.tolist() == [q, p]


# conformance 101
@pytest.mark.parametrize(("M", "N", "K", "L"), SIZES)
def test_a_pair_of_shards_has_one_tile_at_most_from_the_later_start_to_the_earlier_stop(
    M: int, N: int, K: int, L: int
) -> None:
    source, target = grids(M, N, (K, L))
    tiles = Tiles.intersect(source, target)
    found = {(*s, *t): (low, high) for low, high, s, t in described(tiles)}
    assert len(found) == len(tiles.start)
    for m, n, q, p in product(range(M), range(N), range(N), range(M)):
        low = [max(source.cuts[0][m], target.cuts[0][q]), max(source.cuts[1][n], target.cuts[1][p])]
        high = [min(source.cuts[0][m + 1], target.cuts[0][q + 1]), min(source.cuts[1][n + 1], target.cuts[1][p + 1])]
        if low[0] < high[0] and low[1] < high[1]:
            assert found.pop((m, n, q, p)) == (tuple(low), tuple(high))
    assert not found


def rows(numbers: Any) -> list[tuple[int, ...]]:
    return [tuple(row) for row in numbers.tolist()]


def described(tiles: Tiles) -> list[tuple[tuple[int, ...], ...]]:
    """Start, stop, source and target of every tile."""
    return list(zip(*map(rows, (tiles.start, tiles.stop, tiles.source, tiles.target)), strict=True))


# source and target device of every tile, both from 1
LABELS = [
    "11/11 12/11 12/21 13/21",
    "11/12 12/12 12/22 13/22",
    "21/12 22/12 22/22 23/22",
    "21/13 22/13 22/23 23/23",
]


# conformance 102
def test_the_tile_figure_comes_out_as_printed() -> None:
    tiles = Tiles.intersect(*grids(2, 3, (6, 6)))
    labels = [f"{m + 1}{n + 1}/{p + 1}{q + 1}" for _, _, (m, n), (q, p) in described(tiles)]
    assert [" ".join(labels[row : row + 4]) for row in range(0, 16, 4)] == LABELS
    assert [sorted({*tiles.start[:, dim], *tiles.stop[:, dim]}) for dim in (0, 1)] == [[0, 2, 3, 4, 6]] * 2
    mesh = Mesh.parse("2x3")
    assert count_kept_elements(ROWS_FIRST, COLUMNS_FIRST, (6, 6), mesh=mesh).sum() == 10
    assert min_received_elements(ROWS_FIRST, COLUMNS_FIRST, (6, 6), mesh=mesh).sum() == 26


# conformance 103
def test_the_cuts_repeat_after_the_least_common_multiple() -> None:
    assert cut_period(3, 2) == 3 * 2 // math.gcd(3, 2) == 6
    for source, target in product(range(1, 9), repeat=2):
        length = cut_period(source, target)
        assert length == source * target // math.gcd(source, target)
        mesh = Mesh.parse(f"{3 * length // source}x{3 * length // target}")
        cuts = [Grid.of(Sharding(((axis,),)), (3 * length,), mesh) for axis in (0, 1)]
        start = Tiles.intersect(*cuts).start[:, 0]
        assert (start[start >= length] - length).tolist() == start[start < 2 * length].tolist()
        assert [t for t in start[1:] if t % source == t % target == 0] == [length, 2 * length]


# conformance 30
def test_offsets_of_two_dims_cut_a_grid() -> None:
    mesh, shape = Mesh.parse("2x2"), (32, 32, 32)
    uneven = Sharding(((0,), (1,), ()), sharded_dims_offsets=((0, 24, 32), (0, 20, 32)))
    sizes = [(24, 20, 32), (24, 12, 32), (8, 20, 32), (8, 12, 32)]  # erratum 7: 8x12x32 is device (1,1)
    assert rows(shard_shapes(uneven, shape, mesh)) == sizes
    shard, local = Grid.of(uneven, shape, mesh).locate(at(24, 19, 5))
    assert (shard.tolist(), local.tolist()) == ([1, 0, 0], [0, 19, 5])
    even = Sharding(((0,), (1,), ()))
    tiles = Tiles.intersect(Grid.of(uneven, shape, mesh), Grid.of(even, shape, mesh))
    assert rows(tiles.start[:, :2]) == list(product((0, 16, 24), (0, 16, 20)))
    assert min_received_elements(uneven, even, shape, mesh=mesh).tolist() == [
        0,
        4 * 16 * 32,
        16 * 8 * 32,
        16 * 16 * 32 - 8 * 12 * 32,
    ]


MESHES = [Mesh.parse(text) for text in ("4", "2x3", "3x2", "2x2x2", "1x4")]


@given(st.data())
def test_tiles_are_the_elements_of_one_source_and_one_target_shard(data: st.DataObject) -> None:
    mesh = data.draw(st.sampled_from(MESHES))
    shape = tuple(data.draw(st.lists(st.integers(1, 13), min_size=1, max_size=3)))
    source, target = (data.draw(st.sampled_from(layouts(len(shape), mesh, (16,) * len(shape)))) for _ in range(2))
    tiles = Tiles.intersect(Grid.of(source, shape, mesh), Grid.of(target, shape, mesh))
    labels = np.full((*shape, 2, len(shape)), -1)
    held, wanted = (shard_indices(each, shape, mesh) for each in (source, target))
    for device in range(mesh.devices):
        labels[part(source, shape, mesh, device)][..., 0, :] = held[device]
        labels[part(target, shape, mesh, device)][..., 1, :] = wanted[device]
    for start, stop, *ends in described(tiles):
        inside = labels[tuple(map(slice, start, stop))]
        assert (inside == np.array(ends)).all()
    assert tiles.elements.min() > 0
    assert tiles.elements.sum() == math.prod(shape)
    assert len({(s, t) for _, _, s, t in described(tiles)}) == len(tiles.source)


@given(st.data())
def test_devices_that_exchange_tiles_receive_the_least(data: st.DataObject) -> None:
    """Every device builds its target shard of tiles: its own, or of the first device that holds them."""
    mesh = data.draw(st.sampled_from(MESHES))
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    source, target = (data.draw(st.sampled_from(layouts(len(shape), mesh, (16,) * len(shape)))) for _ in range(2))
    whole, random = np.arange(math.prod(shape)).reshape(shape), np.random.default_rng(0)
    shards, held = shard_array(whole, source, mesh, random), rows(shard_indices(source, shape, mesh))
    wanted = shard_array(whole, target, mesh, random)
    grid, goal = Grid.of(source, shape, mesh), Grid.of(target, shape, mesh)
    tiles, received = Tiles.intersect(grid, goal), np.zeros(mesh.devices, np.int64)
    for device, into in enumerate(rows(shard_indices(target, shape, mesh))):
        built = np.full_like(wanted[device], -1)
        for start, stop, owner, end in described(tiles):
            if end == into:
                giver = device if held[device] == owner else held.index(owner)
                piece = shards[giver][box(grid, start, stop)]
                built[box(goal, start, stop)] = piece
                received[device] += piece.size if giver != device else 0
        assert (built == wanted[device]).all()
    assert received.tolist() == min_received_elements(source, target, shape, mesh=mesh).tolist()


def box(grid: Grid, start: tuple[int, ...], stop: tuple[int, ...]) -> tuple[slice, ...]:
    """Where a tile is in its shard."""
    low = grid.locate(at(*start))[1].tolist()
    return tuple(slice(a, a + b - c) for a, b, c in zip(low, stop, start, strict=True))


CASES: list[dict[str, Any]] = json.loads(
    Path(__file__).parents[1].joinpath("conformance", "reshard_cases.json").read_text()
)["cases"]


# conformance 107
def test_a_device_need_receive_at_most_its_target_shard() -> None:
    shares = []
    for case in CASES:
        mesh, shape = Mesh.parse("x".join(map(str, case["mesh"]))), tuple(case["shape"])
        source, target = (
            load_sharding(validate_document(ShardingDocument, case[end], case["name"]), mesh)
            for end in ("source", "target")
        )
        wanted = count_wanted_elements(target, shape, mesh)
        least = wanted if source.partial else min_received_elements(source, target, shape, mesh=mesh)
        assert (4 * least.sum(), 4 * least.max()) == (case["min_total_bytes"], case["min_device_bytes"]), case["name"]
        assert (least <= wanted).all()
        shares.append(least.sum() / wanted.sum())
    assert len(shares) == 333
    assert max(shares) == 1


# what tiles are not of, part of the message
REFUSED = [
    (Sharding(((0,),), (1,)), "partial or has halos"),
    (Sharding(((0,),), halo_sizes=(1, 1)), "partial or has halos"),
    (Sharding(((2,),)), "mesh axis out of range"),
    (Sharding(((0,), (1,))), "more lists than dims"),
]


@pytest.mark.parametrize(("sharding", "message"), REFUSED)
def test_tiles_are_of_tensors_split_only(sharding: Sharding, message: str) -> None:
    mesh, split = Mesh.parse("2x3"), Sharding(((0,),))
    with pytest.raises(InvalidSharding, match=message):
        Grid.of(sharding, (6,), mesh)
    with pytest.raises(InvalidSharding, match=message):
        min_received_elements(split, sharding, (6,), mesh=mesh)


def test_a_tensor_without_dims_is_one_tile_and_one_without_elements_none() -> None:
    mesh = Mesh.parse("2x3")
    scalar, empty = Grid.of(Sharding(()), (), mesh), Grid.of(ROWS_FIRST, (0, 6), mesh)
    assert Tiles.intersect(scalar, scalar).elements.tolist() == [1]
    assert Tiles.intersect(empty, empty).elements.tolist() == []
    assert shard_indices(Sharding(()), (), mesh).shape == (6, 0)
    assert min_received_elements(Sharding(()), Sharding(()), (), mesh=mesh).tolist() == [0] * 6


def test_a_position_beyond_a_short_shard_is_refused() -> None:
    grid = Grid.of(Sharding(((0,),)), (7,), Mesh.parse("4"))
    assert grid.element(at(3), at(0)).tolist() == [6]
    with pytest.raises(InvalidSharding, match=r"place in the shard out of range \(got 1; wanted 0 or more, below 1"):
        grid.element(at(3), at(1))
