"""The resharding note's figures (errata aside), device by device. Element (row r, column c) is 10 r + c, from 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.errors import InvalidSharding
from planner.ir.basis_moves import list_basis_moves
from planner.ir.collectives import Collective, Kind
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.reshard.all_pairs import AllPairsResharding
from planner.reshard.documented_path import fuse_collectives, order_collectives
from planner.run.spmd_executor import run_spmd
from planner.spmd import Cluster, LocalType, SpmdBuilder
from tests.testing.annotated_notation import sharding
from tests.testing.collective_chains import apply_chain, apply_collective
from tests.testing.layout_oracle import place, shard_array
from tests.testing.spmd_programs import answers, run_one

Array = Any
LINE = np.array([11, 12, 13, 21, 22, 23])


def table(rows: int, columns: int) -> Array:
    return 10 * np.arange(1, rows + 1)[:, None] + np.arange(1, columns + 1)


def read(text: str) -> list[list[int]]:
    """`11 12/21 22`: rows of what a device holds."""
    return [[int(number) for number in row.split()] for row in text.split("/")]


def printed(*devices: str, dims: int = 2) -> list[Any]:
    return [read(text) if dims == 2 else read(text)[0] for text in devices]


# name, mesh, tensor, source, what every device holds of it, target, what it holds then (devices in row-major order)
FIGURES: list[tuple[str, str, Array, str, list[Any], str, list[Any]]] = [
    # conformance 93
    (
        "two mesh axes swapped (erratum 1: to [[1,0]]; the tensor is a line)",
        "2x3",
        LINE,
        "[[0,1]]",
        printed("11", "12", "13", "21", "22", "23", dims=1),
        "[[1,0]]",
        printed("11", "13", "22", "12", "21", "23", dims=1),
    ),
    # conformance 94
    (
        "the outer axis gathered (erratum 2: by the block rule)",
        "2x3",
        LINE,
        "[[0,1]]",
        printed("11", "12", "13", "21", "22", "23", dims=1),
        "[[1]]",
        printed("11 12", "13 21", "22 23", "11 12", "13 21", "22 23", dims=1),
    ),
    # conformance 95
    (
        "the inner axis gathered (erratum 3: two rows)",
        "2x3",
        table(2, 6),
        "[[],[0,1]]",
        printed("11/21", "12/22", "13/23", "14/24", "15/25", "16/26"),
        "[[],[0]]",
        printed(*["11 12 13/21 22 23"] * 3, *["14 15 16/24 25 26"] * 3),
    ),
    # conformance 96
    (
        "the outer of two axes gathered",
        "2x2x2",
        table(4, 8),
        "[[0],[1,2]]",
        printed(
            *("11 12/21 22", "13 14/23 24", "15 16/25 26", "17 18/27 28"),
            *("31 32/41 42", "33 34/43 44", "35 36/45 46", "37 38/47 48"),
        ),
        "[[0],[2]]",
        printed(
            *["11 12 13 14/21 22 23 24", "15 16 17 18/25 26 27 28"] * 2,
            *["31 32 33 34/41 42 43 44", "35 36 37 38/45 46 47 48"] * 2,
        ),
    ),
    # conformance 97
    (
        "two dims' axes swapped on 2x3",
        "2x3",
        table(6, 6),
        "[[0],[1]]",
        printed(
            *("11 12/21 22/31 32", "13 14/23 24/33 34", "15 16/25 26/35 36"),
            *("41 42/51 52/61 62", "43 44/53 54/63 64", "45 46/55 56/65 66"),
        ),
        "[[1],[0]]",
        printed(
            *("11 12 13/21 22 23", "31 32 33/41 42 43", "51 52 53/61 62 63"),
            *("14 15 16/24 25 26", "34 35 36/44 45 46", "54 55 56/64 65 66"),
        ),
    ),
    # conformance 98
    (
        "two dims' axes swapped on 2x6 (erratum 3: 25 in row 2)",
        "2x6",
        table(6, 6),
        "[[0],[1]]",
        printed(
            *("11/21/31", "12/22/32", "13/23/33", "14/24/34", "15/25/35", "16/26/36"),
            *("41/51/61", "42/52/62", "43/53/63", "44/54/64", "45/55/65", "46/56/66"),
        ),
        "[[1],[0]]",
        printed(
            *("11 12 13", "21 22 23", "31 32 33", "41 42 43", "51 52 53", "61 62 63"),
            *("14 15 16", "24 25 26", "34 35 36", "44 45 46", "54 55 56", "64 65 66"),
        ),
    ),
    # conformance 104
    (
        "a mesh axis moved to another dim",
        "3",
        table(6, 6),
        "[[0],[]]",
        [table(6, 6)[2 * d : 2 * d + 2].tolist() for d in range(3)],
        "[[],[0]]",
        [table(6, 6)[:, 2 * d : 2 * d + 2].tolist() for d in range(3)],
    ),
    # conformance 105
    (
        "the outer of two axes moved (erratum 3: 13 14)",
        "2x2x2",
        table(4, 4),
        "[[0],[1,2]]",
        printed("11/21", "12/22", "13/23", "14/24", "31/41", "32/42", "33/43", "34/44"),
        "[[0,1],[2]]",
        printed("11 12", "13 14", "21 22", "23 24", "31 32", "33 34", "41 42", "43 44"),
    ),
]


def chains(mesh: Mesh, shape: tuple[int, ...], source: Sharding, target: Sharding) -> list[list[Collective]]:
    """The cheapest chain and the route of the documents."""
    found = AllPairsResharding.of(
        TensorType(shape, "i32"), [], CostModel(mesh, load_profile("h100-sxm")), (source, target)
    )
    return [found.shortest_path(source, target), fuse_collectives(order_collectives(source, target, shape, mesh=mesh))]


def held(tensor: Array, at: Sharding, mesh: Mesh) -> list[Array]:
    return shard_array(tensor, at, mesh, np.random.default_rng(0))


def shown(shards: list[Array]) -> list[Any]:
    return [shard.tolist() for shard in shards]


@pytest.mark.parametrize(("mesh", "tensor", "source", "before", "target", "after"), [row[1:] for row in FIGURES])
def test_a_figure_comes_out_as_printed(
    mesh: str, tensor: Array, source: str, before: list[Any], target: str, after: list[Any]
) -> None:
    devices, first, last = Mesh.parse(mesh), sharding(source), sharding(target)
    shards = held(tensor, first, devices)
    assert shown(shards) == before
    for chain in chains(devices, tensor.shape, first, last):
        got, at, _ = apply_chain(shards, chain, first, tensor.shape, devices)
        assert at == last
        assert shown(got) == after


def swapped(mesh: Mesh, shards: list[Array], axes: tuple[int, ...], order: tuple[int, ...]) -> tuple[list[Any], int]:
    """The note's swap as one collective: what the devices of one linear index under both orders exchange."""
    pairs = sorted({(place(mesh, device, order), place(mesh, device, axes)) for device in range(mesh.devices)})
    build = SpmdBuilder({"m": Cluster(mesh)}, "m")
    x = build.argument("x", LocalType(shards[0].shape, "i32"))
    program = build.program(build.call("collective_permute", x, mesh_axes=axes, pairs=pairs))
    run = run_spmd(program, {"x": [shard.astype(np.int32) for shard in shards]})
    return answers(run), int(run.received.sum()) // 4


