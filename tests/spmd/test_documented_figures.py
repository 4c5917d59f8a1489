"""The documents' figures of the collectives, device by device, and the rules that their text states."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from planner.errors import InvalidProgram, RunFailed
from planner.run.spmd_executor import run_spmd
from planner.spmd import Cluster, LocalType, SpmdBuilder
from tests.testing.spmd_programs import answers, one_call, run_one

CORNERS = [[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]], [[13, 14], [15, 16]]]
TOP, BOTTOM = [[1, 2, 5, 6], [3, 4, 7, 8]], [[9, 10, 13, 14], [11, 12, 15, 16]]
ABC = [[[11, 12], [13, 14], [15, 16]], [[21, 22], [23, 24], [25, 26]], [[31, 32], [33, 34], [35, 36]]]
SHIFTED = [[1], [2], [3], [4], [5], [6], [7], [8]]


class Figure(NamedTuple):
    name: str
    mesh: str
    op: str
    attrs: dict[str, Any]
    given: list[Any]
    wanted: list[Any]


FIGURES = [
    # conformance 41
    Figure(
        "all_gather", "2x2", "all_gather", {"mesh_axes": [1], "gather_axis": 1}, CORNERS, [TOP, TOP, BOTTOM, BOTTOM]
    ),
    # conformance 44
    Figure("all_slice", "2x2", "all_slice", {"mesh_axes": [1], "slice_axis": 1}, [TOP, TOP, BOTTOM, BOTTOM], CORNERS),
    Figure(
        "all_slice of inputs that differ",
        "2",
        "all_slice",
        {"mesh_axes": [0], "slice_axis": 0},
        [[1, 2], [3, 4]],
        [[1], [4]],
    ),
    # conformance 44, conformance 3.2: the offset is the index in the group, i3 * size of axis 1 + i1, times the block
    Figure(
        "all_slice over axes out of order",
        "1x2x1x3",
        "all_slice",
        {"mesh_axes": [3, 1], "slice_axis": 0},
        [[10, 11, 12, 13, 14, 15]] * 6,
        [[10], [12], [14], [11], [13], [15]],
    ),
    # conformance 46
    Figure(
        "all_to_all",
        "3",
        "all_to_all",
        {"mesh_axes": [0], "split_axis": 0, "concat_axis": 0},
        ABC,
        [
            [[11, 12], [21, 22], [31, 32]],
            [[13, 14], [23, 24], [33, 34]],
            [[15, 16], [25, 26], [35, 36]],
        ],
    ),
    # conformance 47
    Figure(
        "broadcast",
        "2x2",
        "broadcast",
        {"mesh_axes": [0], "root": [0]},
        [[1, 2], [3, 4], [0, 0], [0, 0]],
        [[1, 2], [3, 4], [1, 2], [3, 4]],
    ),
    # conformance 48
    Figure(
        "gather",
        "2x2",
        "gather",
        {"mesh_axes": [1], "gather_axis": 1, "root": [1]},
        CORNERS,
        [None, TOP, None, BOTTOM],
    ),
    # conformance 50: the figure shows sums (erratum 6)
    Figure(
        "reduce_scatter",
        "2x2",
        "reduce_scatter",
        {"mesh_axes": [1], "scatter_axis": 0},
        CORNERS,
        [[[6, 8]], [[10, 12]], [[22, 24]], [[26, 28]]],
    ),
    # conformance 52
    Figure(
        "scatter",
        "2x2",
        "scatter",
        {"mesh_axes": [0], "scatter_axis": 0, "root": [1]},
        [[[0, 0], [0, 0]], [[0, 0], [0, 0]], CORNERS[0], CORNERS[1]],
        [[[1, 2]], [[5, 6]], [[3, 4]], [[7, 8]]],
    ),
    # conformance 54
    Figure(
        "shift, rotating",
        "2x4",
        "shift",
        {"mesh_axes": [1], "shift_axis": 1, "offset": 2, "rotate": True},
        SHIFTED,
        [[3], [4], [1], [2], [7], [8], [5], [6]],
    ),
    Figure(
        "shift, rotating by more than the axis",
        "2x4",
        "shift",
        {"mesh_axes": [1], "shift_axis": 1, "offset": -5, "rotate": True},
        SHIFTED,
        [[2], [3], [4], [1], [6], [7], [8], [5]],
    ),
    Figure(
        "shift to the next (erratum 12: left or right)",
        "2x4",
        "shift",
        {"mesh_axes": [1], "shift_axis": 1, "offset": 1},
        SHIFTED,
        [None, [1], [2], [3], None, [5], [6], [7]],
    ),
    Figure(
        "shift along one of two axes",
        "2x4",
        "shift",
        {"mesh_axes": [1, 0], "shift_axis": 0, "offset": -1},
        SHIFTED,
        [[5], [6], [7], [8], None, None, None, None],
    ),
    # conformance 57
    Figure(
        "collective_permute along an axis",
        "3",
        "collective_permute",
        {"mesh_axes": [0], "pairs": [(0, 1), (1, 2)]},
        [[1], [2], [3]],
        [None, [1], [2]],
    ),
]


@pytest.mark.parametrize("figure", FIGURES, ids=[figure.name for figure in FIGURES])
def test_a_figure_comes_out_as_printed(figure: Figure) -> None:
    assert answers(run_one(figure.mesh, figure.op, figure.given, **figure.attrs)) == figure.wanted


def test_all_reduce_converts_to_the_accumulation_type_first() -> None:
    """conformance 43"""
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    run = run_one("2x3", "all_reduce", [base + d for d in range(6)], "f32", "f64", mesh_axes=[1, 0], reduction="max")
    assert all(held.array.dtype == np.float64 and (held.array == base + 5).all() for held in run.outputs[0])
    widened = run_one("2", "all_reduce", [[100], [100]], "i8", "i32", mesh_axes=[0])
    assert answers(widened) == [[200], [200]]  # in i8 this is -56
    assert answers(run_one("2", "all_reduce", [[100], [100]], mesh_axes=[0])) == [[-56], [-56]]


def test_reduce_leaves_its_result_on_the_root() -> None:
    """conformance 49: axes [1, 0] and root [2, 3] need a mesh of at least 4x3"""
    given = [np.full((3, 4), device, np.float32) for device in range(12)]
    run = run_one("4x3", "reduce", given, "f32", "f64", mesh_axes=[1, 0], reduction="max", root=[2, 3])
    held = run.outputs[0]
    assert [device for device in range(12) if held[device].undefined is None] == [11]
    assert held[11].array.dtype == np.float64
    assert (held[11].array == 11).all()
    assert all(np.isnan(held[device].array).all() for device in range(11))


def test_a_message_goes_from_the_sender_to_the_receiver() -> None:
    """conformance 53: on a mesh of 3, send to [1], recv from [0]"""
    for source in ([0], None):
        build = SpmdBuilder({"m": Cluster.parse("3")}, "m")
        x = build.argument("x", LocalType((1,), "i8"))
        build.call("send", x, mesh_axes=[0], destination=[1], only=[[0]])
        got = build.call("recv", x, mesh_axes=[0], source=source, only=[[1]])
        run = run_spmd(build.program(got), {"x": [np.array([n], np.int8) for n in (7, 8, 9)]})
        assert answers(run) == [None, [7], None]
        assert run.received.tolist() == [[0, 0, 0], [0, 1, 0]]


def test_update_halo_brings_the_neighbours_rows() -> None:
    """conformance 55: 8x16 on 4 devices, halo [1, 2]: device 1 gets row 1 and rows 4, 5 around its rows 2, 3"""
    rows = np.arange(8 * 16, dtype=np.int16).reshape(8, 16)
    attrs: dict[str, Any] = {"split_axes": [[0]], "source_halo_sizes": [0, 0], "destination_halo_sizes": [1, 2]}
    run = run_one("4", "update_halo", [rows[2 * d : 2 * d + 2] for d in range(4)], "i16", **attrs)
    halves = run.outputs[0]
    assert (halves[1].array == rows[1:6]).all()
    assert halves[1].undefined is None
    first, last = halves[0].mask(np), halves[3].mask(np)
    assert (first[0].all(), first[1:].any()) == (True, False)
    assert (last[3:].all(), last[:3].any()) == (True, False)


def test_update_halo_between_halos_of_different_sizes() -> None:
    """conformance 55"""
    whole = np.arange(12)
    old = [np.concatenate([[-1], whole[3 * d : 3 * d + 3], [-1, -1]]).astype(np.int64) for d in range(4)]
    attrs: dict[str, Any] = {"split_axes": [[0]], "source_halo_sizes": [1, 2], "destination_halo_sizes": [2, 1]}
    run = run_one("4", "update_halo", old, "i64", **attrs)
    assert run.outputs[0][2].array.tolist() == [4, 5, 6, 7, 8, 9]
    assert run.received.tolist() == [[8, 24, 24, 16]]


def test_a_destination_keeps_its_outer_halo() -> None:
    """conformance 55: what no neighbour writes stays as the destination was made"""
    build = SpmdBuilder({"m": Cluster.parse("2x2")}, "m")
    x = build.argument("x", LocalType((2, 2), "i32"))
    into = build.argument("into", LocalType((4, 3), "i32"))
    attrs: dict[str, Any] = {
        "split_axes": [[0], [1]],
        "source_halo_sizes": [0, 0, 0, 0],
        "destination_halo_sizes": [1, 1, 1, 0],
    }
    program = build.program(build.call("update_halo", x, into, **attrs))
    whole = np.arange(16, dtype=np.int32).reshape(4, 4)
    cores = [whole[2 * i : 2 * i + 2, 2 * j : 2 * j + 2] for i in range(2) for j in range(2)]
    run = run_spmd(program, {"x": cores, "into": [np.full((4, 3), -1, np.int32)] * 4})
    assert run.outputs[0][3].array.tolist() == [[5, 6, 7], [9, 10, 11], [13, 14, 15], [-1, -1, -1]]
    assert run.outputs[0][0].array.tolist() == [[-1, -1, -1], [-1, 0, 1], [-1, 4, 5], [-1, 8, 9]]


def test_a_stage_moves_from_one_mesh_to_the_other() -> None:
    """conformance 56: 4 elements, [[0]] on 2 + 2 devices"""
    build = SpmdBuilder({"mesh0": Cluster.parse("2"), "mesh1": Cluster.parse("2", first=2)})
    x = build.argument("x", LocalType((2,), "f32"), "mesh0")
    moved = build.call("collective_permute", x, mesh="mesh0", target="mesh1")
    both = build.call("all_gather", *moved, mesh="mesh1", mesh_axes=[0], gather_axis=0)
    program = build.program([*moved, *both])
    run = run_spmd(program, {"x": [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]})
    assert answers(run) == [[1, 2], [3, 4]]
    assert answers(run, 1) == [[1, 2, 3, 4]] * 2
    assert run.received.tolist() == [[0, 0, 8, 8], [0, 0, 8, 8]]
    build.call("all_gather", x, mesh="mesh1", mesh_axes=[0], gather_axis=0)
    with pytest.raises(InvalidProgram, match="is not on every device"):
        build.program([])


@pytest.mark.parametrize(("first", "received"), [(0, [0, 0]), (1, [0, 8, 8]), (2, [0, 0, 8, 8])])
def test_between_meshes_a_device_receives_nothing_from_itself(first: int, received: list[int]) -> None:
    """conformance 56"""
    build = SpmdBuilder({"mesh0": Cluster.parse("2"), "mesh1": Cluster.parse("1x2", first=first)})
    x = build.argument("x", LocalType((2,), "f32"), "mesh0")
    program = build.program(build.call("collective_permute", x, mesh="mesh0", target="mesh1"))
    run = run_spmd(program, {"x": [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]})
    assert answers(run) == [[1, 2], [3, 4]]
    assert run.received.tolist() == [received]


KINDS = {
    "sum": [9, 6],
    "average": [3, 2],
    "max": [6, 4],
    "min": [1, 1],
    "product": [12, 4],
    "bitwise_and": [0, 0],
    "bitwise_or": [7, 5],
    "bitwise_xor": [5, 4],
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_reduction_kind_reduces(kind: str) -> None:
    """conformance 24"""
    terms = [[1, 1], [2, 1], [6, 4]]
    assert answers(run_one("3", "all_reduce", terms, "i32", mesh_axes=[0], reduction=kind)) == [KINDS[kind]] * 3


def test_a_generic_reduction_takes_a_function() -> None:
    """conformance 25: in group order; refused where no function is named or given"""
    attrs: dict[str, Any] = {"mesh_axes": [0], "reduction": "generic", "reducer": "digits"}
    digits = {"digits": lambda a, b: 10 * a + b}
    assert answers(run_one("3", "all_reduce", [[1], [2], [3]], "i32", reducers=digits, **attrs)) == [[123]] * 3
    with pytest.raises(RunFailed, match="no function for a generic reduction"):
        run_one("3", "all_reduce", [[1], [2], [3]], "i32", **attrs)
    with pytest.raises(InvalidProgram, match="a generic reduction names no function"):
        one_call("3", "all_reduce", [[1], [2], [3]], "i32", mesh_axes=[0], reduction="generic")
