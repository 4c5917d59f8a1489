"""Standard layouts that people write by hand, priced by the same evaluator as the plan.

fully replicated         every device computes everything
data parallel            the first dim of each `input` is split over as many axes as divide it; parameters are
                         replicated
FSDP                     data parallel, with parameters stored split and gathered before each use
Megatron tensor parallel a product with a weight is column parallel (the weight's new loop is split), or row parallel
                         (its contraction is split) where it reads the result of a column parallel one (Shoeybi et al.,
                         "Megatron-LM", 2019). Propagation decides the rest, and parameters are stored as they are read.
                         A fused product for q, k and v is gathered where it is sliced (the paper's weight with
                         interleaved heads is another graph)
DPxTP                    data parallel over the first axis, Megatron over the others

In all of them an update runs, and its optimizer states and accumulators are stored, in the sharding of the parameter
that it updates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.choose.formulate import Formulation
from planner.choose.variables import Role
from planner.ir.graph import Graph, Op
from planner.ir.indexing import LoopKind, Option, can_split
from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes, Sharding
from planner.rewrite.best_effort import complete_options


@dataclass(frozen=True)
class Baseline:
    """A named layout: shardings of the graph inputs, and options of the ops."""

    name: str
    inputs: Mapping[str, Sharding]
    options: Mapping[str, Option]


def list_baselines(graph: Graph, mesh: Mesh) -> list[Baseline]:
    """Return the standard layouts of a graph that exist on the mesh."""
    axes = tuple(axis for axis, size in enumerate(mesh.shape) if size > 1)
    parallel = _baseline("data parallel", graph, mesh, data=axes, tensor=())
    layouts = [
        _baseline("fully replicated", graph, mesh, data=(), tensor=()),
        parallel,
        _fsdp(parallel, graph, mesh, axes=axes),
        _baseline("Megatron tensor parallel", graph, mesh, data=(), tensor=axes),
    ]
    layouts += [_baseline("DPxTP", graph, mesh, data=axes[:1], tensor=axes[1:])] if len(axes) > 1 else []
    return [_update_as_stored(layout, graph) for layout in layouts]


def _baseline(name: str, graph: Graph, mesh: Mesh, *, data: Axes, tensor: Axes) -> Baseline:
    inputs = {}
    for entry in graph.inputs:
        shape = entry.type.shape
        batch = _dividing_axes(data, shape[0], mesh) if entry.kind == "input" and shape else ()
        inputs[entry.id] = Sharding((batch, *((),) * (len(shape) - 1)) if shape else ())
    options = complete_options(graph, mesh, _megatron(graph, mesh, tensor) if tensor else {}, inputs=inputs)
    return Baseline(name, {**inputs, **_layouts_as_read(graph, options)}, options)


def _layouts_as_read(graph: Graph, options: Mapping[str, Option]) -> dict[str, Sharding]:
    """Return for each parameter the sharding in which the first op reads it."""
    parameters = {entry.id for entry in graph.inputs if entry.kind == "parameter"}
    shardings: dict[str, Sharding] = {}
    for op in graph.ops:
        for position, value in enumerate(op.inputs):
            wanted = op.rule.operand_sharding(position, options[op.id])
            if value in parameters and not wanted.partial:
                shardings.setdefault(value, wanted)
    return shardings


def _dividing_axes(axes: Axes, size: int, mesh: Mesh) -> Axes:
    """Return the longest prefix of the axes whose devices divide a dim of this size."""
    return max((axes[:n] for n in range(len(axes) + 1) if size % mesh.group_size(axes[:n]) == 0), key=len)


def _fsdp(plain: Baseline, graph: Graph, mesh: Mesh, *, axes: Axes) -> Baseline:
    """Split parameters over all axes, along the first dim that these divide, else the first that is large enough."""
    parts = mesh.group_size(axes)
    inputs = dict(plain.inputs)
    for entry in graph.inputs:
        shape = entry.type.shape
        fitting = [d for d, n in enumerate(shape) if n % parts == 0] or [d for d, n in enumerate(shape) if n >= parts]
        if entry.kind == "parameter" and fitting:
            inputs[entry.id] = Sharding(tuple(axes if d == fitting[0] else () for d in range(len(shape))))
    return Baseline("FSDP", inputs, plain.options)


def _update_as_stored(layout: Baseline, graph: Graph) -> Baseline:
    """Shard the ops of the update, from the new parameters back to the states that they read, like the parameters."""
    inputs, options = dict(layout.inputs), dict(layout.options)
    states = {entry.id for entry in graph.inputs if entry.kind == "optimizer_state"}
    shardings = {entry.next: inputs[entry.id] for entry in graph.inputs if entry.next and entry.kind == "parameter"}
    for op in reversed(graph.ops):
        updated = [
            (term, shardings[value])
            for term, value in zip(op.rule.results, op.values, strict=True)
            if value in shardings
        ]
        if not updated or not (op.phase == "update" or op.accumulates):
            continue
        term, stored = updated[0]
        loops = {dim.loops[0]: axes for dim, axes in zip(term, stored.split_axes, strict=True) if dim.loops}
        options[op.id] = tuple(loops.get(loop.name, ()) for loop in op.rule.loops)
        for operand, value in enumerate(op.inputs):
            read = op.rule.operand_sharding(operand, options[op.id])
            shardings.setdefault(value, read)
            if value in states:
                inputs[value] = read
    return Baseline(layout.name, inputs, options)


def _megatron(graph: Graph, mesh: Mesh, axes: Axes) -> dict[str, dict[str, Axes]]:
    """Return which loops of which products Megatron splits over the axes.

    A slice, transpose or cast of a weight is a weight too: loops over layers stack the weights of all layers.
    """
    weights = {entry.id for entry in graph.inputs if entry.kind == "parameter"}
    split_loops: dict[str, dict[str, Axes]] = {}
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
    return split_loops


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


def encode_baseline(formulation: Formulation, baseline: Baseline) -> list[int] | None:
    """Encode a baseline as an assignment. Shared copies and outputs take their cheapest strategy given the rest.

    Returns None where required annotations of the graph rule the baseline out.
    """
    fixed: dict[int, int] = {}
    for op in formulation.graph.ops:
        option, mesh = baseline.options[op.id], formulation.model.mesh
        read = [op.rule.read_sharding(operand, option, mesh) for operand in range(len(op.inputs))]
        made = [op.rule.result_sharding(result, option) for result in range(len(op.results))]
        if not _fix_node(fixed, formulation, formulation.index[Role.OP, op.id], wanted=[*read, *made]):
            return None
    for entry in formulation.graph.inputs:
        node = formulation.index[Role.INPUT, entry.id]
        if not _fix_node(fixed, formulation, node, wanted=[baseline.inputs[entry.id]]):
            return None
    _complete_strategies(fixed, formulation)
    return [fixed[node] for node in range(len(formulation.variables))]


def _fix_node(fixed: dict[int, int], formulation: Formulation, node: int, *, wanted: Sequence[Sharding]) -> bool:
    """Fix a node's strategy with these shardings. Return whether it has one."""
    variable = formulation.variables[node]
    matches = np.ones(len(variable.costs), bool)
    for port, state in zip((*variable.operands, *variable.results), wanted, strict=True):
        matches &= port.is_in(state)
    if matches.any():
        fixed[node] = int(matches.argmax())
    return bool(matches.any())