# conformance 93
def test_a_swap_sends_a_block_to_the_device_of_its_linear_index() -> None:
    mesh = Mesh.parse("2x3")
    got, received = swapped(mesh, held(LINE, sharding("[[0,1]]"), mesh), (0, 1), (1, 0))
    assert got == printed("11", "13", "22", "12", "21", "23", dims=1)
    assert received == 4  # the first and the last device keep theirs


# conformance 94
def test_gathering_the_outer_axis_alone_is_refused_and_would_bring_other_elements() -> None:
    mesh, source = Mesh.parse("2x3"), sharding("[[0,1]]")
    with pytest.raises(InvalidSharding, match="not the tail"):
        Collective(Kind.ALL_GATHER, (0,), 0).target(source)
    shards = held(LINE, source, mesh)
    run = run_one("2x3", "all_gather", shards, "i32", mesh_axes=[0], gather_axis=0)
    assert answers(run) == printed(*["11 21", "12 22", "13 23"] * 2, dims=1)  # as the note prints it


# conformance 95
def test_the_inner_axis_is_gathered_by_one_all_gather() -> None:
    mesh, ends = Mesh.parse("2x3"), (sharding("[[],[0,1]]"), sharding("[[],[0]]"))
    assert chains(mesh, (2, 6), *ends) == [[Collective(Kind.ALL_GATHER, (1,), 1)]] * 2


# conformance 96
def test_two_steps_gather_the_outer_axis() -> None:
    mesh, source, middle, last = Mesh.parse("2x2x2"), *map(sharding, ("[[0],[1,2]]", "[[0],[2,1]]", "[[0],[2]]"))
    with pytest.raises(InvalidSharding, match="not the tail"):
        Collective(Kind.ALL_GATHER, (1,), 1).target(source)
    tensor, gather = table(4, 8), Collective(Kind.ALL_GATHER, (1,), 1)
    first, received = swapped(mesh, held(tensor, source, mesh), (1, 2), (2, 1))
    assert first == shown(held(tensor, middle, mesh))
    assert received == 16  # half of the devices send their four elements
    second, _ = apply_collective([np.array(each) for each in first], gather, middle, tensor.shape, mesh)
    assert gather.target(middle) == last
    assert shown(second) == FIGURES[3][6]


