"""The values of a program that one pass of a micro-batch leaves for a later pass (`planner.ir.in_flight`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.ir.program import OpCall, Program, is_accumulation


@dataclass(frozen=True, slots=True)
class LeftValue:
    """A value of which more copies are held, in spans of instructions [start, stop).

    counts  how many, where most others wait for their backward pass, and where most wait for late ops
    """

    name: str
    counts: tuple[int, int]
    spans: tuple[tuple[int, int], ...]


def find_left_values(program: Program) -> Iterator[LeftValue]:
    """Yield the values that other micro-batches in flight hold, and those that are held between their passes."""
    flying, loop = program.graph.in_flight, program.loop_end
    waiting = flying.count_at_once(program.graph.microbatches)
    if not any(map(any, waiting)):
        return
    first, read, dependent = dict(program.first_held), _find_last_reads(program), find_dependent(program)
    arguments = {name for name, _ in program.arguments}
    # Data is given to the pass that reads it first.
    first |= {name: place for name, place in find_first_reads(program).items() if name in arguments}
    sums = {name for done in program.instructions if is_accumulation(done) for name in done.results}
    for name, last in read.items():
        made_in = 1 if name in flying.gradients else find_pass(program, first[name])
        read_in = find_pass(program, last)
        counts = sum(waiting[0][made_in:read_in]), sum(waiting[1][made_in:read_in])
        if not any(counts) or name in sums or (name in arguments and name not in dependent):
            continue
        if name in dependent:
            yield LeftValue(name, counts, ((0, loop),))
        else:
            ended = min(program.last_use[name] + 1, loop)
            yield LeftValue(name, (1, 1), ((0, first[name]), (ended, loop)))


def find_pass(program: Program, place: int) -> int:
    """Return the number of the pass of an instruction of the loop: forward, backward, or late ops."""
    return sum(place >= end for end in program.pass_ends)


def find_first_reads(program: Program) -> dict[str, int]:
    """Return the first instruction of the loop that reads each value."""
    listed = list(enumerate(program.instructions[: program.loop_end]))
    return {name: place for place, done in reversed(listed) for name in done.operands}


def _find_last_reads(program: Program) -> dict[str, int]:
    """Return the last instruction of the loop that reads each value."""
    return {
        name: place for place, done in enumerate(program.instructions[: program.loop_end]) for name in done.operands
    }


def find_dependent(program: Program) -> set[str]:
    """Return the data of micro-batches, and what the loop computes from them."""
    dependent = set(program.graph.data)
    for done in program.instructions[: program.loop_end]:
        if not dependent.isdisjoint(done.operands) and not (isinstance(done, OpCall) and done.op.accumulates):
            dependent.update(done.results)
    return dependent
