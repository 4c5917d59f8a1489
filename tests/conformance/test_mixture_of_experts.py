"""Mixture of experts (conformance 91): an expert dim, and a virtual axis where there are fewer experts than devices."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from planner import Mesh, Request, Sharding, plan, validate_plan
from planner.choose.hardware import load_profile
from planner.errors import InvalidMesh
from planner.ir.graph import Annotation, Graph, Input, Op, TensorType
from planner.ops import bind_op

EXPERTS, CAPACITY, D, FF = 4, 64, 32, 128


def experts_layer(annotations: tuple[Annotation, ...]) -> Graph:
    """Tokens by expert, through each expert's two matrices: [e, c, d] . [e, d, f] . [e, f, d]."""
    x, up, down = (TensorType(shape, "f32") for shape in ((EXPERTS, CAPACITY, D), (EXPERTS, D, FF), (EXPERTS, FF, D)))
    hidden = TensorType((EXPERTS, CAPACITY, FF), "f32")
    inputs = (Input("x", "input", "x", x), Input("up", "parameter", "up", up), Input("down", "parameter", "down", down))
    nodes = (("h", ("x", "up"), (x, up), hidden), ("y", ("h", "down"), (hidden, down), x))
    ops = tuple(
        Op(
            name,
            "matmul",
            values,
            (result,),
            bind_op("matmul", kinds, (result,), attrs=MappingProxyType({}), notation=None),
        )
        for name, values, kinds, result in nodes
    )
    return Graph("experts", inputs, ops, ("y",), annotations)


def test_a_factored_axis_keeps_the_devices_in_order() -> None:  # conformance 91
    mesh = Mesh.parse("dp=2,ep=8")
    virtual = mesh.split_axis("ep", EXPERTS)
    assert virtual.notation == "dp=2,ep.outer=4,ep.inner=2"
    assert np.array_equal(virtual.group_index((1, 2)), mesh.group_index((1,)))
    assert np.array_equal(virtual.groups((1, 2)), mesh.groups((1,)))


def test_experts_take_the_outer_part_and_their_own_work_the_inner_one() -> None:  # conformance 91
    mesh = Mesh.parse(f"ep={EXPERTS}*2")  # as --mesh takes it
    assert mesh == Mesh.parse("ep=8").split_axis("ep", EXPERTS)
    pins = tuple(
        Annotation(name, Sharding(((0,), (), (1,)) if name == "up" else ((0,), (1,)))) for name in ("up", "down")
    )
    found = validate_plan(plan(experts_layer(pins), mesh, load_profile("h100-sxm"), request=Request()))
    assert found.verdict is not None
    assert found.verdict.verdict == "equal"
    assert found.choice is not None
    assert all(found.choice.inputs[name].split_axes[0] == (0,) for name in ("up", "down"))


def test_without_the_virtual_axis_four_experts_cannot_be_split_over_eight_devices() -> None:  # conformance 91
    mesh = Mesh.parse("ep=8")
    found = plan(experts_layer(()), mesh, load_profile("h100-sxm"), request=Request())
    assert found.choice is not None
    assert all(option[0] == () for option in found.choice.options.values())


@pytest.mark.parametrize("outer", [0, 3, 16])
def test_an_axis_factors_only_into_whole_parts(outer: int) -> None:
    with pytest.raises(InvalidMesh, match="whole parts"):
        Mesh.parse("ep=8").split_axis("ep", outer)


def test_a_factored_axis_is_written_as_a_product() -> None:  # conformance 91
    assert Mesh.parse("dp=2,ep=4*?").notation == "dp=2,ep.outer=4,ep.inner=?"
    assert Mesh.parse("2x4*2").notation == "0=2,1.outer=4,1.inner=2"
    for text in ("ep=4*", "ep=*2", "ep=2*2*2", "ep=4*x"):
        with pytest.raises(InvalidMesh, match="mesh does not parse"):
            Mesh.parse(text)
