"""A program as a Python module for torch.distributed: functions of ops, and the program of one process.

Every process imports the module after `torch.distributed.init_process_group`, with a rank for each device of the mesh.
`program` is what a process runs on its local tensors, with the collectives of torch.distributed where the plan has its
own; a value is deleted where the plan says that nobody reads it again. `local(*arrays)` cuts a process's parts from
whole arguments, `whole(*results)` joins results. Tensors are made on torch's default device.

Of a step of several micro-batches, `micro_batch` is the part that runs once for each, and `program` a loop over it and
the update. The arguments that DATA names have the micro-batches in a first dim of their own. What accumulates is added
to in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from planner.export.torch_program.boundary import BOUNDARY, write_argument, write_result
from planner.export.torch_program.collectives import ALL_GATHER, ALL_TO_ALL, LATER, write_collective, write_groups
from planner.export.torch_program.exchange import PIECES
from planner.export.torch_program.op_functions import AtenFunctions
from planner.ir.program import Instruction, OpCall, Program, Reshard, is_accumulation
from planner.ir.sharding import Axes

TOTAL = '''def total(before, term):
    """The sum of the micro-batches before, in place, and of this one."""
    return term.clone() if before is None else before.add_(term)'''
GIVEN = {"arrived(": LATER, "all_gather(": ALL_GATHER, "all_to_all(": ALL_TO_ALL, "piece_of(": PIECES, "total(": TOTAL}
HEAD = '''"""A program on {mesh}, as every process runs it: import after torch.distributed.init_process_group."""

import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

GRAPH = {graph!r}
AXES = {axes!r}
RANK = dist.get_rank()
if dist.get_world_size() != {devices}:
    raise RuntimeError(f"world size: got {{dist.get_world_size()}}, wanted {devices}: that of the plan")
aten = torch.ops.aten
{data}
# What each rank holds. Arguments: number of the term, what changes nothing, bounds by dim.
ARGUMENTS = {{
{arguments}}}
# Results: shape, how terms combine, and by rank number of the term and bounds by dim.
RESULTS = {{
{results}}}
'''
TRACE = """# SHARDPLAN_TRACE=1 counts what a run moves and holds.
if os.environ.get("SHARDPLAN_TRACE"):
    from planner.torch import ProgramTrace

    trace = ProgramTrace(GRAPH, os.environ["SHARDPLAN_TRACE"])
{followed}"""
GROUPS = '''def make_group(groups):
    """Make the process groups of some lists of ranks, and return this rank's."""
    made = [(ranks, dist.new_group(ranks)) for ranks in groups]
    return next(group for ranks, group in made if RANK in ranks)


