"""Collectives as calls of torch.distributed._functional_collectives.

Where blocks are even, members stand in the order of their ranks and every backend has the dtype, a collective is the
library's own. Otherwise, and for an exchange, every process sends every other exactly what it lacks, by
all_to_all_single with a count for each: first terms to combine, then copies (`planner.ir.redistribution`).

The library's own are waited for where their result is first read. One that is followed by local copies, as of parts
that arrive in another order than they are held in, returns a function that waits and copies: `arrived` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from planner.export.torch_program.exchange import write_exchange_function
from planner.export.torch_program.op_functions import AtenFunctions
from planner.ir.collectives import Kind
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.ir.sharding import Axes, Reduction, shard_shapes

LATER = '''def later(arrive):
    """What waits for a collective. A traced run waits at once."""
    return arrive


def arrived(value):
    """The tensor that a collective makes, when it is there."""
    return value() if callable(value) else value'''
ALL_GATHER = '''def all_gather(x, dim, members, group):
    """Join along another dim than the first what the members hold."""
    blocks = funcol.all_gather_single(x, 0, group)
    return later(lambda: torch.cat(waited(blocks).chunk(members), dim))'''
ALL_TO_ALL = '''def all_to_all(x, dim, source, members, group):
    """Send part j of a dim to member j, and join along another dim what arrives."""
    blocks = funcol.all_to_all_single(torch.stack(x.chunk(members, dim)), None, None, group)
    return later(lambda: torch.cat(waited(blocks).unbind(), source))'''


@dataclass(frozen=True, slots=True)
class FunctionalCollective:
    """A collective as torch spells it, and the reductions that every backend has it for (None: it reduces nothing).

    In `call`, {array} is the operand, {dim} and {source} the dims, {members} their number and {group} the process
    group, {index} the process's position in it, {size} the size of a block, {reduction} torch's name of the reduction.
    """

    call: str
    reductions: Mapping[Reduction, str] | None = None


FUNCTIONAL: Mapping[Kind, FunctionalCollective] = MappingProxyType(
    {
        Kind.ALL_GATHER: FunctionalCollective("funcol.all_gather_single({array}, {dim}, {group})"),
        Kind.ALL_SLICE: FunctionalCollective("{array}.narrow({dim}, {index} * {size}, {size}).clone()"),
        Kind.ALL_TO_ALL: FunctionalCollective("all_to_all({array}, {dim}, {source}, {members}, {group})"),
        Kind.ALL_REDUCE: FunctionalCollective(
            'funcol.all_reduce({array}, "{reduction}", {group})',
            {Reduction.SUM: "sum", Reduction.MAX: "max", Reduction.MIN: "min", Reduction.PRODUCT: "product"},
        ),
        Kind.REDUCE_SCATTER: FunctionalCollective(
            'funcol.reduce_scatter_single({array}, "{reduction}", {dim}, {group})', {Reduction.SUM: "sum"}
        ),
    }
)
"""Every basis move. An exchange is a function of the module."""
ALL_GATHER_LATER = FunctionalCollective("all_gather({array}, {dim}, {members}, {group})")
SENT = ("f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8")
"""The dtypes that every backend has."""


def group_name(axes: Axes, mesh: Mesh) -> str:
    """Return the name in the module of the process group over some mesh axes."""
    return "GROUP_" + "_".join(python_name(mesh.names[axis]) for axis in sorted(axes))


def python_name(name: str) -> str:
    """Return a name as a part of a Python name."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def write_groups(names: set[Axes], mesh: Mesh) -> list[str]:
    """Return the lines that make the process groups over lists of axes, in the same order on every process."""
    return [
        f"{group_name(axes, mesh)} = make_group({[sorted(group) for group in mesh.groups(axes).tolist()]!r})"
        for axes in sorted(names)
    ]


class CollectiveCall(NamedTuple):
    """The expression for a collective, and whether it is a function that waits for the result (`arrived`)."""

    text: str
    is_later: bool


def write_collective(
    program: Program, move: Reshard, name: str, *, functions: AtenFunctions, groups: set[Axes]
) -> CollectiveCall:
    """Return the call for the move of the array `name`; the axes of groups that it needs go to `groups`."""
    done, mesh = move.collective, program.mesh
    held, made = program.values[move.operand], program.values[move.result]
    if mesh.group_size(done.axes) == 1:
        return CollectiveCall(name, is_later=False)
    row = ALL_GATHER_LATER if done.kind is Kind.ALL_GATHER and done.dim else FUNCTIONAL.get(done.kind)
    is_native = row is not None and (row.reductions is None or held.sharding.reduction in row.reductions)
    is_native = is_native and (held.type.dtype in SENT or done.kind is Kind.ALL_SLICE)
    if row is None or not is_native or not _is_plain(program, move):
        groups.add(tuple(sorted(done.axes)))
        return CollectiveCall(f"{_write_exchange(program, move, functions)}({name})", is_later=True)
    dim = done.dim or 0
    if done.kind is not Kind.ALL_SLICE:
        groups.add(tuple(sorted(done.axes)))
    text = row.call.format(
        array=name,
        dim=dim,
        source=done.source_dim,
        members=mesh.group_size(done.axes),
        group=group_name(done.axes, mesh),
        index=f"{tuple(mesh.group_index(done.axes).tolist())!r}[RANK]",
        size=shard_shapes(made.sharding, made.type.shape, mesh)[0][dim] if done.dim is not None else "",
        reduction=row.reductions[held.sharding.reduction] if row.reductions else "",
    )
    return CollectiveCall(text, is_later=row is ALL_GATHER_LATER or done.kind is Kind.ALL_TO_ALL)


def _is_plain(program: Program, move: Reshard) -> bool:
    """Return whether torch's collective does it: even blocks, members in the order of ranks."""
    done, mesh = move.collective, program.mesh
    even = all(
        (shapes == shapes[0]).all()
        for each in (program.values[move.operand], program.values[move.result])
        for shapes in [shard_shapes(each.sharding, each.type.shape, mesh)]
    )
    if done.kind is Kind.ALL_REDUCE:
        return True
    if done.kind is Kind.ALL_SLICE:
        return even
    return even and list(done.axes) == sorted(done.axes)


def _write_exchange(program: Program, move: Reshard, functions: AtenFunctions) -> str:
    """Return the name of the function of an exchange; equal exchanges share one."""
    held, made = program.values[move.operand], program.values[move.result]
    key = repr(("exchange", held, made.sharding, move.collective.axes))
    if key not in functions.named:
        name = functions.named[key] = f"exchange_{next(functions.numbers)}"
        group = group_name(move.collective.axes, program.mesh)
        text = write_exchange_function(held, made, program.mesh, axes=move.collective.axes, name=name, group=group)
        functions.texts.append(text)
    return functions.named[key]
