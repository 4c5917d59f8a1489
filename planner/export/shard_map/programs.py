"""A program as a Python module: functions of ops, the program of one device, and the same over whole arrays.

`program` is what every device runs, with jax.lax's collectives where the plan has its own; `mapped(mesh)` takes and
gives whole arrays in the order of ARGUMENTS and RESULTS. Shapes in it are those of a device, so that every dim must
divide by the devices it is split over. Numbers are computed in the types declared: for i64 and f64 JAX has to be told
(jax_enable_x64).
"""

from __future__ import annotations

from collections.abc import Iterable

import jax

from planner.errors import InvalidSharding
from planner.export.partition_spec import partition_spec
from planner.export.shard_map.collectives import collective
from planner.export.shard_map.functions import Functions
from planner.export.shards import shard_types
from planner.model.program import Move, Program, Run

HEAD = '''"""A program on {mesh}, as every device runs it."""

import jax
from jax import lax
from jax import numpy as jnp
from jax.sharding import PartitionSpec as P

GRAPH = {graph!r}
AXES = {axes!r}
ARGUMENTS = {arguments!r}
RESULTS = {results!r}
IN_SPECS = {reads}
OUT_SPECS = {leaves}
'''
TAIL = '''def mapped(mesh):
    """The program over whole arrays, in the order of ARGUMENTS; `mesh` is a jax.sharding.Mesh with AXES."""
    return jax.shard_map(program, mesh=mesh, in_specs=IN_SPECS, out_specs=OUT_SPECS, check_vma=False)
'''


def print_shard_map(program: Program) -> str:
    """The module. Raises InvalidSharding, naming value or op, for what jax.shard_map cannot say."""
    with jax.enable_x64(True):
        return _printed(program)


def _printed(program: Program) -> str:
    kinds, functions = shard_types(program), Functions(program.mesh)
    names = {value: f"n{number}" for number, value in enumerate(program.values)}
    lines = []
    for done in program.instructions:
        read = [names[name] for name in done.operands]
        made = ", ".join(names[name] for name in done.results)
        if isinstance(done, Move):
            lines.append(f"{made} = {collective(program, done, read[0], functions)}")
        elif isinstance(done, Run):
            shapes = [kinds[name].shape for name in done.results]
            name = functions.of(done, [kinds[name] for name in done.operands], shapes)
            lines.append(f"{made} = {name}({', '.join(read)})  # {done.op.id!r}")
    lines.append("return (" + "".join(f"{names[name]}, " for name in program.outputs) + ")")
    arguments = [name for name, _ in program.arguments]
    head = HEAD.format(
        graph=program.graph.name,
        mesh=program.mesh.notation,
        axes=dict(zip(program.mesh.names, program.mesh.shape, strict=True)),
        arguments=tuple(arguments),
        results=program.graph.outputs,
        reads=_specs(program, arguments),
        leaves=_specs(program, program.outputs),
    )
    body = "".join(f"    {line}\n" for line in lines)
    main = f"def program({', '.join(names[name] for name in arguments)}):\n{body}"
    return "\n\n".join([head, *functions.texts, main, TAIL])


def _specs(program: Program, values: Iterable[str]) -> str:
    specs = []
    for value in values:
        held = program.values[value]
        if held.sharding.partial:
            what, got = "terms of a sum have no PartitionSpec", str(held.sharding)
            raise InvalidSharding(what, where=f"value {value!r}", got=got, wanted="reduced at the program's ends")
        spec, _ = partition_spec(held.sharding, held.type.shape, program.mesh)
        specs.append(f"P({', '.join(map(repr, spec))})")
    return "(" + "".join(f"{spec}, " for spec in specs) + ")"
