"""A training step's program without its update: a forward and a backward function for torch's autograd.

`forward` takes the arguments and returns the results and what `backward` reads of what forward made. `backward` takes
the arguments that it reads and these, and returns the gradients, each as the optimizer's update reads it in the plan.
A parameter that is updated in another layout than it is read in is an argument as it is updated, and forward begins
with the collectives that follow the update in the plan (ZeRO's gathering of parameters, a step later). Forward ends
before the first op of the backward pass. Recomputed ops are the plan's own, in backward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.errors import InvalidGraph
from planner.export.torch_program.programs import ProgramWriter
from planner.ir.graph import Graph
from planner.ir.program import Instruction, OpCall, Program, Reshard


@dataclass(frozen=True, slots=True)
class StepFunctions:
    """The module's text, its arguments' values by input, the inputs of those that backward reads, the results' values,
    and gradients by parameter."""

    text: str
    arguments: Mapping[str, str]
    kept: tuple[str, ...]
    results: tuple[str, ...]
    gradients: Mapping[str, str]


def write_step(program: Program, results: Sequence[str], parameters: Sequence[str]) -> StepFunctions:
    """Return forward and backward of a program whose ids of results are given.

    `parameters` are ids of inputs; those that the program updates are trained. Raises InvalidGraph for a parameter
    whose update reads more than one gradient, and InvalidSharding for what PyTorch cannot express.
    """
    by_id = dict(zip(program.graph.outputs, program.outputs, strict=True))
    ends = [by_id[each] for each in results]
    gradients = find_gradients(program, parameters)
    updated = {name: follow_update(program, name) for name in gradients}
    first = [done for moves in updated.values() for done in moves]
    listed = _needed([*first, *program.instructions], [*ends, *gradients.values()])
    cut = next((k for k, done in enumerate(listed) if _phase(done) == "backward"), len(listed))
    # The program may move a result after the backward pass has begun.
    early = {done.results for done in (*listed[:cut], *_needed(listed, ends))}
    before = [done for done in listed if done.results in early]
    after = [done for done in listed if done.results not in early]
    made = {name for done in before for name in done.results}
    read = {name for done in after for name in done.operands} | set(gradients.values())
    saved = [name for name in program.values if name in made & read]
    held = {name: moves[0].operand for name, moves in updated.items() if moves}
    used = [name for name, _ in program.arguments if name in _read(listed) or name in ends]
    arguments = {name: held.get(name, name) for name in used}
    kept = [name for name, value in arguments.items() if value in read]
    writer = ProgramWriter(program)
    bodies = [
        writer.function("forward", [*arguments.values()], before, results=[*ends, *saved]),
        writer.function("backward", [*kept, *saved], after, results=list(gradients.values())),
    ]
    text = writer.module(bodies, [*arguments.values()], dict(zip(results, ends, strict=True)))
    return StepFunctions(text, arguments, tuple(kept), tuple(ends), gradients)


def find_gradients(program: Program, parameters: Sequence[str]) -> dict[str, str]:
    """Return the value that is the gradient in the update of each parameter that has one.

    Where an update reads its gradient in several layouts, it is the one in which the parameter is updated, if any.
    """
    graph, found = program.graph, dict[str, str]()
    inputs = {entry.id for entry in graph.inputs}
    for number, name in graph.state_outputs.items():
        if name not in parameters:
            continue
        gradients = _list_read(graph, graph.outputs[number]) - inputs
        if len(gradients) != 1:
            wanted = "one gradient a parameter: an optimizer without clipping"
            where = f"parameter {name!r}"
            raise InvalidGraph("gradients of an update", where=where, got=sorted(gradients), wanted=wanted)
        moves = follow_update(program, name)
        held = program.values[moves[0].operand if moves else name].sharding
        read = [
            operand
            for done in program.instructions
            if isinstance(done, OpCall) and done.op.phase == "update"
            for value, operand in zip(done.op.inputs, done.operands, strict=True)
            if value in gradients
        ]
        found[name] = next((each for each in read if program.values[each].sharding == held), read[0])
    return found


def _list_read(graph: Graph, value: str) -> set[str]:
    """Return what the ops of the update that make a value read of inputs and earlier ops."""
    made_by = {made: op for op in graph.ops if op.phase == "update" for made in op.values}
    waiting, seen = [value], {value}
    while waiting:
        if (op := made_by.get(waiting.pop())) is not None:
            waiting += [each for each in op.inputs if each not in seen]
            seen.update(op.inputs)
    return seen - made_by.keys()


def follow_update(program: Program, parameter: str) -> list[Reshard]:
    """Return the moves from the parameter as it is updated to the parameter as the next step reads it."""
    number = next(number for number, name in program.graph.state_outputs.items() if name == parameter)
    made_by = {result: done for done in program.instructions for result in done.results}
    value, moves = program.outputs[number], list[Reshard]()
    while isinstance(done := made_by.get(value), Reshard):
        moves.insert(0, replace(done, result=moves[0].operand if moves else parameter))
        value = done.operand
    return moves


def _needed(instructions: list[Instruction], ends: Sequence[str]) -> list[Instruction]:
    """Return the instructions on which values depend."""
    wanted, kept = set(ends), []
    for done in reversed(instructions):
        if wanted.intersection(done.results):
            wanted.update(done.operands)
            kept.append(done)
    return kept[::-1]


def _phase(done: Instruction) -> str | None:
    return done.op.phase if isinstance(done, OpCall) else None


def _read(instructions: Sequence[Instruction]) -> set[str]:
    return {name for done in instructions for name in done.operands}
