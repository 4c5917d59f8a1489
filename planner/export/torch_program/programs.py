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
from planner.export.torch_program.collectives import ALL_TO_ALL, write_collective, write_groups
from planner.export.torch_program.exchange import PIECES
from planner.export.torch_program.op_functions import AtenFunctions
from planner.ir.program import Instruction, OpCall, Program, Reshard, is_accumulation
from planner.ir.sharding import Axes

TOTAL = '''def total(before, term):
    """The sum of the micro-batches before, in place, and of this one."""
    return term.clone() if before is None else before.add_(term)'''
GIVEN = {"all_to_all(": ALL_TO_ALL, "piece_of(": PIECES, "total(": TOTAL}
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
    loop = _write_loop(program, writer) if program.graph.microbatches > 1 else None
    once = program.instructions if loop is None else program.instructions[program.loop_end :]
    body = writer.function("program", arguments, once, results=program.outputs, first=loop.call if loop else ())
    results = dict(zip(program.graph.outputs, program.outputs, strict=True))
    return writer.module([*([loop.text] if loop else []), body], arguments, results)


class _Loop(NamedTuple):
    """The function of a micro-batch, and the lines that call it for each."""

    text: str
    call: list[str]


def _write_loop(program: Program, writer: ProgramWriter) -> _Loop:
    repeated, names = program.instructions[: program.loop_end], writer.names
    data, carried = program.graph.data, program.carried
    read = {name for done in repeated for name in done.operands}
    given = [name for name, _ in program.arguments if name in read]
    computed = [name for name in carried if name not in data]
    sums = [name for done in repeated if is_accumulation(done) for name in done.results]
    text = writer.function("micro_batch", [*given, *sums], repeated, results=computed)
    entered = [f"{names[name]}[number]" if name in data else names[name] for name in given]
    call = f"micro_batch({', '.join([*entered, *(names[name] for name in sums)])})"
    dropped = [f"    {names[name]} = None" for name in computed if name not in sums]
    return _Loop(
        text,
        [
            *(f"{names[name]} = None" for name in sums),
            "for number in range(MICROBATCHES):",
            *dropped,
            f"    ({''.join(f'{names[name]}, ' for name in computed)}) = {call}",
            *(f"{names[name]} = {names[name]}[-1]" for name in carried if name in data),
        ],
    )


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
        instructions: Sequence[Instruction],
        *,
        results: Sequence[str],
        first: Sequence[str] = (),
    ) -> str:
        """Return the text of instructions as a function; what neither they nor its results read again is deleted.

        `first` are lines before theirs.
        """
        last = {value: place for place, done in enumerate(instructions) for value in (*done.results, *done.operands)}
        kept, lines, scope = {*arguments, *results}, [*first], ""
        for place, done in enumerate(instructions):
            here = f"# {done.op.phase} {done.op.scope}".strip() if isinstance(done, OpCall) else scope
            lines += [here] if here != scope else []
            lines.append(self._line(done))
            scope, used = here, dict.fromkeys((*done.operands, *done.results))
            if dying := [self.names[value] for value in used if last[value] == place and value not in kept]:
                lines.append(f"del {', '.join(dying)}")
        lines.append("return (" + "".join(f"{self.names[value]}, " for value in results) + ")")
        body = "".join(f"    {line}\n" for line in lines)
        return f"def {name}({', '.join(self.names[value] for value in arguments)}):\n{body}"

    def _line(self, done: Instruction) -> str:
        operands = [self.names[name] for name in done.operands]
        results = ", ".join(self.names[name] for name in done.results)
        if isinstance(done, Reshard):
            moved = write_collective(self.program, done, operands[0], functions=self.functions, groups=self.groups)
            return f"{results} = {moved}  # {done.result!r}"
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
        lines = (f"    {name} = trace.follow({name})\n" for name in names if name not in called)
        trace = TRACE.format(followed="".join(lines))
        return "\n\n".join([head, *made, *helpers, BOUNDARY + "\n", *texts, trace])


def _write_data(program: Program) -> str:
    """Return the lines that name the arguments with a part per micro-batch, or nothing where there is one."""
    if (count := program.graph.microbatches) == 1:
        return ""
    data = tuple(name for name, _ in program.arguments if name in program.stacked)
    return f"DATA = {data!r}\nMICROBATCHES = {count}\n"
