"""A program as a Python module: functions of ops, the program of one device, and the same over whole arrays.

`program` is what every device runs, with jax.lax's collectives where the plan has its own. `mapped(mesh)` takes and
returns whole arrays in the order of ARGUMENTS and RESULTS. Where arguments or results are not held in even blocks
(uneven blocks, halos, offsets, terms), a module has three more functions: `over_parts(mesh)` is the same over arrays
laid out so that every device has equally much, `laid_out(*arrays)` lays out arguments, and `whole(*arrays)` joins
results. For repeated steps, keep the arrays laid out. Numbers are computed in the declared types; i64 and f64 need
jax_enable_x64.

A step of several micro-batches is a `lax.scan` over them, and the update. The arguments that DATA names have the
micro-batches in a first dim of their own. Carried from one to the next are the accumulators, which begin at zero, and
what the update or the caller reads of the last micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain

import jax

from planner.export.shard_map.boundary_layouts import JOINED, PARTS, TERMS, BoundaryLayout, write_shard_map_call
from planner.export.shard_map.collectives import write_collective
from planner.export.shard_map.op_functions import OpFunctions, jax_dtype
from planner.export.shard_map.padding import FIT_FUNCTION
from planner.export.shard_map.ppermute import PIECES
from planner.export.shard_map.py_source import format_value
from planner.ir.graph import TensorType
from planner.ir.program import Instruction, OpCall, Program, Reshard
from planner.ir.sharding import shard_shape

GIVEN = {"fitted": FIT_FUNCTION, "parts_of": PARTS, "joined": JOINED, "terms_of": TERMS, "taken": PIECES}

HEAD = '''"""A program on {mesh}, as every device runs it."""

import jax
from jax import lax
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

GRAPH = {graph!r}
AXES = {axes!r}
ARGUMENTS = {arguments!r}
RESULTS = {results!r}
{data}IN_SPECS = {reads}
OUT_SPECS = {leaves}
'''


def print_shard_map(program: Program) -> str:
    """Return the module. Raises InvalidSharding, naming value or op, for what jax.shard_map cannot express."""
    with wide_types():
        return _write_program(program)


def wide_types() -> AbstractContextManager[object]:
    """Return the context in which ops are traced: i64 and f64 are themselves."""
    context: AbstractContextManager[object] = jax.enable_x64(True)
    return context


def _write_program(program: Program) -> str:
    functions, names = OpFunctions(program.mesh), {value: f"n{number}" for number, value in enumerate(program.values)}
    lines = write_instructions(program, functions, names=names, instructions=program.instructions)
    arguments = [name for name, _ in program.arguments]
    boundaries = [[BoundaryLayout(program, value) for value in values] for values in (arguments, program.outputs)]
    entered = {value: end.entered(names[value]) for value, end in zip(arguments, boundaries[0], strict=True)}
    data = [value for value, end in zip(arguments, boundaries[0], strict=True) if end.is_stacked]
    if (count := program.graph.microbatches) > 1:
        scanned = [*(line for value in data for line in entered.pop(value)), *lines[: program.loop_end]]
        carried = {names[value]: held_type(program, value) for value in program.carried}
        lines = [*_write_scan(scanned, carried, [names[value] for value in data]), *lines[program.loop_end :]]
    left = [end.left(names[value]) for value, end in zip(program.outputs, boundaries[1], strict=True)]
    lines = [*chain(*entered.values()), *lines, f"return {_format_names(left)}"]
    specs = [_format_names(each.spec for each in listed) for listed in boundaries]
    head = HEAD.format(
        graph=program.graph.name,
        mesh=program.mesh.notation,
        axes=dict(zip(program.mesh.names, program.mesh.shape, strict=True)),
        arguments=tuple(arguments),
        results=program.graph.outputs,
        data=f"DATA = {tuple(data)!r}\nMICROBATCHES = {count}\n" if count > 1 else "",
        reads=specs[0],
        leaves=specs[1],
    )
    body = "".join(f"    {line}\n" for line in lines)
    texts = [
        *functions.texts,
        f"def program({', '.join(names[name] for name in arguments)}):\n{body}",
        *write_shard_map_call(*boundaries),
    ]
    return "\n\n".join([head, *_used_helpers(texts), *texts])


def write_instructions(
    program: Program, functions: OpFunctions, *, names: Mapping[str, str], instructions: Sequence[Instruction]
) -> list[str]:
    """Return a line for each of some instructions."""
    lines, types = [], {name: held_type(program, name) for name in program.values}
    for done in instructions:
        operands = [names[name] for name in done.operands]
        results = ", ".join(names[name] for name in done.results)
        if isinstance(done, Reshard):
            lines.append(f"{results} = {write_collective(program, done, operands[0], functions=functions)}")
        elif isinstance(done, OpCall):
            shapes = [types[name].shape for name in done.results]
            name = functions.of(done, [types[name] for name in done.operands], shapes)
            so_far = f"{results} + " if done.op.accumulates else ""
            lines.append(f"{results} = {so_far}{name}({', '.join(operands)})  # {done.op.id!r}")
    return lines


def _write_scan(lines: Sequence[str], carried: Mapping[str, TensorType], data: Sequence[str]) -> list[str]:
    """Return the lines of a loop over micro-batches, given those of one micro-batch."""
    names = _format_names(carried)
    zeros = [f"jnp.zeros({kind.shape!r}, {format_value(jax_dtype(kind.dtype))})" for kind in carried.values()]
    return [
        "def micro_batch(carried, data):",
        *(f"    {line}" for line in (f"{names} = carried", f"{_format_names(data)} = data", *lines)),
        f"    return {names}, None",
        f"carried = {_format_names(zeros)}",
        f"{names}, _ = lax.scan(micro_batch, carried, {_format_names(data)}, MICROBATCHES)",
    ]


def _format_names(names: Iterable[str]) -> str:
    return "(" + "".join(f"{name}, " for name in names) + ")"


def held_type(program: Program, name: str) -> TensorType:
    """Return the type of the array in which every device holds a value: as large as the largest shard."""
    value = program.values[name]
    return TensorType(shard_shape(value.sharding, value.type.shape, program.mesh), value.type.dtype)


def _used_helpers(texts: list[str]) -> list[str]:
    """Return the helper functions that others call."""
    return [given for name, given in GIVEN.items() if any(f"{name}(" in text for text in texts)]
