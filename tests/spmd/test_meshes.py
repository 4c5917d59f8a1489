"""Meshes, device groups, indices and queries: what the documents print, and what must be refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.errors import InvalidMesh, InvalidProgram, ShardplanError
from planner.export.mlir import print_spmd
from planner.frontends.mlir import read_spmd
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.run.spmd_executor import run_spmd
from planner.spmd import INDEX, Cluster, LocalType, SpmdBuilder, declare_mesh, select_sub_cluster
from planner.spmd.folding import (
    linear_index,
    mesh_sizes,
    multi_index,
    shard_sizes,
)
from tests.testing.spmd_programs import answers


def members(mesh: str, axes: list[int]) -> list[list[tuple[int, ...]]]:
    """Groups as lists of coordinates."""
    shape = Mesh.parse(mesh)
    return [[multi_index(shape, int(device)) for device in group] for group in shape.groups(axes)]


def ask(mesh: str, op: str, **attrs: Any) -> list[list[int]]:
    """What a query answers: [device][result]."""
    build = SpmdBuilder({"m": Cluster.parse(mesh)}, "m")
    results = build.call(op, **attrs)
    run = run_spmd(build.program(results), {})
    return [[int(held[device].array) for held in run.outputs] for device in range(len(run.outputs[0]))]


def test_a_mesh_has_the_product_of_its_sizes() -> None:
    """conformance 1"""
    assert Mesh.parse("4x8x12").devices == 384
    assert declare_mesh(2, [4, 8]).devices == 32


@pytest.mark.parametrize(
    ("mesh", "sizes"),
    [
        (Mesh.parse("4x?"), (4, None)),
        (Mesh.parse("?x4"), (None, 4)),
        (Mesh.parse("?x?"), (None, None)),
        (declare_mesh(2, [4]), (4, None)),
        (declare_mesh(2, [0, 4]), (None, 4)),
        (declare_mesh(3, [0, 4]), (None, 4, None)),
    ],
)
def test_a_mesh_size_may_be_unknown(mesh: Mesh, sizes: tuple[int | None, ...]) -> None:
    """conformance 2"""
    assert mesh_sizes(mesh, ()) == sizes
    with pytest.raises(InvalidMesh, match="mesh axis size is unknown"):
        _ = mesh.devices


@pytest.mark.parametrize("text", ["", "-1", "0x2", "2x", "x"])
def test_a_mesh_that_does_not_parse_is_refused(text: str) -> None:
    """conformance 3"""
    with pytest.raises(InvalidMesh):
        Mesh.parse(text)


def test_a_mesh_has_at_least_one_axis() -> None:
    """conformance 3"""
    with pytest.raises(InvalidMesh, match="mesh rank"):
        Mesh(())
    with pytest.raises(InvalidMesh, match="more dim sizes than mesh axes"):
        declare_mesh(1, [2, 2])


def test_seven_elements_over_a_mesh_of_four_have_one_layout() -> None:
    """conformance 4"""
    mesh = Mesh.parse("4")
    assert [shard_sizes(mesh, Sharding(((0,),)), (7,), device=device) for device in range(4)] == [
        (2,),
        (2,),
        (2,),
        (1,),
    ]


def test_the_default_mesh_is_used_where_none_is_named() -> None:
    """conformance 5"""
    build = SpmdBuilder({"m": Cluster.parse("2"), "other": Cluster.parse("2", 2)}, "m")
    program = build.program(build.call("process_linear_index"))
    assert program.values["0"].mesh == "m"
    with pytest.raises(InvalidProgram, match="no mesh"):
        SpmdBuilder({"m": Cluster.parse("2")}).call("process_linear_index")


def test_devices_that_agree_outside_the_axes_form_a_group() -> None:
    """conformance 6: 2x3x4x5, axes [0, 1]: 20 groups of 6"""
    groups = members("2x3x4x5", [0, 1])
    assert (len(groups), {len(group) for group in groups}) == (20, {6})
    of = {device: place for place, group in enumerate(groups) for device in group}
    assert of[1, 0, 2, 3] == of[1, 1, 2, 3] != of[1, 0, 2, 4]


def test_a_group_is_ordered_by_the_axes_as_listed() -> None:
    """conformance 7: axes [3, 1]: (i, 1, k, 0) precedes (i, 0, k, 1) and (i, 2, k, 0)"""
    group = members("2x3x4x5", [3, 1])[0]
    assert group.index((0, 1, 0, 0)) < group.index((0, 0, 0, 1))
    assert group.index((0, 1, 0, 0)) < group.index((0, 2, 0, 0))
    assert group.index((0, 1, 0, 0)) == 1  # i3 * size1 + i1


def test_an_in_group_index_names_a_device_by_the_listed_axes() -> None:
    """conformance 8: axes [0, 2], device (i, j) of group g is (i, g, j)"""
    for g, group in enumerate(members("2x3x4", [0, 2])):
        for i in range(2):
            for j in range(4):
                assert group[i * 4 + j] == (i, g, j)


def test_mesh_shape_returns_the_listed_sizes() -> None:
    """conformance 12: 4x?x2 axes [2, 1] is 2 and unknown"""
    mesh = Mesh.parse("4x?x2")
    assert mesh_sizes(mesh, [2, 1]) == (2, None)
    assert mesh_sizes(mesh, []) == (4, None, 2)
    assert ask("4x3x2", "mesh_shape", axes=[2, 1])[5] == [2, 3]
    assert ask("4x3x2", "mesh_shape")[5] == [4, 3, 2]
    build = SpmdBuilder({"m": Cluster.parse("4x?x2")}, "m")
    program = build.program(build.call("mesh_shape", axes=[2, 1]))
    with pytest.raises(InvalidMesh, match="mesh axis size is unknown"):
        run_spmd(program, {})


def test_a_linear_index_is_row_major() -> None:
    """conformance 13: erratum 13 numbers devices the other way"""
    mesh = Mesh.parse("10x20x30")
    assert linear_index(mesh, (1, 2, 3)) == 663
    assert multi_index(mesh, 663) == (1, 2, 3)
    assert [each[0] for each in ask("2x3", "process_linear_index")] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("index", [(10, 0, 0), (0, 0, -1), (1, 2)])
def test_an_index_out_of_range_is_never_wrapped(index: tuple[int, ...]) -> None:
    """conformance 13, erratum 4"""
    with pytest.raises(InvalidMesh):
        linear_index(Mesh.parse("10x20x30"), index)


@pytest.mark.parametrize("axis", [-1, 3])
def test_an_axis_out_of_range_is_never_wrapped(axis: int) -> None:
    """conformance 12, conformance 14, erratum 4"""
    mesh = Mesh.parse("10x20x30")
    with pytest.raises(InvalidMesh, match=rf"mesh axis out of range \(got {axis}; wanted 0 to 2\)"):
        mesh_sizes(mesh, [0, axis])
    with pytest.raises(InvalidMesh, match=rf"mesh axis out of range \(got {axis}; wanted 0 to 2\)"):
        multi_index(mesh, 663, [axis])


def test_a_multi_index_is_along_the_axes_listed() -> None:
    """conformance 14: 2x3: linear 4 is (1, 1)"""
    assert ask("2x3", "process_multi_index")[4] == [1, 1]
    assert ask("2x3", "process_multi_index", axes=[1])[5] == [2]
    mesh = Mesh.parse("2x3x4")
    for device, answer in enumerate(ask("2x3x4", "process_multi_index")):
        assert linear_index(mesh, answer) == device  # linear index, delinearized by the shape


def test_the_rfc_queries_one_axis_of_the_functions_mesh() -> None:
    """conformance 15"""
    assert ask("2x4x8", "size", axis=1)[0] == [4]
    assert [each[0] for each in ask("2x3", "idx", axis=1)] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("op", ["idx", "size"])
@pytest.mark.parametrize("attrs", [{"axis": 2}, {"axis": -1}, {"axis": 0, "mesh": "m"}, {}])
def test_the_rfc_queries_refuse(op: str, attrs: dict[str, Any]) -> None:
    """conformance 15: the axis in range; the mesh is the function's"""
    with pytest.raises(InvalidProgram):
        SpmdBuilder({"m": Cluster.parse("2x4")}, "m").call(op, **attrs)
    with pytest.raises(InvalidProgram, match="the function has no mesh of its own"):
        SpmdBuilder({"m": Cluster.parse("2x4")}).call(op, axis=0)


