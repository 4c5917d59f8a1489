"""How Megatron splits the ops of a step over the axes for tensors.

A product with a weight is column parallel (the weight's new loop is split), or row parallel (its contraction is split)
where it reads the result of a column parallel one (Shoeybi et al., "Megatron-LM", 2019). A column parallel product
starts a region, and the row parallel one after it ends the region.

What lies between the regions is the same on all devices of a group, or, with sequence parallelism, split along the
sequence (Korthikanti et al., "Reducing activation recomputation in large transformer models", MLSys 2023).
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.ir.graph import Graph, Op
from planner.ir.indexing import Loop, LoopKind, can_split
from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes

LoopAxes = dict[str, dict[str, Axes]]
"""op id -> loop -> mesh axes."""


def split_products(graph: Graph, mesh: Mesh, axes: Axes) -> LoopAxes:
    """Return which loops of which products Megatron splits over the axes."""
    return _find_regions(graph, mesh, axes)[0]


def split_sequences(graph: Graph, mesh: Mesh, axes: Axes) -> LoopAxes:
    """Return the loops of products, and those along the sequence of what lies between the regions.

    These are the second dims of values of three dims or more that begin with the two dims of the data.
    """
    split_loops, inside = _find_regions(graph, mesh, axes)
    data = {entry.type.shape[:2] for entry in graph.inputs if entry.kind == "input" and len(entry.type.shape) > 1}
    for op in graph.ops:
        if op.phase == "update" or op.id in split_loops or not inside.isdisjoint(op.values):
            continue
        for loop in _list_sequence_loops(op, data):
            if can_split(loop, mesh.group_size(axes)):
                split_loops[op.id] = {loop.name: axes}
    return split_loops


def _list_sequence_loops(op: Op, data: set[tuple[int, ...]]) -> Iterator[Loop]:
    loops = {loop.name: loop for loop in op.rule.loops}
    for term, kind in zip(op.rule.results[:1], op.results[:1], strict=True):
        if len(kind.shape) > 2 and kind.shape[:2] in data and not term[1].joined and term[1].loops:
            yield loops[term[1].loops[0]]


def _find_regions(graph: Graph, mesh: Mesh, axes: Axes) -> tuple[LoopAxes, set[str]]:
    """Return which loops of which products are split, and the values within regions.

    A slice, transpose or cast of a weight is a weight too: loops over layers stack the weights of all layers.
    """
    weights = {entry.id for entry in graph.inputs if entry.kind == "parameter"}
    split_loops: LoopAxes = {}
    columns: set[str] = set()
    for op in graph.ops:
        if len(op.inputs) == 1 and op.inputs[0] in weights:
            weights.update(op.values)
        inside = any(value in columns for value in op.inputs)
        loop = _weight_loop(op, weights, contraction=inside)
        if loop is not None and can_split(op.rule.loops[loop], mesh.group_size(axes)):
            split_loops[op.id] = {op.rule.loops[loop].name: axes}
            # A column parallel product starts a region, the row parallel one after it ends the region.
            inside = not inside
        if inside:
            columns.update(op.values)
    return split_loops, columns


def _weight_loop(op: Op, weights: set[str], contraction: bool) -> int | None:
    """Return the loop that a product with a weight contracts, or the result loop that only the weight has.

    The result is the number of the loop in the rule, or None for other ops.
    """
    terms = [{loop for dim in term for loop in dim.loops} for term in op.rule.operands]
    mine = [term for term, value in zip(terms, op.inputs, strict=True) if value in weights]
    other = [term for term, value in zip(terms, op.inputs, strict=True) if value not in weights]
    shared = {loop for a in mine for b in other for loop in a & b}
    reduced = {loop.name for loop in op.rule.loops if loop.kind is LoopKind.REDUCTION}
    if not shared & reduced:
        return None
    new = {loop for a in mine for loop in a} - {loop for b in other for loop in b} - reduced
    wanted = shared & reduced if contraction else new
    return next((i for i, loop in enumerate(op.rule.loops) if loop.name in wanted), None)
