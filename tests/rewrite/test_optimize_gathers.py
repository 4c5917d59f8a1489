"""Gathers, slices and scatters: what the passes make of the documents' programs, and what they leave alone."""

from __future__ import annotations

import pytest

from planner.ir.accounting import count_value_bytes
from planner.rewrite.optimize import (
    cancel_gather_slice,
    decompose_all_reduce,
    fold_collectives,
    form_reduce_scatter,
    shrink_constants,
    sink_all_gather,
)
from tests.testing.programs import Lines, check, line, lines_of, mlp_2d, partial


# conformance 78
def test_an_all_gather_moves_down_through_ops_in_a_row() -> None:
    p = Lines("2x2")
    value = p.move("all_gather", p.argument((8, 12), (1,), (0,)), (0,), 1)
    for op in ("negate", "exp"):
        value = p.run(op, [value], (8, 12), {"_1": (1,)})
    value = p.run("transpose", [value], (12, 8), {"d0": (1,)}, permutation=[1, 0])
    program = p.program(value)
    check(program, sink_all_gather(program), ["negate", "exp", "transpose", "all_gather [0] dim 0"])


def test_an_all_gather_moves_down_where_the_other_operands_are_sliced_or_gathered_too() -> None:
    p = Lines("2")
    one, other = (p.move("all_gather", p.argument((8, 8), (0,), ()), (0,), 0) for _ in range(2))
    total = p.run("add", [p.run("add", [one, other], (8, 8)), p.argument((8, 8))], (8, 8))
    program = p.program(total)
    wanted = ["add", "all_slice [0] dim 0", "add", "all_gather [0] dim 0"]
    check(program, sink_all_gather(program), wanted)


def test_an_all_gather_of_a_loop_that_is_reduced_or_whole_stays() -> None:
    p = Lines("2")
    x, y = (p.move("all_gather", p.argument((8, 8), (), (0,)), (0,), 1) for _ in range(2))
    program = p.program(p.run("sum", [x], (8,), dims=[1]), p.run("softmax", [y], (8, 8), dim=1))
    assert sink_all_gather(program) is program


def test_an_all_gather_stays_above_an_op_that_uses_its_axes() -> None:
    p = Lines("2")
    x = p.move("all_gather", p.argument((8, 8), (0,), ()), (0,), 0)
    program = p.program(p.run("matmul", [x, p.argument((8, 8), (), (0,))], (8, 8), {"n": (0,)}))
    assert sink_all_gather(program) is program


# conformance 79 (erratum 9: appending axis 0 to [1,2] gives [1,2,0])
def test_the_all_reduce_of_the_2d_mlp_is_decomposed() -> None:
    program = mlp_2d()
    assert lines_of(program) == [
        "all_gather [1,2] dim 2",
        "matmul",
        "all_reduce [0]",
        "full",
        "all_slice [1,2] dim 2",
        "maximum",
        "matmul",
        "reduce_scatter [1,2] dim 2",
    ]
    after = decompose_all_reduce(program)
    wanted = [
        "all_gather [1,2] dim 2",
        "matmul",
        "full",
        "all_slice [1,2] dim 2",
        "reduce_scatter [0] dim 2",
        "all_slice [0] dim 2",
        "maximum",
        "all_gather [0] dim 2",
        "matmul",
        "reduce_scatter [1,2] dim 2",
    ]
    check(program, after, wanted)
    made = next(done.results[0] for done in after.instructions if line(done) == "maximum")
    assert str(after.values[made].sharding) == "[[],[],[1,2,0]]"
    assert count_value_bytes(after, made).max() == 2 * 4 * 4 * 4


def test_the_constant_of_the_2d_mlp_is_made_in_parts() -> None:
    before = mlp_2d()
    after = shrink_constants(fold_collectives(decompose_all_reduce(before)))
    made = ["all_gather [1,2] dim 2", "matmul", "reduce_scatter [0] dim 2", "full", "maximum"]
    check(before, after, [*made, "all_gather [0] dim 2", "matmul", "reduce_scatter [1,2] dim 2"])


# conformance 80
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_an_all_reduce_of_which_a_part_is_kept_is_a_reduce_scatter(dim: int) -> None:
    p = Lines("2")
    split: list[tuple[int, ...]] = [(), (), ()]
    made = p.run("matmul", [p.argument((2, 4, 8), (), (), (0,)), p.argument((8, 8), (0,), ())], (2, 4, 8), {"k": (0,)})
    assert str(p.values[made].sharding) == "[[],[],[]] partial=sum[0]"
    value = p.move("all_slice", p.move("all_reduce", made, (0,)), (0,), dim)
    split[dim] = (0,)
    assert p.values[value].sharding.split_axes == tuple(split)
    program = p.program(value)
    check(program, form_reduce_scatter(program), ["matmul", f"reduce_scatter [0] dim {dim}"])


# all_reduce over, all_slice over, what is left
SCATTERED = [
    ((0, 1), (1,), ["reduce_scatter [1] dim 0", "all_reduce [0]"]),
    ((0,), (0, 1), ["reduce_scatter [0] dim 0", "all_slice [1] dim 0"]),
    ((0,), (1, 0), ["all_slice [1] dim 0", "reduce_scatter [0] dim 0"]),
    ((0,), (1,), ["all_slice [1] dim 0", "all_reduce [0]"]),
    ((0, 1), (1, 0), ["reduce_scatter [1,0] dim 0"]),
]


@pytest.mark.parametrize(("reduced", "sliced", "left"), SCATTERED)
def test_axes_that_are_not_common_stay(reduced: tuple[int, ...], sliced: tuple[int, ...], left: list[str]) -> None:
    p = Lines("2x2")
    program = p.program(p.move("all_slice", p.move("all_reduce", partial(p, reduced), reduced), sliced, 0))
    check(program, form_reduce_scatter(program), ["sum", *left])


Step = tuple[str, tuple[int, ...], int]
# sharding of an 8x8 argument, two moves, what is left
CANCELLED: list[tuple[tuple[tuple[int, ...], ...], Step, Step, list[str]]] = [
    (((0, 1), ()), ("all_gather", (0, 1), 0), ("all_slice", (0, 1), 0), []),
    (((0, 1), ()), ("all_gather", (0, 1), 0), ("all_slice", (0,), 0), ["all_gather [1] dim 0"]),
    (((0,), ()), ("all_gather", (0,), 0), ("all_slice", (0, 1), 0), ["all_slice [1] dim 0"]),
    (((), ()), ("all_slice", (0, 1), 0), ("all_gather", (0, 1), 0), []),
    (((), ()), ("all_slice", (0, 1), 0), ("all_gather", (1,), 0), ["all_slice [0] dim 0"]),
    (((0,), ()), ("all_slice", (1,), 0), ("all_gather", (0, 1), 0), ["all_gather [0] dim 0"]),
    (((0,), ()), ("all_gather", (0,), 0), ("all_slice", (0,), 1), ["all_to_all [0] dim 0 -> 1"]),
    (((0,), ()), ("all_gather", (0,), 0), ("all_slice", (1,), 1), ["all_slice [1] dim 1", "all_gather [0] dim 0"]),
]


@pytest.mark.parametrize(("split", "first", "second", "left"), CANCELLED)
def test_gathers_and_slices_cancel(
    split: tuple[tuple[int, ...], ...], first: Step, second: Step, left: list[str]
) -> None:
    p = Lines("2x2")
    value = p.argument((8, 8), *split)
    for kind, axes, dim in (first, second):
        value = p.move(kind, value, axes, dim)
    program = p.program(value)
    check(program, cancel_gather_slice(program), left)
