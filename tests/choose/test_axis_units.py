"""Meshes of many axes: the order of axes, which axes are joined, and plans that hold on them."""

from __future__ import annotations

import pytest

from planner.choose.axis_units import AxisUnits
from planner.choose.options import list_layouts
from planner.ir.basis_moves import list_basis_moves
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding

UNITS = [
    ("2x4", ((0,), (1,))),
    ("2x1x4", ((0,), (2,))),
    ("2x2x2x2", ((0,), (1,), (2,), (3,))),
    ("8x2x4x2x2", ((0,), (1,), (2,), (3, 4))),
    ("2x2x2x2x2x2x2x2", ((0, 1), (2, 3), (4, 5), (6, 7))),
    ("1x1", ()),
]


@pytest.mark.parametrize(("mesh", "units"), UNITS)
def test_neighbours_that_join_the_fewest_devices_are_joined(mesh: str, units: object) -> None:
    assert AxisUnits.of(Mesh.parse(mesh)).units == units


def test_axes_on_one_link_are_joined_before_others() -> None:
    axes = Mesh.parse("2x2x2x2x4").axes
    linked = [
        type(axis)(axis.name, axis.size, "nvlink" if number > 2 else f"l{number}") for number, axis in enumerate(axes)
    ]
    assert AxisUnits.of(Mesh(tuple(linked))).units == ((0,), (1,), (2,), (3, 4))


def test_sets_of_units_are_in_the_order_of_the_mesh() -> None:
    assert AxisUnits(((0,), (1, 2)), any_order=True).combine() == [(0,), (1, 2), (0, 1, 2)]


def test_on_four_axes_those_of_a_dim_are_in_the_order_of_the_mesh() -> None:
    mesh = Mesh.parse("2x2x2x2")
    states = list_layouts(TensorType((16, 16), "f32"), mesh)
    assert len(states) == 3**4
    assert all(list(axes) == sorted(axes) for state in states for axes in state.split_axes)
    assert not AxisUnits.of(mesh).any_order


@pytest.mark.parametrize("mesh", ["2x2x2", "2x2x2x2"])
def test_moves_in_the_order_of_the_mesh_are_those_moves_that_keep_it(mesh: str) -> None:
    devices = Mesh.parse(mesh)
    for state in (Sharding(((), ())), Sharding(((0,), ())), Sharding(((0, 2), (1,))), Sharding(((), ()), (0, 1))):
        everything = list_basis_moves(state, (16, 16), devices)
        ordered = list_basis_moves(state, (16, 16), devices, in_mesh_order=True)
        assert set(ordered) == {pair for pair in everything if list(pair[0].axes) == sorted(pair[0].axes)}
