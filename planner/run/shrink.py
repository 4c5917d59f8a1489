"""Shrinks a program to small tensors with the same instructions, so that a laptop can run any model.

Dims and loops that must stay equal form classes (a loop indexes a dim; a compound or joined dim is *defined* as the
product or sum of its loops' classes). Every class without a definition gets a small multiple of what the mesh axes
that ever split it need, uneven where it was uneven; defined classes follow. Where two definitions of one class
disagree, the classes concerned keep their size. Where an instruction does not fit the chosen sizes, larger ones are
tried, and finally the program stays as it is. Of many micro-batches a few are left. What windows read shrinks with
them, or keeps its size where its halos would change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from planner.errors import InvalidGraph, InvalidRequest, InvalidSharding
from planner.ir.basis_moves import is_exact
from planner.ir.graph import Graph, Input, Op, TensorType
from planner.ir.indexing import LoopKind, matches_size
from planner.ir.program import OpCall, Program, Reshard
from planner.ir.sharding import Shape
from planner.run.shrink_sizes import SizeClasses, SizeVariable

ATTEMPTS = 6
FEW_DEVICES = 64
"""Devices of a mesh that was too large to run."""
FEW_MICROBATCHES = 3
"""Micro-batches of a step: a first, one in the middle, and the last."""


def shrink(program: Program, on_attempt: Callable[[], None] = lambda: None) -> Program:
    """Return the same instructions on the smallest sizes found to fit, or the program itself where none do.

    on_attempt  called before every attempt; what it raises ends the work
    """
    reads_windows = any(op.rule.windows for op in program.graph.ops)
    class_choices = [SizeClasses.of(program, windows) for windows in ([True, False] if reads_windows else [False])]
    for attempt in range(1, ATTEMPTS + 1):
        for classes in class_choices:
            on_attempt()
            small = _resize_program(program, classes.choose_sizes(attempt))
            if _is_valid(small):
                return small
    return program


def shrink_mesh(program: Program, devices: int = FEW_DEVICES) -> Program:
    """The same instructions on at most so many devices, every axis a divisor of what it was, or of size 2.

    Blocks that were uneven may be even on the smaller mesh. Raises InvalidRequest where the instructions do not fit it.
    """
    sizes = list(program.mesh.shape)
    while math.prod(sizes) > devices and max(sizes) > 2:
        axis = sizes.index(max(sizes))
        factor = next(factor for factor in range(2, sizes[axis] + 1) if sizes[axis] % factor == 0)
        sizes[axis] = max(sizes[axis] // factor, 2)
    axes = tuple(replace(axis, size=size) for axis, size in zip(program.mesh.axes, sizes, strict=True))
    small = replace(program, mesh=replace(program.mesh, axes=axes))
    if not _is_valid(small):
        raise InvalidRequest(
            "the program does not fit a smaller mesh to run on", where=small.mesh.notation, got=program.mesh.notation
        )
    return small


def _resize_program(program: Program, sizes: Mapping[SizeVariable, int]) -> Program:
    graph = program.graph
    types = {value: TensorType(_resize_shape(value, kind, sizes), kind.dtype) for value, kind in graph.types.items()}
    ops = {op.id: _resize_op(op, types, sizes) for op in graph.ops}
    inputs = tuple(Input(i.id, i.kind, i.name, types[i.id]) for i in graph.inputs)
    microbatches = min(graph.microbatches, FEW_MICROBATCHES)
    small = Graph(graph.name, inputs, tuple(ops.values()), graph.outputs, microbatches=microbatches)
    instructions = tuple(
        replace(done, op=ops[done.op.id]) if isinstance(done, OpCall) else done for done in program.instructions
    )
    return replace(program, graph=small, instructions=instructions)


def _resize_shape(value: str, kind: TensorType, sizes: Mapping[SizeVariable, int]) -> Shape:
    return tuple(sizes[value, dim] for dim in range(len(kind.shape)))


def _resize_op(op: Op, types: Mapping[str, TensorType], sizes: Mapping[SizeVariable, int]) -> Op:
    loops = tuple(
        loop if loop.kind is LoopKind.LINEAR else replace(loop, size=sizes[op.id, loop.name]) for loop in op.rule.loops
    )
    shapes = tuple(types[value].shape for value in op.inputs)
    rule = replace(op.rule, loops=loops, shapes=shapes)
    return replace(op, rule=rule, results=tuple(types[value] for value in op.values))


def _is_valid(program: Program) -> bool:
    """Return whether shapes agree with rules, options with loops, halos with windows, and every move is exact."""
    try:
        mesh, values = program.mesh, program.values
    except (InvalidGraph, InvalidSharding):
        return False
    for done in program.instructions:
        if isinstance(done, Reshard):
            held = values[done.operand]
            if not is_exact(
                done.collective, held.sharding, values[done.result].sharding, shape=held.type.shape, mesh=mesh
            ):
                return False
        elif not (done.op.rule.is_allowed(done.option, mesh) and _is_consistent(done, program)):
            return False
    return all(
        math.prod(held.type.shape) > 0
        and all(mesh.group_size(a) <= n for a, n in zip(held.sharding.split_axes, held.type.shape, strict=True))
        for held in values.values()
    )


def _is_consistent(done: OpCall, program: Program) -> bool:
    rule = done.op.rule
    names = (*done.operands, *done.results)
    return all(
        matches_size(dim, size, rule.sizes)
        for term, name in zip((*rule.operands, *rule.results), names, strict=True)
        for dim, size in zip(term, program.values[name].type.shape, strict=True)
    )
