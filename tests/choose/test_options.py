"""The options of an op."""

from __future__ import annotations

from itertools import combinations, permutations, product

import pytest

from planner.choose.axis_units import AxisUnits
from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.choose.options import check_option_count, distinct_options, enumerate_options, list_layouts
from planner.errors import InvalidRequest
from planner.ir.binding import bind_rule
from planner.ir.graph import Op, TensorType
from planner.ir.indexing import LoopKind, Option, Rule
from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes, Reduction, Shape

# rule with a loop that passes other terms than those of sums; the same without
RULES = [
    ("... -> ...; commutes max 0", "... -> ..."),
    ("..., ... -> ...; linear 0, 1; commutes product 0+1", "..., ... -> ...; linear 0, 1"),
]
# rule with the shapes of its operands and of its result; those of other sizes come one after the other
SIZED: list[tuple[str, list[Shape], Shape]] = [
    ("b m k, b k n -> b m n", [(8, 4, 16), (8, 16, 2)], (8, 4, 2)),
    ("b m k, b k n -> b m n", [(64, 32, 16), (64, 16, 128)], (64, 32, 128)),
    ("b s (h d) -> b h s d", [(8, 3, 32)], (8, 4, 3, 8)),
    ("... -> ...; linear 0", [(12, 6)], (12, 6)),
    ("n (y+r), r -> n y", [(4, 18), (3,)], (4, 16)),
    ("n (y+r), r -> n y", [(4, 10), (3,)], (4, 8)),
]
MESHES = ["2", "2x2", "4x2", "2x1x2", "2x3", "4x4", "2x2x2"]


def every_option(rule: Rule, mesh: Mesh) -> set[Option]:
    """Lists of mesh axes for all loops, without an axis of one device or on two loops, that the rule allows."""
    axes = [axis for axis, size in enumerate(mesh.shape) if size > 1]
    lists: list[Axes] = [
        some for n in range(len(axes) + 1) for part in combinations(axes, n) for some in permutations(part)
    ]
    found = product(lists, repeat=len(rule.loops))
    apart = (option for option in found if len({a for some in option for a in some}) == sum(map(len, option)))
    return {option for option in apart if rule.is_allowed(option, mesh)}


@pytest.mark.parametrize("mesh", MESHES)
def test_every_option_is_listed_once_whichever_mesh_came_before(mesh: str) -> None:
    for text, operands, result in SIZED:
        rule = bind_rule(text, operands, [result])
        found = enumerate_options(rule, Mesh.parse(mesh))
        assert len(set(found)) == len(found)
        assert set(found) == every_option(rule, Mesh.parse(mesh))
        assert found[0] == ((),) * len(rule.loops)


def test_windows_over_alike_dims_of_different_sizes_are_read_with_halos_of_their_own() -> None:
    shapes, model = [(32,), (29,), (1,)], CostModel(Mesh.parse("3"), load_profile("cpu"))
    rule = bind_rule("(4*y+r), (4*y+r), r -> y", shapes, [(8,)])
    types = [TensorType(shape, "f32") for shape in (*shapes, (8,))]
    found = distinct_options(Op("n0", "unknown", ("a", "b", "c"), (types[3],), rule), tuple(types[:3]), model)
    for k, option in enumerate(found.options):
        read = [port.states[port.classes[k]] for port in found.operands]
        assert read == [rule.read_sharding(i, option, model.mesh) for i in range(3)]
    assert len({port.states for port in found.operands[:2]}) == 2


@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize("mesh", MESHES)
def test_as_many_are_counted_as_are_listed_and_no_more_are_refused(mesh: str, rank: int) -> None:
    listed = len(list_layouts(TensorType((64,) * rank, "f32"), Mesh.parse(mesh)))
    check_option_count("layouts", rank, AxisUnits.of(Mesh.parse(mesh)), where=mesh, most=listed)
    with pytest.raises(InvalidRequest, match=rf"too many layouts .*got {listed} "):
        check_option_count("layouts", rank, AxisUnits.of(Mesh.parse(mesh)), where=mesh, most=listed - 1)


@pytest.mark.parametrize(("rule", "plain"), RULES)
def test_options_pass_partial_sums_on_and_nothing_else(rule: str, plain: str) -> None:
    mesh, shapes = Mesh.parse("2x2"), [(8, 8)] * (plain.split("->")[0].count(",") + 1)
    bound, without = bind_rule(rule, shapes, [(8, 8)]), bind_rule(plain, shapes, [(8, 8)])
    assert [option[: len(without.loops)] for option in enumerate_options(bound, mesh)] == list(
        enumerate_options(without, mesh)
    )
    assert all(option[-1] == () for option in enumerate_options(bound, mesh))


@pytest.mark.parametrize("kind", [kind for kind in Reduction if kind is not Reduction.SUM])
def test_terms_come_in_and_leave_by_the_reduction_of_the_loop(kind: Reduction) -> None:
    rule = bind_rule(f"x, x -> x; commutes {kind} 0+1; linear 0+1", [(8,)] * 2, [(8,)])
    assert [loop.reduction for loop in rule.loops if loop.kind is LoopKind.LINEAR] == [Reduction.SUM, kind]
    option = ((0,), (), (1,))
    shown = f"[[0]] partial={kind}[1]"
    assert [str(rule.operand_sharding(i, option)) for i in (0, 1)] == [shown] * 2
    assert str(rule.result_sharding(0, option)) == shown
    assert not rule.is_allowed(((), (0,), (1,)), Mesh.parse("2x2"))