# conformance 104
def test_moving_an_axis_is_one_all_to_all() -> None:
    mesh, ends = Mesh.parse("3"), (sharding("[[0],[]]"), sharding("[[],[0]]"))
    assert chains(mesh, (6, 6), *ends) == [[Collective(Kind.ALL_TO_ALL, (0,), 1, 0)]] * 2
    rows = [table(6, 6)[2 * d : 2 * d + 2] for d in range(3)]
    run = run_one("3", "all_to_all", rows, "i32", mesh_axes=[0], split_axis=1, concat_axis=0)
    assert answers(run) == [table(6, 6)[:, 2 * d : 2 * d + 2].tolist() for d in range(3)]


# conformance 105
def test_a_direct_all_to_all_is_not_enough_and_two_steps_are() -> None:
    mesh, source = Mesh.parse("2x2x2"), sharding("[[0],[1,2]]")
    tensor, after = table(4, 4), FIGURES[7][6]
    shards = held(tensor, source, mesh)
    direct, _ = apply_collective(shards, Collective(Kind.ALL_TO_ALL, (2,), 0, 1), source, tensor.shape, mesh)
    assert {each.shape for each in shards} == {(2, 1)}
    assert {each.shape for each in direct} == {(1, 2)}
    assert shown(direct)[1] == [[21, 22]] != after[1]
    first, _ = swapped(mesh, shards, (1, 2), (2, 1))
    exchange = Collective(Kind.ALL_TO_ALL, (1,), 0, 1)
    second, _ = apply_collective(
        [np.array(each) for each in first], exchange, sharding("[[0],[2,1]]"), tensor.shape, mesh
    )
    assert exchange.target(sharding("[[0],[2,1]]")) == sharding("[[0,1],[2]]")
    assert shown(second) == after


# conformance 106
def test_the_basis_has_four_moves() -> None:
    mesh, shape = Mesh.parse("2x3"), (6, 6)
    steps = {
        ("[[],[]]", "[[1],[]]"): Collective(Kind.ALL_SLICE, (1,), 0),
        ("[[0],[]]", "[[],[]]"): Collective(Kind.ALL_GATHER, (0,), 0),
        ("[[0],[]]", "[[],[0]]"): Collective(Kind.ALL_TO_ALL, (0,), 1, 0),
    }
    for (source, target), move in steps.items():
        assert (move, sharding(target)) in list_basis_moves(sharding(source), shape, mesh)
        assert chains(mesh, shape, sharding(source), sharding(target)) == [[move]] * 2
        got, _ = apply_collective(held(table(6, 6), sharding(source), mesh), move, sharding(source), shape, mesh)
        assert shown(got) == shown(held(table(6, 6), sharding(target), mesh))
    got, _ = swapped(mesh, held(table(6, 6), sharding("[[0,1],[]]"), mesh), (0, 1), (1, 0))
    assert got == shown(held(table(6, 6), sharding("[[1,0],[]]"), mesh))


# mesh, shape, shardings on the way, mesh axes of the moves
EXAMPLES = [
    # conformance 108
    ("2x3", (6, 6), ["[[0],[1]]", "[[0],[]]", "[[],[0]]", "[[1],[0]]"], "all_gather 1, all_to_all 0, all_slice 1"),
    ("2x3", (7, 5), ["[[0],[1]]", "[[0],[]]", "[[],[0]]", "[[1],[0]]"], "all_gather 1, all_to_all 0, all_slice 1"),
    # conformance 109
    (
        "2x3x2x2",
        (8, 6, 6),
        ["[[3,2],[],[0,1]]", "[[3,2],[1],[0]]", "[[3],[1,2],[0]]", "[[],[1,2],[0]]", "[[0],[1,2],[]]"],
        "all_to_all 1, all_to_all 2, all_gather 3, all_to_all 0",
    ),
]


@pytest.mark.parametrize(("mesh", "shape", "states", "steps"), EXAMPLES)
def test_an_example_of_a_decomposition_runs_step_by_step(
    mesh: str, shape: tuple[int, ...], states: list[str], steps: str
) -> None:
    devices, tensor = Mesh.parse(mesh), np.arange(int(np.prod(shape))).reshape(shape)
    start = at = sharding(states[0])
    shards = held(tensor, start, devices)
    for step, state in zip(steps.split(", "), states[1:], strict=True):
        move, target = next(each for each in list_basis_moves(at, shape, devices) if each[1] == sharding(state))
        assert f"{move.kind} {','.join(map(str, move.axes))}" == step
        shards, _ = apply_collective(shards, move, at, shape, devices)
        assert shown(shards) == shown(held(tensor, target, devices))
        at = target
    for chain in chains(devices, shape, start, at):
        got, reached, _ = apply_chain(held(tensor, start, devices), chain, start, shape, devices)
        assert (reached, shown(got)) == (at, shown(shards))
