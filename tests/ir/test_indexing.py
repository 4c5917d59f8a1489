"""Rules bound to shapes: sizes, kinds of loops, contradictions, and the shardings that an option gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.choose.options import enumerate_options
from planner.errors import InvalidRule
from planner.ir.binding import bind_rule
from planner.ir.graph import TensorType
from planner.ir.indexing import LoopKind, Option, Rule
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from planner.ops import bind_op
from tests.testing.layout_oracle import shard_array, unshard_array

Shape = tuple[int, ...]
Shapes = list[Shape]
Loops = list[tuple[str, int, LoopKind]]
PARALLEL, REDUCTION, BLOCKED = LoopKind.PARALLEL, LoopKind.REDUCTION, LoopKind.BLOCKED

# rule, operand shapes, result shapes, loops as (name, size, kind)
BOUND = [
    (
        "b m k, k n -> b m n",
        [(2, 3, 4), (4, 5)],
        [(2, 3, 5)],
        [("b", 2, PARALLEL), ("m", 3, PARALLEL), ("k", 4, REDUCTION), ("n", 5, PARALLEL)],
    ),
    ("b (h d) -> b h d", [(2, 12)], [(2, 4, 3)], [("b", 2, PARALLEL), ("h", 4, PARALLEL), ("d", 3, BLOCKED)]),
    ("(h d) -> d h", [(12,)], [(4, 3)], [("h", 3, PARALLEL), ("d", 4, BLOCKED)]),
    ("{p|z|q} -> z; size p=3", [(10,)], [(5,)], [("p", 3, BLOCKED), ("z", 5, PARALLEL), ("q", 2, BLOCKED)]),
    ("x, y -> {x|y}", [(2,), (3,)], [(5,)], [("x", 2, BLOCKED), ("y", 3, BLOCKED)]),
    ("1 n, m n -> m n", [(1, 5), (3, 5)], [(3, 5)], [("n", 5, PARALLEL), ("m", 3, PARALLEL)]),
    (
        "..., ... -> ...",
        [(4, 1, 3), (5, 1)],
        [(4, 5, 3)],
        [("_2", 4, PARALLEL), ("_0", 3, PARALLEL), ("_1", 5, PARALLEL)],
    ),
    ("... k, n k -> ... n", [(7, 3), (2, 3)], [(7, 2)], [("_0", 7, PARALLEL), ("k", 3, REDUCTION), ("n", 2, PARALLEL)]),
    ("... k, n k -> ... n", [(3,), (2, 3)], [(2,)], [("k", 3, REDUCTION), ("n", 2, PARALLEL)]),
    ("m k -> m k; blocked k", [(4, 3)], [(4, 3)], [("m", 4, PARALLEL), ("k", 3, BLOCKED)]),
    ("m n -> m n", [(4, 1)], [(4, 1)], [("m", 4, PARALLEL), ("n", 1, BLOCKED)]),
    ("-> n", [], [(6,)], [("n", 6, PARALLEL)]),
    ("[] -> []", [()], [()], []),
]

# rule, operand shapes, result shapes, what, got
REFUSED = [
    ("a b -> a b", [(2, 3)], [(2, 4)], "shape contradicts the rule", "4"),
    ("a a2 -> a", [(2, 3), (1,)], [(2,)], "number of operands", "2"),
    ("a -> a, a", [(2,)], [(2,)], "number of results", "1"),
    ("a b -> a b", [(2,)], [(2, 3)], "rank", "(2,)"),
    ("... k -> ...", [()], [()], "rank", "()"),
    ("a k, k b -> a b", [(2, 3), (4, 5)], [(2, 5)], "shape contradicts the rule", "4"),
    ("1 n -> n", [(2, 3)], [(3,)], "shape contradicts the rule", "2"),
    ("(a b) -> a b", [(6,)], [(4, 2)], "shape contradicts the rule", "6"),
    ("(a b) -> a; size b=4", [(6,)], [(2,)], "shape contradicts the rule", "6"),
    ("(a b) c -> c", [(6, 2)], [(2,)], "loop size cannot be told", "(a b)"),
    ("{p|z|q} -> z", [(10,)], [(5,)], "loop size cannot be told", "{p|z|q}"),
    ("{p|z} -> z", [(3,)], [(5,)], "shape contradicts the rule", "3"),
    ("..., ... -> ...", [(3,), (4,)], [(3,)], "shape contradicts the rule", "4"),
    ("..., ... -> ...", [(3, 4), (4,)], [(4,)], "result's dims under '...'", "(4,)"),
    ("... -> ...", [(3,)], [(1,)], "result's dims under '...'", "(1,)"),
    ("... -> ...", [(1,)], [(3,)], "result's dims under '...'", "(3,)"),
    ("... -> ...", [()], [(3,)], "result's dims under '...'", "(3,)"),
]


@pytest.mark.parametrize(("text", "operands", "results", "loops"), BOUND)
def test_shapes_give_the_loops_their_sizes(text: str, operands: Shapes, results: Shapes, loops: Loops) -> None:
    rule = bind_rule(text, operands, results)
    assert [(loop.name, loop.size, loop.kind) for loop in rule.loops] == loops


@pytest.mark.parametrize(("text", "operands", "results", "what", "got"), REFUSED)
def test_shapes_that_contradict_a_rule_are_refused(
    text: str, operands: Shapes, results: Shapes, what: str, got: str
) -> None:
    with pytest.raises(InvalidRule) as caught:
        bind_rule(text, operands, results)
    error = caught.value
    assert error.where.startswith(f"rule {text!r}")
    assert what in error.what
    assert error.got == got
    assert error.wanted


def sharded(rule: Rule, **axes: tuple[int, ...]) -> tuple[list[Sharding], list[Sharding]]:
    """Operand and result shardings with axes on the loops named (`linear_0` for the first linear group)."""
    names = [loop.name.replace(" ", "_").replace("+", "_") for loop in rule.loops]
    assert set(axes) <= set(names), names
    option = tuple(axes.get(name, ()) for name in names)
    return (
        [rule.operand_sharding(i, option) for i in range(len(rule.operands))],
        [rule.result_sharding(i, option) for i in range(len(rule.results))],
    )


MATMUL = bind_rule("b m k, k n -> b m n; linear 0, 1", [(2, 4, 8), (8, 6)], [(2, 4, 6)])


def test_a_parallel_loop_splits_every_dim_it_indexes() -> None:
    operands, results = sharded(MATMUL, m=(1, 0))
    assert operands == [Sharding(((), (1, 0), ())), Sharding(((), ()))]
    assert results == [Sharding(((), (1, 0), ()))]


def test_a_reduction_loop_leaves_the_result_partial() -> None:
    operands, results = sharded(MATMUL, k=(0,), n=(1,))
    assert operands == [Sharding(((), (), (0,))), Sharding(((0,), (1,)))]
    assert results == [Sharding(((), (), (1,)), (0,), Reduction.SUM)]


def test_a_linear_loop_takes_and_leaves_partial_sums() -> None:
    operands, results = sharded(MATMUL, linear_0=(0,), linear_1=(1,))
    assert operands == [Sharding(((), (), ()), (0,)), Sharding(((), ()), (1,))]
    assert results == [Sharding(((), (), ()), (0, 1))]


def test_a_reduction_keeps_its_kind() -> None:
    _, results = sharded(bind_rule("m k -> m; max k", [(4, 4)], [(4,)]), k=(0,))
    assert results == [Sharding(((),), (0,), Reduction.MAX)]


def test_an_option_does_not_mix_reductions() -> None:
    rule = bind_rule("m k -> m; max k; linear 0", [(4, 4)], [(4,)])
    mesh = Mesh.parse("2x2")
    assert not rule.is_allowed(((), (0,), (1,)), mesh)
    assert rule.is_allowed(((), (0,), ()), mesh)
    with pytest.raises(InvalidRule, match=r"mixes reductions .*max.*sum"):
        rule.result_sharding(0, ((), (0,), (1,)))


def test_only_the_major_most_loop_of_a_compound_dim_is_split_and_only_evenly() -> None:
    rule = bind_rule("b (h d) -> b h d", [(2, 12)], [(2, 4, 3)])
    assert {option for option in enumerate_options(rule, Mesh.parse("2")) if option[1]} == {((), (0,), ())}
    assert not any(option[1] for option in enumerate_options(rule, Mesh.parse("3")))
    assert sharded(rule, h=(0,))[0] == [Sharding(((), (0,)))]


def test_a_loop_of_size_one_hides_nothing_behind_it() -> None:
    rule = bind_rule("(a b) -> a b", [(6,)], [(1, 6)])
    assert sharded(rule, b=(0,)) == ([Sharding(((0,),))], [Sharding(((), (0,)))])


def test_a_joined_dim_is_whole_where_its_loop_is_split() -> None:
    rule = bind_rule("{p|z} -> z", [(10,)], [(8,)])
    assert sharded(rule, z=(0,)) == ([Sharding(((),))], [Sharding(((0,),))])


def test_the_second_result_is_replicated_where_only_the_first_is_split() -> None:
    rule = bind_rule("{y|z} -> y, z", [(10,)], [(4,), (6,)])
    assert sharded(rule, y=(0,))[1] == [Sharding(((0,),)), Sharding(((),))]


def test_a_loop_made_from_nothing_leaves_no_partial_sums() -> None:
    rule = bind_rule("a -> a, n", [(4,)], [(4,), (6,)])
    assert sharded(rule, n=(0,), a=(1,))[1] == [Sharding(((1,),)), Sharding(((0,),), (1,))]


def test_options_put_every_axis_anywhere_once_in_every_order() -> None:
    rule = bind_rule("m n -> m n", [(8, 8)], [(8, 8)])
    found = list(enumerate_options(rule, Mesh.parse("2x2")))
    assert found[0] == ((), ())
    assert len(found) == len(set(found)) == 3 * 3 + 2
    assert {((0, 1), ()), ((1, 0), ()), ((1,), (0,))} <= set(found)


def test_options_do_not_split_a_loop_into_more_parts_than_it_has_elements() -> None:
    rule = bind_rule("m -> m", [(3,)], [(3,)])
    assert set(enumerate_options(rule, Mesh.parse("2x2"))) == {((),), ((0,),), ((1,),)}
    assert set(enumerate_options(rule, Mesh.parse("4"))) == {((),)}


def test_an_axis_of_one_device_is_never_used() -> None:
    rule = bind_rule("m -> m; linear 0", [(8,)], [(8,)])
    assert set(enumerate_options(rule, Mesh.parse("1x2"))) == {((), ()), ((1,), ()), ((), (1,))}


def factored(draw: st.DrawFn, count: int) -> Shape:
    """`count` elements as a shape."""
    dims = []
    while count > 1:
        dims.append(draw(st.sampled_from([n for n in range(2, count + 1) if count % n == 0])))
        count //= dims[-1]
    ones = draw(st.lists(st.integers(0, len(dims)), max_size=2))
    for place in ones:
        dims.insert(place, 1)
    return tuple(draw(st.permutations(dims)))


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[Shape, Shape]:
    count = draw(st.sampled_from([1, 6, 12, 16, 24, 36, 60, 64, 72, 96]))
    return factored(draw, count), factored(draw, count)


@given(reshapes())
def test_every_split_a_reshape_allows_is_a_local_reshape(shapes: tuple[Shape, Shape]) -> None:
    source, target = shapes
    rule = bind_op("reshape", (TensorType(source, "f32"),), (TensorType(target, "f32"),), attrs={}, notation=None)
    whole = np.arange(math.prod(source)).reshape(source)
    random = np.random.default_rng(0)
    for mesh in (Mesh.parse("2x2"), Mesh.parse("3x2"), Mesh.parse("2x4")):
        for option in enumerate_options(rule, mesh):
            held = shard_array(whole, rule.operand_sharding(0, option), mesh, random)
            wanted = rule.result_sharding(0, option)
            shapes_there = [each.shape for each in shard_array(whole.reshape(target), wanted, mesh, random)]
            made = [shard.reshape(shape) for shard, shape in zip(held, shapes_there, strict=True)]
            assert (unshard_array(made, wanted, target, mesh) == whole.reshape(target)).all()


# source, target, dims of the source that one axis of 2 may split
SPLIT_DIMS = [
    ((8, 6), (8, 6), {0, 1}),
    ((8, 6), (48,), {0}),
    ((48,), (8, 6), {0}),
    ((4, 8, 6), (32, 6), {0, 2}),
    ((1, 8), (8,), {1}),
    ((8, 1), (1, 8, 1), {0}),
    ((4, 6), (2, 12), {0}),
    ((16,), (2, 8), {0}),
    ((6, 4), (4, 6), set()),
    ((3, 4), (12,), set()),
]


@pytest.mark.parametrize(("source", "target", "dims"), SPLIT_DIMS)
def test_a_reshape_can_be_split_where_blocks_stay_blocks(source: Shape, target: Shape, dims: set[int]) -> None:
    rule = bind_op("reshape", (TensorType(source, "f32"),), (TensorType(target, "f32"),), attrs={}, notation=None)
    held = {rule.operand_sharding(0, option) for option in enumerate_options(rule, Mesh.parse("2"))}
    assert {dim for sharding in held for dim, axes in enumerate(sharding.split_axes) if axes} == dims


@pytest.mark.parametrize("option", [((), ()), ((), (), (), ())])
def test_an_option_with_another_number_of_loops_is_refused(option: Option) -> None:
    rule = bind_rule("m k, k n -> m n", [(4, 4), (4, 4)], [(4, 4)])
    for read in (rule.operand_sharding, rule.result_sharding):
        with pytest.raises(InvalidRule, match=f"got {len(option)}; wanted 3, one a loop"):
            read(0, option)
