"""Programs with a fault: no verdict says that one equals its graph."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from planner.errors import ShardplanError
from planner.ir.collectives import Collective, Kind
from planner.ir.mesh import Mesh
from planner.ir.program import Instruction, OpCall, Program, Reshard
from planner.run.validate import validate
from tests.testing.graphs import Sketch, small_transformer
from tests.testing.sample_programs import question_of, random_program, three_inputs


def verdict_of(program: Program) -> str:
    """The verdict, or `refused` for a designed error."""
    try:
        return validate(program, shrinking="none").verdict
    except ShardplanError:
        return "refused"


def between(program: Program) -> list[int]:
    """Moves whose result some op reads: where a fault must be noticed."""
    read = {name for done in program.instructions if isinstance(done, OpCall) for name in done.operands}
    return [i for i, done in enumerate(program.instructions) if isinstance(done, Reshard) and done.result in read]


def changed(program: Program, place: int, instruction: Instruction) -> Program:
    instructions = list(program.instructions)
    instructions[place] = instruction
    return replace(program, instructions=tuple(instructions))


def without(program: Program, place: int) -> Program:
    """The program without a move: who read its result reads its operand."""
    move = program.instructions[place]
    assert isinstance(move, Reshard)

    def renamed(name: str) -> str:
        return move.operand if name == move.result else name

    kept = [
        replace(done, operands=tuple(map(renamed, done.operands)))
        if isinstance(done, OpCall)
        else replace(done, operand=renamed(done.operand))
        for i, done in enumerate(program.instructions)
        if i != place
    ]
    return replace(program, instructions=tuple(kept), outputs=tuple(map(renamed, program.outputs)))


@pytest.mark.parametrize("mesh", ["2x2", "3x2"])
def test_a_move_left_out_is_noticed(mesh: str) -> None:
    program = random_program(question_of(small_transformer(Mesh.parse(mesh)), mesh), 1)
    places = between(program)
    assert len(places) > 10
    assert {verdict_of(without(program, place)) for place in places} <= {"refused", "different"}


@pytest.mark.parametrize("mesh", ["2x2", "3x2"])
def test_a_move_over_other_dims_is_noticed(mesh: str) -> None:
    question, tried = question_of(small_transformer(Mesh.parse(mesh)), mesh), 0
    for program in (random_program(question, seed) for seed in range(4)):
        for place in between(program):
            move = program.instructions[place]
            assert isinstance(move, Reshard)
            dims = len(program.values[move.result].type.shape)
            dim = move.collective.dim
            if dim is not None and dims > 1:
                other = replace(move.collective, dim=(dim + 1) % dims)
                assert verdict_of(changed(program, place, replace(move, collective=other))) != "equal"
                tried += 1
    assert tried > 10


def test_two_moves_with_their_dims_swapped_are_noticed() -> None:
    s = Sketch()
    made = s.op("softmax", [s.input(8, 8)], (8, 8), dim=0)
    graph, tried = s.graph(s.op("matmul", [made, made], (8, 8))), 0
    for seed in range(20):
        program = random_program(question_of(graph, "2x2"), seed)
        places = [p for p in between(program) if program.instructions[p].collective.dim is not None]  # type: ignore[union-attr]
        for one, other in pairwise(places):
            left, right = program.instructions[one], program.instructions[other]
            assert isinstance(left, Reshard)
            assert isinstance(right, Reshard)
            if left.collective.dim != right.collective.dim:
                dims = (right.collective.dim, left.collective.dim)
                swapped = changed(program, one, replace(left, collective=replace(left.collective, dim=dims[0])))
                swapped = changed(swapped, other, replace(right, collective=replace(right.collective, dim=dims[1])))
                assert verdict_of(swapped) != "equal"
                tried += 1
    assert tried > 3


def test_a_reduction_left_out_is_noticed() -> None:
    program = three_inputs()
    assert verdict_of(program) == "equal"
    place = next(
        i
        for i, done in enumerate(program.instructions)
        if isinstance(done, Reshard) and done.collective.kind is Kind.ALL_REDUCE
    )
    assert verdict_of(without(program, place)) != "equal"
    done = program.instructions[place]
    assert isinstance(done, Reshard)
    sliced = replace(done, collective=Collective(Kind.ALL_SLICE, (0,), 0))
    assert verdict_of(changed(program, place, sliced)) != "equal"


def test_operands_in_the_wrong_order_are_noticed() -> None:
    s = Sketch()
    graph = s.graph(s.op("subtract", [s.input(8, 6), s.input(8, 6)], (8, 6)))
    program = random_program(question_of(graph, "2x2"), 0)
    place = next(i for i, done in enumerate(program.instructions) if isinstance(done, OpCall))
    run = program.instructions[place]
    assert isinstance(run, OpCall)
    assert verdict_of(changed(program, place, replace(run, operands=run.operands[::-1]))) == "different"