def test_a_sub_cluster_holds_axes_fixed() -> None:
    """conformance 16: 4x8, axis 0 fixed is a mesh of 8"""
    whole = Cluster.parse("4x8")
    row = select_sub_cluster(whole, {0: 2})
    assert (row.mesh.shape, row.devices) == ((8,), tuple(range(16, 24)))
    assert select_sub_cluster(whole, {1: 7}).devices == (7, 15, 23, 31)
    for fixed in ({2: 0}, {0: 4}, {0: 0, 1: 0}, {0: -1}):
        with pytest.raises(InvalidMesh):
            select_sub_cluster(whole, fixed)
    with pytest.raises(InvalidMesh, match="unknown"):
        select_sub_cluster(Cluster.parse("?x2"), {0: 0})


def test_a_sub_cluster_runs_collectives_of_its_own() -> None:
    """conformance 16"""
    whole = Cluster.parse("2x2")
    build = SpmdBuilder({"m": whole, "row": select_sub_cluster(whole, {0: 1})}, "m")
    x = build.argument("x", LocalType((1,), "i32"))
    program = build.program(build.call("all_reduce", x, mesh="row", mesh_axes=[0]))
    run = run_spmd(program, {"x": [np.array([n], np.int32) for n in (1, 2, 3, 4)]})
    assert answers(run) == [[7], [7]]


