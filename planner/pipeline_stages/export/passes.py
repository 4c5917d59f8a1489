"""A stage's program as passes: what each reads of earlier ones, and what it leaves for later ones."""

from __future__ import annotations

from dataclasses import dataclass

from planner.ir.program import Instruction, Program, is_accumulation
from planner.run.pipeline import StageProgram


@dataclass(frozen=True, slots=True)
class StagePass:
    """The instructions of a pass, or of the update before and after what is exchanged in it.

    reads, makes  program values from before the pass, accumulators among them, and those that are read after it
    dropped       values of a micro-batch that no later pass reads
    received, sent  values of the graph that come from other stages before the pass, and go to others after it
    """

    kind: str
    instructions: tuple[Instruction, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    dropped: tuple[str, ...]
    received: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()


def list_passes(stage: StageProgram) -> list[StagePass]:
    """Return the passes of a stage that have instructions or exchange values, in order."""
    program, listed = stage.program, stage.program.instructions
    (forward, backward), loop = program.pass_ends, program.loop_end
    sent = {output_name(program, value) for value in stage.sent_sums}
    ready = max((place + 1 for place, done in enumerate(listed) if not sent.isdisjoint(done.results)), default=loop)
    ends = {"forward": forward, "backward": backward, "weight": loop, "first": max(ready, loop), "update": len(listed)}
    exchanged = {
        "forward": (stage.received, stage.sent),
        "backward": (stage.received_gradients, stage.sent_gradients),
        "first": ((), stage.sent_sums),
        "update": (stage.received_sums, ()),
    }
    passes, start = [], 0
    for kind, stop in ends.items():
        ends_meet = exchanged.get(kind, ((), ()))
        passes.append(_make_pass(program, kind, (start, stop), exchanged=ends_meet))
        start = stop
    return [each for each in passes if each.instructions or each.received or each.sent]


def output_name(program: Program, value: str) -> str:
    """Return the program's name of an output of the graph."""
    return program.outputs[program.graph.outputs.index(value)]


def _make_pass(
    program: Program, kind: str, span: tuple[int, int], *, exchanged: tuple[tuple[str, ...], tuple[str, ...]]
) -> StagePass:
    own, rest = program.instructions[slice(*span)], program.instructions[span[1] :]
    sums = {name for done in own if is_accumulation(done) for name in done.results}
    made = dict.fromkeys(name for done in own for name in done.results)
    used = dict.fromkeys(
        name for done in own for name in (*done.operands, *done.results) if name in sums or name not in made
    )
    later = {name for done in rest for name in done.operands} | set(program.outputs)
    is_looped = span[1] <= program.loop_end
    repeated = {name for done in program.instructions[span[1] : program.loop_end] for name in done.operands}
    kept = {*repeated, *program.carried, *sums}
    held = (*used, *made) if is_looped else ()
    return StagePass(
        kind,
        own,
        tuple(used),
        tuple(name for name in made if name in later or name in sums),
        tuple(name for name in held if name not in kept and (name in later or name not in made)),
        *exchanged,
    )
