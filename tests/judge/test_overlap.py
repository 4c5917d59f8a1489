"""What overlap may gain: two streams in order, checked on schedules worked out by hand."""

from __future__ import annotations

from functools import partial

import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import load
from planner.judge.analysis import instruction_ps
from planner.judge.overlap import Overlap, overlap
from planner.model.program import Program
from tests.programs import Lines, mlp_2d
from tests.random_programs import random_program


def chained() -> Program:
    """Every line reads the one before: nothing overlaps."""
    p = Lines("2")
    value = p.run("exp", [p.argument((8, 8), (0,), ())], (8, 8), {"_1": (0,)})
    return p.program(p.run("exp", [p.move("all_gather", value, (0,), 0)], (8, 8)))


def apart() -> Program:
    """A weight is gathered while an op runs that does not need it."""
    p = Lines("2")
    busy = p.run("exp", [p.argument((8, 8))], (8, 8))
    weight = p.move("all_gather", p.argument((8, 8), (0,), ()), (0,), 0)
    return p.program(p.run("add", [busy, weight], (8, 8)))


def sliced() -> Program:
    """An all_slice is a copy on the device: it takes the stream of the ops."""
    p = Lines("2")
    busy = p.run("exp", [p.argument((8, 8))], (8, 8))
    return p.program(busy, p.move("all_slice", p.argument((8, 8)), (0,), 0))


# program, times, compute, communication, with overlap
WORKED = [
    (chained(), (5, 7, 3), 8, 7, 15),
    (apart(), (5, 7, 3), 8, 7, 10),
    (apart(), (9, 7, 3), 12, 7, 12),
    (sliced(), (5, 2), 7, 0, 7),
]


# conformance 84
@pytest.mark.parametrize(("program", "times", "compute", "communication", "together"), WORKED)
def test_two_streams_end_when_worked_out_by_hand(
    program: Program, times: tuple[int, ...], compute: int, communication: int, together: int
) -> None:
    found = overlap(program, times)
    assert found == Overlap(compute, communication, together)
    assert (found.serial_ps, found.gain_ps) == (sum(times), sum(times) - together)
    assert found.floor_ps == max(compute, communication)


# conformance 84
def test_the_2d_mlp_gains_what_its_constant_takes() -> None:
    """All of it is one chain but for the constant, which is made and cut while hidden is reduced."""
    program = mlp_2d()
    times = (10, 20, 5, 1, 1, 1, 20, 5)
    assert overlap(program, times) == Overlap(43, 20, 63 - 2)


# conformance 84
def test_the_estimate_lies_between_its_bounds() -> None:
    for seed in range(100):
        program = random_program(seed)
        price = partial(instruction_ps, CostModel(program.mesh, load("h100-sxm")))
        times = [price(done, program.values) for done in program.instructions]
        found = overlap(program, times)
        assert found.floor_ps <= found.overlapped_ps <= found.serial_ps == sum(times)