def test_shard_shape_is_what_a_device_holds() -> None:
    """conformance 34"""
    split = Sharding(((0,), (1,)))
    assert ask("2x3", "shard_shape", shape=(7, 8), sharding=split, device=5)[0] == [3, 2]
    uneven = Sharding(((), (0,)), sharded_dims_offsets=((0, 2, 5, 9, 14),))
    assert ask("4", "shard_shape", shape=(4, 14), sharding=uneven, device=3)[0] == [4, 5]
    with_halo = Sharding(((0,),), halo_sizes=(1, 2))
    assert ask("4", "shard_shape", shape=(8, 16), sharding=with_halo, device=1)[0] == [5, 16]
    build = SpmdBuilder({"m": Cluster.parse("2x3")}, "m")
    device, rows = build.argument("device", INDEX), build.argument("rows", INDEX)
    program = build.program(build.call("shard_shape", rows, device, shape=(None, 8), sharding=split, device=None))
    run = run_spmd(program, {"device": [np.int64(d) for d in range(6)], "rows": [np.int64(7)] * 6})
    assert answers(run) == [4, 4, 4, 3, 3, 3]
    assert answers(run, 1) == [3, 3, 2, 3, 3, 2]
    for wrong in (
        {"device": 6},
        {"sharding": Sharding(((2,),))},
        {"sharding": Sharding(((), (), (0,)))},
        {"sharding": uneven},
    ):
        attrs: dict[str, Any] = {"shape": (7, 8), "sharding": split, "device": 0, **wrong}
        with pytest.raises(ShardplanError):
            SpmdBuilder({"m": Cluster.parse("2x3")}, "m").call("shard_shape", **attrs)


# conformance 16: 4x8, axis 0 fixed -> 8
def test_a_sub_cluster_is_declared_in_text_and_written_back() -> None:
    text = """mesh.cluster @m(rank = 2, dim_sizes = [4, 8])
    mesh.sub_cluster @row(cluster = @m, at = [2, ?])
    func.func @f(%x: tensor<4xf32> {shardplan.mesh = "row"}) -> tensor<4xf32> {
      %0 = mesh.all_reduce %x on @row mesh_axes = [0] : tensor<4xf32> -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    program = read_spmd(text)
    assert program.clusters["row"].devices == tuple(range(16, 24))
    run = run_spmd(program, {"x": [np.full(4, device, "f4") for device in range(16, 24)]})
    assert run.outputs[0][0].array.tolist() == [sum(range(16, 24))] * 4
    assert read_spmd(print_spmd(program)) == program
    for fields, words in (
        ("cluster = @m, at = [2]", "coordinates of a sub_cluster"),
        ("cluster = @n, at = [2, ?]", "undefined mesh"),
        ("cluster = @m, at = [4, ?]", "sub_cluster coordinate on axis 0"),
        ("cluster = @m, at = [1, 1]", "sub_cluster leaves no axis"),
        ("cluster = @m", "syntax"),
    ):
        with pytest.raises(ShardplanError, match=f"line 2 .*{words}"):
            read_spmd(text.replace("cluster = @m, at = [2, ?]", fields))
