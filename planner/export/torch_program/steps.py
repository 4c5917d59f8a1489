"""A training step's program without its update: a forward and a backward function for torch's autograd.

`forward` takes the arguments and returns the results and what `backward` reads of what forward made. `backward` takes
the arguments that it reads and these, and returns the gradients, each as the optimizer's update reads it in the plan.
Forward ends before the first op of the backward pass. Recomputed ops are the plan's own, in backward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.errors import InvalidGraph
from planner.export.torch_program.programs import ProgramWriter
from planner.ir.program import Instruction, OpCall, Program


@dataclass(frozen=True, slots=True)
class StepFunctions:
    """The module's text, its arguments, those that backward reads, the results' values, gradients by parameter."""

    text: str
    arguments: tuple[str, ...]
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
    listed = _needed([*program.instructions], [*ends, *gradients.values()])
    cut = next((k for k, done in enumerate(listed) if _phase(done) == "backward"), len(listed))
    before, after = listed[:cut], listed[cut:]
    made = {name for done in before for name in done.results}
    read = {name for done in after for name in done.operands} | set(gradients.values())
    saved = [name for name in program.values if name in made & read]
    arguments = [name for name, _ in program.arguments if name in _read(listed) or name in ends]
    kept = [name for name in arguments if name in read]
    writer = ProgramWriter(program)
    bodies = [
        writer.function("forward", arguments, before, results=[*ends, *saved]),
        writer.function("backward", [*kept, *saved], after, results=list(gradients.values())),
    ]
    text = writer.module(bodies, arguments, dict(zip(results, ends, strict=True)))
    return StepFunctions(text, tuple(arguments), tuple(kept), tuple(ends), gradients)


def find_gradients(program: Program, parameters: Sequence[str]) -> dict[str, str]:
    """Return the value that is the gradient in the update of each parameter that has one."""
    graph = program.graph
    inputs = {entry.id for entry in graph.inputs}
    before = {name for op in graph.ops if op.phase != "update" for name in op.values}
    found: dict[str, str] = {}
    for done in program.instructions:
        if not isinstance(done, OpCall) or done.op.phase != "update":
            continue
        updated = [name for name in done.op.inputs if name in parameters]
        terms = [value for name, value in zip(done.op.inputs, done.operands, strict=True) if name in before - inputs]
        if updated and terms:
            if len(updated) > 1 or len(terms) > 1 or updated[0] in found:
                wanted = "one gradient a parameter: an optimizer without clipping"
                raise InvalidGraph("gradients of an update", where=f"op {done.op.id!r}", got=terms, wanted=wanted)
            found[updated[0]] = terms[0]
    return found


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
