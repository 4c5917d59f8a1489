"""Memory, repeated work and volume of the slides' two-dimensional MLP, with the slides' numbers."""

from __future__ import annotations

import numpy as np
import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.ir.accounting import count_live_bytes, count_received_bytes, count_value_bytes
from planner.ir.collectives import Kind
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.judge.analysis import Analysis
from planner.judge.redundancy import Redundancy, find_redundancies
from planner.rewrite.optimize import decompose_all_reduce
from planner.run.validate import validate
from tests.testing.programs import Lines, line, mlp_1d, mlp_2d

F32 = 4
# what, elements a device holds
HELD = {
    "i0": ("x", 8),
    "i0.1": ("x, gathered", 32),
    "i1": ("w1", 32),
    "i2": ("w2", 32),
    "n0": ("hidden, partial", 64),
    "n0.1": ("hidden", 64),
    "n2": ("maximum", 64),
    "n3": ("out, partial", 32),
    "n3.1": ("out", 8 // 2 * 2),
}


# conformance 81
@pytest.mark.parametrize("value", HELD)
def test_the_2d_mlp_holds_what_the_slides_say(value: str) -> None:
    what, elements = HELD[value]
    assert count_value_bytes(mlp_2d(), value).max() == elements * F32, what


# conformance 81
def test_memory_at_a_moment_is_what_is_live_then() -> None:
    """While `maximum` runs: x, both weights, hidden, the constant's slice, the result."""
    program = mlp_2d()
    place = [line(done) for done in program.instructions].index("maximum")
    assert count_live_bytes(program)[place].tolist() == [(8 + 32 + 32 + 64 + 64 + 64) * F32] * 8
    analysis = Analysis(program, CostModel(program.mesh, load_profile("h100-sxm")))
    assert validate(program, shrinking="none").counted_peak_bytes == analysis.peak_bytes


# conformance 82
def test_the_maximum_is_repeated_over_axis_0_and_nothing_is_after_decomposition() -> None:
    before = mlp_2d()
    assert find_redundancies(before) == [Redundancy("n2", (0,), 2, wasted_flops=32.0)]
    assert find_redundancies(decompose_all_reduce(before)) == []


def test_an_op_that_no_axis_splits_is_repeated_on_every_device() -> None:
    p = Lines("2x3")
    made = p.run("exp", [p.argument((6, 6))], (6, 6))
    turned = p.run("transpose", [made], (6, 6), permutation=[1, 0])
    split = p.run("relu", [p.move("all_slice", turned, (1,), 0)], (6, 6), {"_1": (1,)})
    flops = 4 * 36
    found = find_redundancies(p.program(split))
    assert found == [Redundancy("n0", (0, 1), 6, flops * (1 - 1 / 6)), Redundancy("n2", (0,), 2, 12 * (1 - 1 / 2))]


def test_terms_of_a_partial_sum_are_different_work() -> None:
    p = Lines("2")
    made = p.run("sum", [p.argument((4, 4), (0,), ())], (4,), {"d0": (0,)}, dims=[0])
    program = p.program(p.move("all_reduce", p.run("negate", [made], (4,), {"linear 0": (0,)}), (0,)))
    assert find_redundancies(program) == []


def formula(move: Reshard, program: Program) -> int:
    """Bytes a device receives, by the formulas of rings: n devices, B bytes held before."""
    n = program.mesh.group_size(move.collective.axes)
    held = int(count_value_bytes(program, move.operand).max())
    match move.collective.kind:
        case Kind.ALL_GATHER:
            return (n - 1) * held
        case Kind.REDUCE_SCATTER | Kind.ALL_TO_ALL:
            return held * (n - 1) // n
        case Kind.ALL_REDUCE:
            return 2 * held * (n - 1) // n
        case _:
            return 0


def mlp_wide() -> Program:
    p = Lines("2x2")
    x = p.move("all_to_all", p.argument((8, 16), (0, 1), ()), (1,), 1, 0)
    return p.program(
        p.move("all_gather", p.move("all_slice", p.run("relu", [x], (8, 16), {"_1": (0,), "_0": (1,)}), (), 0), (0,), 0)
    )


# conformance 83
@pytest.mark.parametrize("program", [mlp_1d(), mlp_2d(), decompose_all_reduce(mlp_2d()), mlp_wide()])
def test_the_volume_is_the_sum_over_collectives_by_the_formulas(program: Program) -> None:
    moves = [done for done in program.instructions if isinstance(done, Reshard)]
    total = sum(formula(move, program) for move in moves)
    assert count_received_bytes(program).sum(axis=0).tolist() == [total] * program.mesh.devices
    analysis = Analysis(program, CostModel(program.mesh, load_profile("h100-sxm")))
    assert analysis.collective_bytes == total
    assert validate(program, shrinking="none").counted_bytes == total


# conformance 83
def test_the_volume_of_the_2d_mlp() -> None:
    """Gather x over 4: 3 * 8; all_reduce 64 over 2: 64; reduce_scatter 32 over 4: 24 elements."""
    program = mlp_2d()
    elements = [24, 0, 64, 0, 0, 0, 0, 24]
    assert (count_received_bytes(program) == np.array(elements)[:, None] * F32).all()
    assert program.mesh == Mesh.parse("2x2x2")
