"""What every pass makes of the documents' programs, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planner.ir.program import Program
from planner.rewrite.optimize import (
    eliminate_common_collectives,
    eliminate_dead_code,
    fold_collectives,
    optimize,
    reassociate_all_reduce,
    reassociate_reduce_scatter,
    zero_price,
)
from planner.run.validate import validate
from tests.testing.programs import Lines, check, lines_of, mlp_1d, mlp_2d, partial

AXES = (0, 1)


# conformance 75
def test_two_all_reduces_in_a_row_are_one() -> None:
    p = Lines("2x2")
    program = p.program(p.move("all_reduce", p.move("all_reduce", partial(p, AXES), (1,)), (0,)))
    check(program, fold_collectives(program), ["sum", "all_reduce [0,1]"])


def test_an_all_reduce_with_other_readers_is_not_folded() -> None:
    p = Lines("2x2")
    first = p.move("all_reduce", partial(p, AXES), (0,))
    program = p.program(p.move("all_reduce", first, (1,)), p.move("all_reduce", first, (1,)))
    assert fold_collectives(program) is program


@pytest.mark.parametrize(
    ("moves", "folded"),
    [
        ([("all_slice", (0,)), ("all_slice", (1,))], "all_slice [0,1] dim 0"),
        ([("reduce_scatter", (1,)), ("reduce_scatter", (0,))], "reduce_scatter [1,0] dim 0"),
    ],
)
def test_slices_and_scatters_of_one_dim_fold_too(moves: list[tuple[str, tuple[int, ...]]], folded: str) -> None:
    p = Lines("2x2")
    value = partial(p, AXES) if moves[0][0] == "reduce_scatter" else p.argument((8,))
    for kind, axes in moves:
        value = p.move(kind, value, axes, 0)
    program = p.program(value)
    check(program, fold_collectives(program), [*lines_of(program)[:-2], folded])


def test_gathers_of_one_dim_fold_tail_first() -> None:
    p = Lines("2x2")
    program = p.program(p.move("all_gather", p.move("all_gather", p.argument((8,), (0, 1)), (1,), 0), (0,), 0))
    check(program, fold_collectives(program), ["all_gather [0,1] dim 0"])


# conformance 9
@pytest.mark.parametrize(("kind", "dim"), [("all_reduce", None), ("all_slice", 0), ("reduce_scatter", 0)])
def test_a_collective_over_no_axes_is_removed(kind: str, dim: int | None) -> None:
    p = Lines("2x2")
    program = p.program(p.run("relu", [p.move(kind, p.argument((8,)), (), dim)], (8,)))
    check(program, fold_collectives(program), ["relu"])


REASSOCIATED = [("sum", "add"), ("sum", "subtract"), ("max", "maximum"), ("min", "minimum"), ("product", "multiply")]
NOT_REASSOCIATED = [("sum", "maximum"), ("max", "add"), ("product", "add"), ("min", "maximum"), ("max", "minimum")]


def two_reduced(kind: str, op: str, move: str = "all_reduce", dim: int | None = None) -> Program:
    p = Lines("2x2")
    terms = [p.move(move, partial(p, (0,), kind), (0,), dim) for _ in range(2)]
    made = p.run(op, terms, (8,), {} if dim is None else {"_0": (0,)})
    return p.program(made, p.run("relu", [made], (8,), {} if dim is None else {"_0": (0,)}))


# conformance 76
@pytest.mark.parametrize(("kind", "op"), REASSOCIATED)
def test_one_all_reduce_behind_an_op_for_two_before_it(kind: str, op: str) -> None:
    """The result may be read several times: here by relu and as an output."""
    program = two_reduced(kind, op)
    check(program, reassociate_all_reduce(program), [kind, kind, op, "all_reduce [0]", "relu"])


@pytest.mark.parametrize(("kind", "op"), NOT_REASSOCIATED)
def test_an_op_of_another_kind_keeps_its_all_reduces(kind: str, op: str) -> None:
    program = two_reduced(kind, op)
    assert reassociate_all_reduce(program) is program


def test_each_all_reduce_must_have_one_use() -> None:
    p = Lines("2")
    one, other = (p.move("all_reduce", partial(p), (0,)) for _ in range(2))
    program = p.program(p.run("add", [one, other], (8,)), one)
    assert reassociate_all_reduce(program) is program


def test_all_reduces_over_different_axes_are_kept() -> None:
    p = Lines("2x2")
    one, other = (p.move("all_reduce", partial(p, (axis,)), (axis,)) for axis in AXES)
    program = p.program(p.run("add", [one, other], (8,)))
    assert reassociate_all_reduce(program) is program


# conformance 77
@pytest.mark.parametrize(("kind", "op"), REASSOCIATED)
def test_one_reduce_scatter_behind_an_op_for_two_before_it(kind: str, op: str) -> None:
    program = two_reduced(kind, op, "reduce_scatter", 0)
    check(program, reassociate_reduce_scatter(program), [kind, kind, op, "reduce_scatter [0] dim 0", "relu"])


# conformance 10
def test_a_collective_done_twice_is_done_once_and_one_that_nobody_reads_is_not() -> None:
    p = Lines("2")
    x = p.argument((8, 8), (0,), ())
    one, other = (p.move("all_gather", x, (0,), 0) for _ in range(2))
    p.move("all_gather", p.run("relu", [x], (8, 8), {"_1": (0,)}), (0,), 0)
    program = p.program(p.run("add", [one, other], (8, 8)))
    shared = eliminate_common_collectives(program)
    check(program, shared, ["all_gather [0] dim 0", "relu", "all_gather [0] dim 0", "add"])
    check(program, eliminate_dead_code(shared), ["all_gather [0] dim 0", "add"])


FIXED: list[Callable[[], Program]] = [mlp_1d, mlp_2d, lambda: two_reduced("max", "maximum")]


@pytest.mark.parametrize("program", [make() for make in FIXED])
def test_all_passes_together_end_where_none_changes_anything(program: Program) -> None:
    after = optimize(program, zero_price)
    assert optimize(after, zero_price) is after
    assert validate(after, shrinking="none").verdict == "equal"


def test_a_pass_that_would_break_the_memory_limit_is_left_out() -> None:
    """The gathered input, if shared, is held beside the wide values in between."""
    p = Lines("2")
    x = p.argument((8, 8), (0,), ())
    early = p.run("softmax", [p.move("all_gather", x, (0,), 0)], (8, 8), dim=0)
    wide = p.run("matmul", [x, p.argument((8, 64))], (8, 64), {"m": (0,)})
    narrow = p.run("softmax", [p.run("exp", [wide], (8, 64), {"_1": (0,)})], (8, 64), {"d0": (0,)}, dim=1)
    late = p.run("softmax", [p.move("all_gather", x, (0,), 0)], (8, 8), dim=0)
    program = p.program(p.run("sum", [narrow], (8,), {"d0": (0,)}, dims=[1]), early, late)
    peak = validate(program, shrinking="none").predicted_peak_bytes
    shared, kept = optimize(program, zero_price), optimize(program, zero_price, limit=peak)
    assert validate(shared, shrinking="none").predicted_peak_bytes > peak
    assert validate(kept, shrinking="none").predicted_peak_bytes <= peak
