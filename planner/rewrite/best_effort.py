"""Shardings from some ops to all, loop by loop: what the named layouts people write by hand are completed with.

Backward over all ops, then forward. An op keeps the axes it was given; every other loop takes those of a result
dim it indexes, else of an operand dim, where they are free and may split it. What nothing reaches stays whole.
Unlike `planner.rewrite.propagation.propagate` it takes part of a sharding where the whole does not fit, and knows no
annotations: it completes an intention, where propagation completes a specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from planner.ir.graph import Graph, Op
from planner.ir.indexing import Option, can_split
from planner.ir.mesh import Mesh
from planner.ir.notation import Term
from planner.ir.sharding import Axes, Sharding

Given = Mapping[str, Mapping[str, Axes]]
"""op id -> loop -> mesh axes."""


def complete_options(graph: Graph, mesh: Mesh, given: Given, *, inputs: Mapping[str, Sharding]) -> dict[str, Option]:
    """An option for every op from the loops given for some and the layouts of graph inputs."""
    split = {value: sharding.split_axes for value, sharding in inputs.items()}
    taken = {op.id: dict(given.get(op.id, {})) for op in graph.ops}
    for op in reversed(graph.ops):
        _take_axes(op, taken[op.id], mesh, terms=zip(op.rule.results, op.values, strict=True), split=split)
        option = _op_option(op, taken[op.id])
        for operand, value in enumerate(op.inputs):
            wanted = op.rule.operand_sharding(operand, option).split_axes
            if value not in split and any(wanted):
                split[value] = wanted
    for op in graph.ops:
        _take_axes(op, taken[op.id], mesh, terms=zip(op.rule.results, op.values, strict=True), split=split)
        _take_axes(op, taken[op.id], mesh, terms=zip(op.rule.operands, op.inputs, strict=True), split=split)
        option = _op_option(op, taken[op.id])
        for result, value in enumerate(op.values):
            split[value] = op.rule.result_sharding(result, option).split_axes
    return {op.id: _op_option(op, taken[op.id]) for op in graph.ops}


def _op_option(op: Op, taken: Mapping[str, Axes]) -> Option:
    return tuple(taken.get(loop.name, ()) for loop in op.rule.loops)


def _take_axes(
    op: Op,
    taken: dict[str, Axes],
    mesh: Mesh,
    *,
    terms: Iterable[tuple[Term, str]],
    split: Mapping[str, Sequence[Axes]],
) -> None:
    """Add what the dims of some values tell the op's loops."""
    loops = {loop.name: loop for loop in op.rule.loops}
    for term, value in terms:
        for dim, axes in zip(term, split.get(value, ()), strict=False):
            if not axes or dim.joined or not dim.loops or taken.get(dim.loops[0]):
                continue
            used = {axis for others in taken.values() for axis in others}
            if not used & set(axes) and can_split(loops[dim.loops[0]], mesh.group_size(axes)):
                taken[dim.loops[0]] = axes
