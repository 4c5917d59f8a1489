"""Meshes: devices, groups and their order, numbered as in the mesh dialect."""

from __future__ import annotations

import pytest

from planner.errors import InvalidMesh
from planner.ir.mesh import MAX_AXES, MAX_DEVICES, Mesh, MeshAxis
from tests.testing.layout_oracle import coordinates, place

SIZES = [("4x8x12", 384), ("4x8", 32), ("1", 1), ("dp=2,tp=4", 8), (" dp = 2 , tp = 4 ", 8)]
UNKNOWN = ["4x?", "?x4", "?x?", "a=4,b=?"]

# text, what, got
REFUSED = [
    ("", "does not parse", ""),
    ("-1", "does not parse", "-1"),
    ("2x", "does not parse", "2x"),
    ("2x-1", "does not parse", "2x-1"),
    ("2.5", "does not parse", "2.5"),
    ("dp=2,tp", "does not parse", "dp=2,tp"),
    ("dp=2,tp=", "does not parse", "dp=2,tp="),
    ("dp=two", "does not parse", "dp=two"),
    ("٣", "does not parse", "٣"),
    ("0", "size out of range", "0"),
    ("4x0", "size out of range", "0"),
    ("1048577", "size out of range", "1048577"),
    ("1024x2048", "too many devices", "0=1024,1=2048"),
    ("dp=2,dp=4", "name repeated", "['dp', 'dp']"),
    ("=2", "mesh axis name", ""),
    ("d p=2", "mesh axis name", "d p"),
    ("x".join(["1"] * 9), "mesh rank", "9"),
]


@pytest.mark.parametrize(("text", "devices"), SIZES)
def test_a_mesh_has_the_product_of_its_axes_as_devices(text: str, devices: int) -> None:
    assert Mesh.parse(text).devices == devices  # conformance 1


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_unknown_size_may_be_declared_but_not_counted(text: str) -> None:
    mesh = Mesh.parse(text)  # conformance 2
    assert Mesh.parse(mesh.notation) == mesh
    with pytest.raises(InvalidMesh, match="size is unknown"):
        _ = mesh.devices


@pytest.mark.parametrize(("text", "what", "got"), REFUSED)
def test_an_impossible_mesh_is_refused(text: str, what: str, got: str) -> None:
    with pytest.raises(InvalidMesh) as caught:  # conformance 3
        Mesh.parse(text)
    assert what in caught.value.what
    assert caught.value.got == got
    assert caught.value.wanted


def test_a_mesh_has_at_least_one_axis() -> None:
    with pytest.raises(InvalidMesh, match=rf"mesh rank \(got 0; wanted 1 to {MAX_AXES} axes"):
        Mesh(())  # conformance 3


def test_a_mesh_is_read_back_from_what_it_prints() -> None:
    for text, _ in SIZES:
        assert Mesh.parse(Mesh.parse(text).notation) == Mesh.parse(text)
    assert Mesh.parse("2x4").names == ("0", "1")
    assert Mesh((MeshAxis("all", MAX_DEVICES),)).devices == MAX_DEVICES


def test_devices_that_agree_outside_the_axes_form_a_group() -> None:
    mesh = Mesh.parse("2x3x4x5")  # conformance 6
    groups = mesh.groups([0, 1])
    assert groups.shape == (20, 6)
    of = {device: number for number, group in enumerate(groups.tolist()) for device in group}
    assert of[linear(mesh, 1, 0, 2, 3)] == of[linear(mesh, 1, 1, 2, 3)] != of[linear(mesh, 1, 0, 2, 4)]


def linear(mesh: Mesh, *at: int) -> int:
    index = 0
    for size, place_there in zip(mesh.shape, at, strict=True):
        index = index * size + place_there
    return index


def test_a_group_is_ordered_by_the_axes_as_listed() -> None:
    mesh = Mesh.parse("2x3x4x5")  # conformance 7
    group = next(g for g in mesh.groups([3, 1]).tolist() if linear(mesh, 1, 1, 2, 0) in g)
    first, second, third = (group.index(linear(mesh, 1, *rest)) for rest in ((1, 2, 0), (0, 2, 1), (2, 2, 0)))
    assert first < second
    assert first < third < second


def test_a_device_of_a_group_has_an_index_over_the_listed_axes() -> None:
    mesh = Mesh.parse("2x3x4")  # conformance 8
    for number, group in enumerate(mesh.groups([0, 2]).tolist()):
        assert group == [linear(mesh, i, number, j) for i in range(2) for j in range(4)]


@pytest.mark.parametrize("axes", [[], [0], [1, 0], [2, 0], [0, 1, 2], [2, 1, 0]])
def test_places_in_groups_agree_with_the_slow_count(axes: list[int]) -> None:
    mesh = Mesh.parse("2x3x4")
    index = mesh.group_index(axes)
    assert index.tolist() == [place(mesh, device, axes) for device in range(24)]
    for group in mesh.groups(axes):
        assert index[group].tolist() == list(range(mesh.group_size(axes)))
        outside = {tuple(c for a, c in enumerate(coordinates(mesh, d)) if a not in axes) for d in group.tolist()}
        assert len(outside) == 1


def test_a_group_over_no_axes_is_one_device() -> None:
    assert Mesh.parse("2x2").groups([]).tolist() == [[0], [1], [2], [3]]


@pytest.mark.parametrize("axes", [[-1], [2], [0, -2], [0, 5]])
def test_an_axis_of_a_group_is_out_of_range_and_never_wrapped(axes: list[int]) -> None:
    mesh = Mesh.parse("2x3")
    for asked in (mesh.group_size, mesh.group_index, mesh.groups):
        with pytest.raises(InvalidMesh, match=rf"mesh axis out of range \(got {axes[-1]}; wanted 0 to 1\)"):
            asked(axes)


def test_devices_are_numbered_row_major() -> None:
    mesh = Mesh.parse("10x20x30")  # conformance 13
    assert mesh.coordinates[663].tolist() == [1, 2, 3]
    assert mesh.group_index([0, 1, 2])[663] == 3 + 30 * 2 + 600 * 1 == 663
    assert Mesh.parse("2x3").coordinates[4].tolist() == [1, 1]  # conformance 14


def test_an_axis_is_found_by_name_or_place() -> None:
    mesh = Mesh.parse("dp=2,tp=4")
    assert [mesh.axis("tp"), mesh.axis(1), mesh.axis("dp")] == [1, 1, 0]
    for unknown in ("pp", 2, -1):
        with pytest.raises(InvalidMesh, match="wanted one of dp, tp"):
            mesh.axis(unknown)  # conformance 14
