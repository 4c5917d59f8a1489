"""What the optimisation passes must leave alone: collectives with several readers, terms of other sums or axes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planner.ir.program import Program
from planner.rewrite.optimize import (
    decompose_all_reduce,
    reassociate_all_reduce,
    reassociate_reduce_scatter,
    sink_all_gather,
)
from tests.testing.programs import Lines, partial

Pass = Callable[[Program], Program]


def read_twice(kind: str, dim: int | None) -> Program:
    """A collective whose result an elementwise op reads, and the program returns."""
    p = Lines("2")
    moved = p.move(kind, p.argument((8,), (0,)) if kind == "all_gather" else partial(p), (0,), dim)
    return p.program(p.run("relu", [moved], (8,), {} if kind != "reduce_scatter" else {"_0": (0,)}), moved)


def reduced_over(axes: list[tuple[int, ...]], kinds: list[str], op: str) -> Program:
    """An op on two all_reduces."""
    p = Lines("2x2")
    terms = [p.move("all_reduce", partial(p, over, kind), over) for over, kind in zip(axes, kinds, strict=True)]
    return p.program(p.run(op, terms, (8,)))


# what, a program, a pass that finds nothing to do in it
LEFT: list[tuple[str, Program, Pass]] = [
    # conformance 78
    ("a gather that others read", read_twice("all_gather", 0), sink_all_gather),
    # conformance 79
    ("an all_reduce that others read", read_twice("all_reduce", None), decompose_all_reduce),
    # conformance 76
    ("other axes", reduced_over([(0,), (1,)], ["sum", "sum"], "add"), reassociate_all_reduce),
    ("more axes", reduced_over([(0,), (0, 1)], ["sum", "sum"], "add"), reassociate_all_reduce),
    ("other reductions", reduced_over([(0,), (0,)], ["sum", "max"], "add"), reassociate_all_reduce),
    ("other reductions", reduced_over([(0,), (0,)], ["max", "min"], "maximum"), reassociate_all_reduce),
    # conformance 77
    ("one use alone", read_twice("reduce_scatter", 0), reassociate_reduce_scatter),
]


@pytest.mark.parametrize(("what", "program", "found"), LEFT, ids=[what for what, _, _ in LEFT])
def test_a_pass_leaves_alone_what_it_may_not_change(what: str, program: Program, found: Pass) -> None:
    assert found(program) is program, what
