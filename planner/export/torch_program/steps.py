"""A training step's program without its update: a forward and a backward function for torch's autograd.

`forward` takes the arguments and returns the results and what `backward` reads of what forward made. `backward` takes
the arguments that it reads and these, and returns the gradients, each as the optimizer's update reads it in the plan.
A parameter that is updated in another layout than it is read in is an argument as it is updated, and forward begins
with the collectives that follow the update in the plan (ZeRO's gathering of parameters, a step later). Forward ends
before the first op of the backward pass. Recomputed ops are the plan's own, in backward.

Of a step of several micro-batches, `step` is forward and backward of all of them, as the plan accumulates and reduces
gradients: it returns the sums of the results, and the gradients. `forward` returns the results' sums alone. Both begin
with the collectives that follow the update, which run once in a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.errors import InvalidGraph, InvalidSharding
from planner.export.torch_program.programs import ProgramWriter
from planner.ir.graph import Graph
from planner.ir.program import Instruction, OpCall, Program, follow_update, is_accumulation
from planner.ir.sharding import Reduction


@dataclass(frozen=True, slots=True)
class StepFunctions:
    """The module's text, its arguments' values by input, the inputs of those that backward reads, the results' values,
    and gradients by parameter. Nothing of forward is read by the backward of a step of several micro-batches."""

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
    held = {name: moves[0].operand for name, moves in updated.items() if moves}
    read = {name for done in listed for name in done.operands}
    arguments = {name: held.get(name, name) for name, _ in program.arguments if name in read or name in ends}
    writer, given = ProgramWriter(program), [*arguments.values()]
    if program.graph.microbatches > 1:
        kept, bodies = list[str](), _write_loops(writer, listed, given, ends=ends, gradients=[*gradients.values()])
    else:
        kept, bodies = _write_passes(writer, listed, arguments, ends=ends, gradients=[*gradients.values()])
    text = writer.module(bodies, given, dict(zip(results, ends, strict=True)))
    return StepFunctions(text, arguments, tuple(kept), tuple(ends), gradients)


def _write_passes(
    writer: ProgramWriter,
    listed: list[Instruction],
    arguments: Mapping[str, str],
    *,
    ends: list[str],
    gradients: list[str],
) -> tuple[list[str], list[str]]:
    """Return the inputs of the arguments that backward reads, and the texts of forward and backward."""
    cut = next((k for k, done in enumerate(listed) if _phase(done) == "backward"), len(listed))
    # The program may move a result after the backward pass has begun.
    early = {done.results for done in (*listed[:cut], *_needed(listed, ends))}
    before = [done for done in listed if done.results in early]
    after = [done for done in listed if done.results not in early]
    made = {name for done in before for name in done.results}
    read = {name for done in after for name in done.operands} | set(gradients)
    saved = [name for name in writer.program.values if name in made & read]
    kept = [name for name, value in arguments.items() if value in read]
    return kept, [
        writer.function("forward", [*arguments.values()], before, results=[*ends, *saved]),
        writer.function("backward", [*kept, *saved], after, results=gradients),
    ]


def _write_loops(
    writer: ProgramWriter, listed: list[Instruction], arguments: list[str], *, ends: list[str], gradients: list[str]
) -> list[str]:
    """Return the texts of forward and of the step, each with that of one of its micro-batches.

    Results, and gradients that do not depend on data, which have no accumulator, are added up as they are.
    """
    bodies = list[str]()
    for name, left in (("forward", ends), ("step", [*ends, *gradients])):
        needed = _needed(listed, left)
        in_loop = {done.results for done in writer.program.instructions[: writer.program.loop_end]}
        repeated = [done for done in needed if done.results in in_loop]
        first = needed[: needed.index(repeated[0])]
        once = [done for done in needed[len(first) :] if done.results not in in_loop]
        read = {*left, *(value for done in once for value in done.operands)}
        sums = [value for done in repeated if is_accumulation(done) for value in done.results]
        added = [value for done in repeated for value in done.results if value in read and value not in sums]
        _check_added(writer.program, added)
        loop = writer.loop(f"{name}_of_micro_batch", repeated, [*sums, *added], added=added)
        bodies += [loop.text, writer.function(name, arguments, [*first, loop, *once], results=left)]
    return bodies


def _check_added(program: Program, added: Sequence[str]) -> None:
    """Check that the terms of a value are those of a sum. Raises InvalidSharding, naming the value, where not."""
    for value in added:
        sharding = program.values[value].sharding
        if sharding.partial and sharding.reduction not in (Reduction.SUM, Reduction.AVERAGE):
            what, got = "a result of several micro-batches", str(sharding.reduction)
            raise InvalidSharding(what, where=f"value {value!r}", got=got, wanted="a sum or an average over devices")


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
