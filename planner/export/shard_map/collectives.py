"""Collectives as calls of jax.lax over the names of mesh axes, major first.

Blocks nest wherever there is a collective, and in a group only the last members that hold anything are short. So
blocks that are padded at their ends, joined, are the joined block padded at its end; they are moved with the padding.
Terms that jax.lax does not combine (scattered maxima, products, bits) are exchanged. An exchange moves only what it
must.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from planner.export.shard_map.op_functions import OpFunctions, write_device_index
from planner.export.shard_map.padding import fit_shape
from planner.export.shard_map.ppermute import write_exchange_function
from planner.ir.collectives import AxesFrom, Collective, Kind
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.ir.sharding import Reduction, Shape, shard_shape


@dataclass(frozen=True, slots=True)
class LaxCollective:
    """A collective as jax.lax spells it, and the reductions that jax.lax has it for (None: it reduces nothing).

    In `call`, {array} is the operand, {axes} the names of the mesh axes, {dim} and {source} the dims, {size} the size
    of a device's block, {index} the device's position in its group, {reduction} jax.lax's name of the reduction.
    """

    call: str
    reductions: Mapping[Reduction, str] | None = None


LAX: Mapping[Kind, LaxCollective] = MappingProxyType(
    {
        Kind.ALL_GATHER: LaxCollective("lax.all_gather({array}, {axes}, axis={dim}, tiled=True)"),
        Kind.ALL_SLICE: LaxCollective("lax.dynamic_slice_in_dim({array}, {index} * {size}, {size}, {dim})"),
        Kind.ALL_TO_ALL: LaxCollective(
            "lax.all_to_all({array}, {axes}, split_axis={dim}, concat_axis={source}, tiled=True)"
        ),
        Kind.ALL_REDUCE: LaxCollective(
            "lax.{reduction}({array}, {axes})",
            {Reduction.SUM: "psum", Reduction.MAX: "pmax", Reduction.MIN: "pmin"},
        ),
        Kind.REDUCE_SCATTER: LaxCollective(
            "lax.{reduction}({array}, {axes}, scatter_dimension={dim}, tiled=True)", {Reduction.SUM: "psum_scatter"}
        ),
    }
)
"""Every basis move. An exchange is a function of the module that sends by ppermute."""


def write_collective(program: Program, move: Reshard, name: str, *, functions: OpFunctions) -> str:
    """Return the expression for the move of the array `name`."""
    done, held = move.collective, program.values[move.operand]
    if not done.axes:
        return name
    lax = LAX.get(done.kind)
    if lax is None or (lax.reductions is not None and held.sharding.reduction not in lax.reductions):
        return f"{_write_exchange(program, move, functions)}({name})"
    have, want = (
        shard_shape(program.values[end].sharding, held.type.shape, program.mesh) for end in (move.operand, move.result)
    )
    reduction = lax.reductions[held.sharding.reduction] if lax.reductions else ""
    return _write_call(lax.call, done, name, have=have, want=want, mesh=program.mesh, reduction=reduction)


def _write_exchange(program: Program, move: Reshard, functions: OpFunctions) -> str:
    """Return the name of the function of an exchange; equal exchanges share one."""
    held, made = program.values[move.operand], program.values[move.result]
    key = repr(("exchange", held.type.shape, held.sharding, made.sharding, move.collective.axes))
    if key not in functions.named:
        name = functions.named[key] = f"exchange_{next(functions.numbers)}"
        functions.texts.append(write_exchange_function(held, made, program.mesh, axes=move.collective.axes, name=name))
    return functions.named[key]


def _write_call(call: str, done: Collective, name: str, *, have: Shape, want: Shape, mesh: Mesh, reduction: str) -> str:
    """Return the call of jax.lax, filled up before and cut afterwards where blocks are uneven.

    Devices hold arrays of the shape `have` before it and `want` afterwards.
    """
    members, dim, source = mesh.group_size(done.axes), done.dim or 0, done.source_dim or 0
    row = done.definition
    if row.appends:
        name = fit_shape(name, have, _replace_dim(have, dim, members * want[dim]))
    text = call.format(
        array=name,
        axes=repr(tuple(mesh.names[axis] for axis in done.axes)),
        dim=dim,
        source=source,
        size=want[dim] if row.appends else "",
        index=write_device_index(done.axes, mesh),
        reduction=reduction,
    )
    if row.axes_from is not AxesFrom.TAIL:
        return text
    joined = source if row.appends else dim
    return fit_shape(text, _replace_dim(want, joined, members * have[joined]), want)


def _replace_dim(shape: Shape, dim: int, size: int) -> Shape:
    return (*shape[:dim], size, *shape[dim + 1 :])
