"""A program as a Python module for torch.distributed: functions of ops, and the program of one process.

Every process imports the module after `torch.distributed.init_process_group`, with a rank for each device of the mesh.
`program` is what a process runs on its local tensors, with the collectives of torch.distributed where the plan has its
own; a value is deleted where the plan says that nobody reads it again. `local(*arrays)` cuts a process's parts from
whole arguments, `whole(*results)` joins results. Tensors are made on torch's default device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.export.torch_program.boundary import BOUNDARY, write_argument, write_result
from planner.export.torch_program.collectives import ALL_TO_ALL, write_collective, write_groups
from planner.export.torch_program.exchange import PIECES
from planner.export.torch_program.op_functions import AtenFunctions
from planner.ir.program import Instruction, OpCall, Program, Reshard
from planner.ir.sharding import Axes

GIVEN = {"all_to_all(": ALL_TO_ALL, "piece_of(": PIECES}
HEAD = '''"""A program on {mesh}, as every process runs it: import after torch.distributed.init_process_group."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

GRAPH = {graph!r}
AXES = {axes!r}
RANK = dist.get_rank()
if dist.get_world_size() != {devices}:
    raise RuntimeError(f"world size: got {{dist.get_world_size()}}, wanted {devices}: that of the plan")
aten = torch.ops.aten

# What each rank holds. Arguments: number of the term, what changes nothing, bounds by dim.
ARGUMENTS = {{
{arguments}}}
# Results: shape, how terms combine, and by rank number of the term and bounds by dim.
RESULTS = {{
{results}}}
'''
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
    body = writer.function("program", arguments, program.instructions, results=program.outputs)
    return writer.module([body], arguments, dict(zip(program.graph.outputs, program.outputs, strict=True)))


class ProgramWriter:
    """The text of a program's module: its head, and functions of some of its instructions."""

    def __init__(self, program: Program) -> None:
        self.program, self.groups = program, set[Axes]()
        self.functions = AtenFunctions(program.mesh)
        self.names = {value: f"n{number}" for number, value in enumerate(program.values)}

    def function(
        self, name: str, arguments: Sequence[str], instructions: Sequence[Instruction], *, results: Sequence[str]
    ) -> str:
        """Return the text of instructions as a function; what neither they nor its results read again is deleted."""
        last = {value: place for place, done in enumerate(instructions) for value in (*done.results, *done.operands)}
        kept, lines, scope = {*arguments, *results}, [], ""
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
        return f"{results} = {name}({', '.join(operands)})  # {done.op.id!r}"

    def module(self, bodies: Sequence[str], arguments: Sequence[str], results: Mapping[str, str]) -> str:
        """Return the module with functions that were written, of some arguments and values by name of the result."""
        program, mesh = self.program, self.program.mesh
        head = HEAD.format(
            graph=program.graph.name,
            mesh=mesh.notation,
            axes=dict(zip(mesh.names, mesh.shape, strict=True)),
            devices=mesh.devices,
            arguments="".join(write_argument(program, name) for name in arguments),
            results="".join(write_result(program, value, name) for name, value in results.items()),
        )
        made = [GROUPS.format(lines="\n".join(write_groups(self.groups, mesh)))] if self.groups else []
        texts = [*self.functions.texts, *bodies]
        helpers = [text for mark, text in GIVEN.items() if any(mark in each for each in texts)]
        return "\n\n".join([head, *made, *helpers, BOUNDARY + "\n", *texts])
