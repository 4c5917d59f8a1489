"""Measured times in place of the roofline: curves pass through the points, never fall, and are never zero."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.choose.cost import CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.choose.hardware.curves import Curve, Curves
from planner.errors import InvalidHardware
from planner.ir.mesh import Mesh
from tests.testing.small_graphs import product_and_relu

NUMBERS = st.floats(1e-9, 1e12)
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8)
NO_CURVES = [((), ()), ((1.0,), (1.0, 2.0)), ((2.0, 1.0), (1.0, 2.0)), ((1.0, 2.0), (2.0, 1.0)), ((0.0,), (1.0,))]


@given(POINTS, st.lists(st.floats(0, 1e15), min_size=2, max_size=6))
def test_more_work_never_takes_less(points: list[tuple[float, float]], works: list[float]) -> None:
    curve = Curve.of(points)
    times = [curve.at(work) for work in sorted(works)]
    assert all(before <= after * (1 + 1e-12) for before, after in pairwise(times))
    assert min(times) > 0


@given(POINTS)
def test_a_curve_lies_nowhere_above_what_was_measured(points: list[tuple[float, float]]) -> None:
    curve = Curve.of(points)
    assert all(curve.at(work) <= seconds * (1 + 1e-12) for work, seconds in points)


def test_a_curve_of_ascending_points_goes_through_them() -> None:
    curve = Curve.of([(10.0, 1.0), (20.0, 3.0), (40.0, 4.0)])
    assert [curve.at(work) for work in (0, 10, 15, 20, 30, 40, 80)] == [1, 1, 2, 3, 3.5, 4, 8]


@pytest.mark.parametrize(("work", "seconds"), NO_CURVES)
def test_an_invalid_curve_is_refused(work: tuple[float, ...], seconds: tuple[float, ...]) -> None:
    with pytest.raises(InvalidHardware, match="points of a curve"):
        Curve(work, seconds)


def test_of_flops_and_bytes_the_longer_counts_and_the_roofline_is_the_default() -> None:
    both = Curves(Curve((1.0,), (1.0,)), Curve((1.0,), (2.0,)))
    assert [both.seconds(*work) for work in ((1, 1), (5, 1), (1, 5))] == [2, 5, 10]
    plain = load_profile("cpu")
    own = replace(plain, curves={"matmul.f32": both, "relu": both})
    assert own.op_s("matmul", "f32", 5, moved=1) == 5
    assert own.op_s("relu", "bf16", 1, moved=1) == 2
    assert own.op_s("matmul", "f64", 5, moved=1) == plain.op_s("matmul", "f64", 5, moved=1)


def test_ops_are_priced_by_their_curves() -> None:
    curve = Curves(bytes=Curve((1.0,), (1e-9,)))
    graph, mesh = product_and_relu(), Mesh.parse("2")
    own = replace(load_profile("cpu"), curves={"matmul": curve})
    plain, measured = (formulate(graph, CostModel(mesh, each)) for each in (load_profile("cpu"), own))
    before, after = ([v.costs.tolist() for v in each.variables if v.options] for each in (plain, measured))
    assert before[0] != after[0]
    assert before[1] == after[1]