{lines}
'''


def print_torch(program: Program) -> str:
    """Return the module. Raises InvalidSharding, naming the op, for what PyTorch cannot express."""
    writer = ProgramWriter(program)
    arguments = [name for name, _ in program.arguments]
    repeated, once = program.instructions[: program.loop_end], program.instructions[program.loop_end :]
    loop = writer.loop("micro_batch", repeated, program.carried) if program.graph.microbatches > 1 else None
    listed = program.instructions if loop is None else [loop, *once]
    body = writer.function("program", arguments, listed, results=program.outputs)
    results = dict(zip(program.graph.outputs, program.outputs, strict=True))
    return writer.module([*([loop.text] if loop else []), body], arguments, results)


class MicroBatchLoop(NamedTuple):
    """The function of a micro-batch, the lines that call it for each, and what they read and leave."""

    text: str
    lines: list[str]
    operands: tuple[str, ...]
    results: tuple[str, ...]


class ProgramWriter:
    """The text of a program's module: its head, and functions of some of its instructions."""

    def __init__(self, program: Program) -> None:
        self.program, self.groups = program, set[Axes]()
        self.functions = AtenFunctions(program.mesh)
        self.names = {value: f"n{number}" for number, value in enumerate(program.values)}

    def function(
        self,
        name: str,
        arguments: Sequence[str],
        instructions: Sequence[Instruction | MicroBatchLoop],
        *,
        results: Sequence[str],
    ) -> str:
        """Return the text of instructions as a function; what neither they nor its results read again is deleted."""
        last = {value: place for place, done in enumerate(instructions) for value in (*done.results, *done.operands)}
        kept, lines, scope, awaited = {*arguments, *results}, list[str](), "", dict[str, None]()
        for place, done in enumerate(instructions):
            lines += self._arrive(awaited, done.operands)
            here = f"# {done.op.phase} {done.op.scope}".strip() if isinstance(done, OpCall) else scope
            lines += [here] if here != scope else []
            if isinstance(done, MicroBatchLoop):
                lines += done.lines
            else:
                lines.append(self._line(done, awaited if _is_overlapped(instructions, place) else None))
            scope, used = here, dict.fromkeys((*done.operands, *done.results))
            if dying := [self.names[value] for value in used if last[value] == place and value not in kept]:
                lines.append(f"del {', '.join(dying)}")
        lines += self._arrive(awaited, results)
        lines.append("return (" + "".join(f"{self.names[value]}, " for value in results) + ")")
        body = "".join(f"    {line}\n" for line in lines)
        return f"def {name}({', '.join(self.names[value] for value in arguments)}):\n{body}"

    def loop(
        self, name: str, repeated: Sequence[Instruction], carried: Sequence[str], *, added: Sequence[str] = ()
    ) -> MicroBatchLoop:
        """Return the loop of instructions over the micro-batches; of what is `carried`, sums are added to in place.

        Values of `added`, which the instructions make anew in each micro-batch, are left as their sums.
        """
        program, names = self.program, self.names
        data, read = program.graph.data, {value for done in repeated for value in done.operands}
        given = [value for value, _ in program.arguments if value in read]
        computed = [value for value in carried if value not in data]
        sums = [value for done in repeated if is_accumulation(done) for value in done.results]
        text = self.function(name, [*given, *sums], repeated, results=computed)
        entered = [f"{names[value]}[number]" if value in data else names[value] for value in given]
        totals = {value: f"total_{names[value]}" for value in added}
        lines = [
            *(f"{each} = None" for each in (*(names[value] for value in sums), *totals.values())),
            "for number in range(MICROBATCHES):",
            *(f"    {names[value]} = None" for value in computed if value not in sums),
            f"    ({''.join(f'{names[value]}, ' for value in computed)}) = "
            f"{name}({', '.join([*entered, *(names[value] for value in sums)])})",
            *(f"    {each} = total({each}, {names[value]})" for value, each in totals.items()),
            *(f"{names[value]} = {each}" for value, each in totals.items()),
            *(f"{names[value]} = {names[value]}[-1]" for value in carried if value in data),
        ]
        return MicroBatchLoop(text, lines, tuple(given), tuple(carried))

    def _arrive(self, awaited: dict[str, None], read: Sequence[str]) -> list[str]:
        """Return the lines that wait for those values of `awaited` that are read now."""
        ready = [value for value in dict.fromkeys(read) if value in awaited]
        for value in ready:
            del awaited[value]
        return [f"{self.names[value]} = arrived({self.names[value]})  # arrives: {value!r}" for value in ready]

    def _line(self, done: Instruction, awaited: dict[str, None] | None = None) -> str:
        """Return the line of an instruction; with `awaited`, a result that arrives later is waited for later."""
        operands = [self.names[name] for name in done.operands]
        results = ", ".join(self.names[name] for name in done.results)
        if isinstance(done, Reshard):
            moved = write_collective(self.program, done, operands[0], functions=self.functions, groups=self.groups)
            if moved.is_later and awaited is not None:
                awaited[done.result] = None
            text = f"arrived({moved.text})" if moved.is_later and awaited is None else moved.text
            return f"{results} = {text}  # {done.result!r}"
        name = self.functions.of(done, [self.program.values[each] for each in done.operands])
        computed = f"{name}({', '.join(operands)})"
        return f"{results} = {f'total({results}, {computed})' if done.op.accumulates else computed}  # {done.op.id!r}"

    def module(self, bodies: Sequence[str], arguments: Sequence[str], results: Mapping[str, str]) -> str:
        """Return the module with functions that were written, of some arguments and values by name of the result."""
        program, mesh = self.program, self.program.mesh
        head = HEAD.format(
            graph=program.graph.name,
            mesh=mesh.notation,
            axes=dict(zip(mesh.names, mesh.shape, strict=True)),
            devices=mesh.devices,
            data=_write_data(program),
            arguments="".join(write_argument(program, name) for name in arguments),
            results="".join(write_result(program, value, name) for name, value in results.items()),
        )
        made = [GROUPS.format(lines="\n".join(write_groups(self.groups, mesh)))] if self.groups else []
        texts = [*self.functions.texts, *bodies]
        helpers = [text for mark, text in GIVEN.items() if any(mark in each for each in texts)]
        names = [body.split("(")[0].removeprefix("def ") for body in bodies]
        called = [name for name in names if any(f" {name}(" in body.partition("\n")[2] for body in bodies)]
        lines = [f"    {name} = trace.follow({name})\n" for name in names if name not in called]
        lines += ["    later = arrived\n"] if LATER in helpers else []
        trace = TRACE.format(followed="".join(lines))
        return "\n\n".join([head, *made, *helpers, BOUNDARY + "\n", *texts, trace])


def _is_overlapped(instructions: Sequence[Instruction | MicroBatchLoop], place: int) -> bool:
    """Return whether ops run between a collective and the first instruction that reads its result."""
    for after in range(place + 1, len(instructions)):
        done = instructions[after]
        if not isinstance(done, Reshard) or instructions[place].results[0] in done.operands:
            return instructions[place].results[0] not in done.operands
    return False


def _write_data(program: Program) -> str:
    """Return the lines that name the arguments with a part per micro-batch, or nothing where there is one."""
    if (count := program.graph.microbatches) == 1:
        return ""
    data = tuple(name for name, _ in program.arguments if name in program.stacked)
    return f"DATA = {data!r}\nMICROBATCHES = {count}\n"
