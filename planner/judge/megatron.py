"""How Megatron splits the ops of a step over the axes for tensors.

A product with a weight is column parallel (the weight's new loop is split), or row parallel (its contraction is split)
where it reads the result of a column parallel one (Shoeybi et al., "Megatron-LM", 2019). A column parallel product
starts a region, and the row parallel one after it ends the region.

What lies between the regions is the same on all devices of a group, or, with sequence parallelism, split along the
sequence (Korthikanti et al., "Reducing activation recomputation in large transformer models", MLSys 2023). Then sums of
what regions leave, such as the gradients of an input of several products, are added up before they are reduced, and the
update of a weight is split as the weight is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from planner.choose.hardware.efficiency import work_class
from planner.ir.graph import Graph, Op
from planner.ir.indexing import Loop, LoopKind, can_split
from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes

LoopAxes = dict[str, dict[str, Axes]]
"""op id -> loop -> mesh axes."""


def split_products(graph: Graph, mesh: Mesh, axes: Axes) -> LoopAxes:
    """Return which loops of which products Megatron splits over the axes."""
    return _Regions(graph, mesh, axes).split_loops


def split_sequences(graph: Graph, mesh: Mesh, axes: Axes) -> LoopAxes:
    """Return the loops of products and updates, and those along the sequence of what lies between the regions.

    These are the second dims of values of three dims or more that begin with the two dims of the data.
    """
    regions = _Regions(graph, mesh, axes)
    regions.split_lookups()
    split_loops = regions.split_loops | regions.split_updates()
    partial = set(regions.left)
    data = {entry.type.shape[:2] for entry in graph.inputs if entry.kind == "input" and len(entry.type.shape) > 1}
    for op in graph.ops:
        if op.phase == "update" or op.id in split_loops or not regions.inside.isdisjoint(op.values):
            continue
        linear = [loop for loop in op.rule.loops if loop.kind is LoopKind.LINEAR]
        if partial.issuperset(op.inputs) and linear and len(linear[0].operands) == len(op.inputs) > 1:
            split_loops[op.id] = {linear[0].name: axes}
            partial.update(op.values)
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


@dataclass
class _Regions:
    """Which loops of which products are split, the values within regions, and those that regions leave as sums.

    A slice, transpose or cast of a weight is a weight too: loops over layers stack the weights of all layers.
    `weights` says of each the graph input that it is all of, or None.
    """

    graph: Graph
    mesh: Mesh
    axes: Axes
    split_loops: LoopAxes = field(default_factory=dict)
    inside: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.weights: dict[str, str | None] = {
            entry.id: entry.id for entry in self.graph.inputs if entry.kind == "parameter"
        }
        for op in self.graph.ops:
            if len(op.inputs) == 1 and op.inputs[0] in self.weights:
                whole = self.weights[op.inputs[0]] if op.op == "cast" else None
                self.weights.update(dict.fromkeys(op.values, whole))
            inside = any(value in self.inside for value in op.inputs)
            loop = _weight_loop(op, self.weights.keys(), contraction=inside)
            if loop is not None and can_split(op.rule.loops[loop], self.mesh.group_size(self.axes)):
                self.split_loops[op.id] = {op.rule.loops[loop].name: self.axes}
                if inside:
                    self.left.update(op.values)
                # A column parallel product starts a region, the row parallel one after it ends the region.
                inside = not inside
            if inside:
                self.inside.update(op.values)

    def split_lookups(self) -> None:
        """Split what looks rows of a weight up along these rows, so that each device holds a part of all of them."""
        for op in self.graph.ops:
            term = next((t for v, t in zip(op.inputs, op.rule.operands, strict=True) if self.weights.get(v)), ())
            own = {dim.loops[0] for dim in term if dim.loops}
            parallel, reduced = (
                [loop.name for loop in op.rule.loops if loop.name in own and loop.kind is kind]
                for kind in (LoopKind.PARALLEL, LoopKind.REDUCTION)
            )
            if parallel and reduced and len(op.inputs) > 1 and work_class(op) is None:
                self.split_loops[op.id] = {parallel[0]: self.axes}

    def split_updates(self) -> LoopAxes:
        """Return the loops of the updates of weights that are split as the first product reads them."""
        split: dict[str, int] = {}
        for op in self.graph.ops:
            loops = self.split_loops.get(op.id, {})
            for value, term in zip(op.inputs, op.rule.operands, strict=True):
                dims = [number for number, dim in enumerate(term) if dim.loops and dim.loops[0] in loops]
                if dims and (weight := self.weights.get(value)) is not None:
                    split.setdefault(weight, dims[0])
        replaced = {entry.next: split[entry.id] for entry in self.graph.inputs if entry.next and entry.id in split}
        terms = (
            (op.id, term[replaced[value]])
            for op in self.graph.ops
            if op.phase == "update"
            for value, term in zip(op.values, op.rule.results, strict=True)
            if value in replaced
        )
        return {name: {dim.loops[0]: self.axes} for name, dim in terms if dim.loops}


def _weight_loop(op: Op, weights: Collection[str], contraction: bool) -> int | None:
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