def _complete_strategies(fixed: dict[int, int], formulation: Formulation) -> None:
    price, edges = _neighbour_prices(fixed, formulation), formulation.problem.edges
    leaving: dict[int, list[int]] = defaultdict(list)
    for number, edge in enumerate(edges):
        leaving[edge.source].append(number)
    for role in (Role.SHARED_COPY, Role.OUTPUT):
        for node, variable in enumerate(formulation.variables):
            if variable.role is role:
                # Neighbours that are not fixed yet were priced at their best; from now on they see this choice.
                fixed[node] = int(price[node].argmin())
                for edge in (edges[number] for number in leaving[node]):
                    if edge.target not in fixed:
                        price[edge.target] += edge.matrix[edge.source_class[fixed[node]], edge.target_class]


def _neighbour_prices(fixed: Mapping[int, int], formulation: Formulation) -> list[np.ndarray]:
    """Return by node and strategy the cost of edges to fixed nodes, plus the least cost of edges to the others."""
    price = [np.zeros(len(v.costs)) for v in formulation.variables]
    for edge in formulation.problem.edges:
        if edge.source in fixed and edge.target not in fixed:
            price[edge.target] += edge.matrix[edge.source_class[fixed[edge.source]], edge.target_class]
        elif edge.target in fixed and edge.source not in fixed:
            price[edge.source] += edge.matrix[edge.source_class, edge.target_class[fixed[edge.target]]]
        elif edge.source not in fixed:
            price[edge.source] += edge.matrix[edge.source_class][:, edge.target_class].min(axis=1)
    return price
