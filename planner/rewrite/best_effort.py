"""Completion of options given for some ops to all ops, loop by loop, for named layouts that people write by hand.

It walks backward over all ops, then forward. An op keeps the axes it was given. Every other loop takes those of a
result dim that it indexes, or else of an operand dim, where they are free and may split it. What nothing reaches stays
whole. Unlike `planner.rewrite.propagation.propagate` it takes part of a sharding where the whole does not fit, and it
ignores annotations: it completes an intention, while propagation completes a specification.
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
    """Return an option for every op, given the loops of some ops and the layouts of graph inputs."""
    split = {value: sharding.split_axes for value, sharding in inputs.items()}
    loop_axes = {op.id: dict(given.get(op.id, {})) for op in graph.ops}
    for op in reversed(graph.ops):
        _take_axes(op, loop_axes[op.id], mesh, terms=zip(op.rule.results, op.values, strict=True), split=split)
        option = _op_option(op, loop_axes[op.id])
        for operand, value in enumerate(op.inputs if any(option) else ()):
            wanted = op.rule.operand_sharding(operand, option).split_axes
            # The first wish wins (the last reader's, as the walk is backward): later ones would undo what it decided.
            if value not in split and any(wanted):
                split[value] = wanted
    for op in graph.ops:
        _take_axes(op, loop_axes[op.id], mesh, terms=zip(op.rule.results, op.values, strict=True), split=split)
        _take_axes(op, loop_axes[op.id], mesh, terms=zip(op.rule.operands, op.inputs, strict=True), split=split)
        option = _op_option(op, loop_axes[op.id])
        for result, value in enumerate(op.values):
            split[value] = op.rule.result_sharding(result, option).split_axes if any(option) else ()
    return {op.id: _op_option(op, loop_axes[op.id]) for op in graph.ops}


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
    """Add the axes that the dims of some values have for the op's loops."""
    for term, value in terms:
        for dim, axes in zip(term, split.get(value, ()), strict=False):
            if not axes or dim.joined or not dim.loops or taken.get(dim.loops[0]):
                continue
            used = {axis for others in taken.values() for axis in others}
            loop = next(loop for loop in op.rule.loops if loop.name == dim.loops[0])
            if not used & set(axes) and can_split(loop, mesh.group_size(axes)):
                taken[loop.name] = axes
