"""Standard layouts that people write by hand, by name: what they split, and what a plan that keeps to one is held to.

replicated  every device computes everything
dp          data parallel: the first dim of each `input` is split over all axes; parameters are replicated
zero1       dp, with the update and its states split over all axes (Rajbhandari et al., "ZeRO", SC 2020)
fsdp        dp, with parameters stored split over all axes and gathered before each use
hsdp        dp, with parameters stored split over all axes but the first, along which they are replicated
tp          Megatron tensor parallel: products with weights are column or row parallel (`planner.judge.megatron`).
            Propagation decides the rest, and parameters are stored as they are read. A fused product for q, k and v is
            gathered where it is sliced (the paper's weight with interleaved heads is another graph)
dp+tp       dp over the first axis, tp over the others
fsdp+tp     dp+tp, with parameters stored split over the first axis too

In all of them an update runs, and its optimizer states and accumulators are stored, in the sharding of the parameter
that it updates; with zero1, of the parameter of fsdp.

A plan that keeps to a layout (`pin_layout`) has its graph inputs as the layout stores them, and its products and
attention of the forward and backward pass split as in the layout: where the work is. The rest is the solver's: norms
and elementwise ops (and so sequence parallelism), when a parameter is gathered and for how long, how gradients are
reduced, the update. The layout itself is among these plans, so that the best of them is no slower than it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from planner.choose.hardware.efficiency import work_class
from planner.errors import InvalidRequest
from planner.ir.graph import Annotation, Graph, Op
from planner.ir.indexing import LoopKind, Option
from planner.ir.mesh import Mesh
from planner.ir.pins import list_pins
from planner.ir.sharding import Axes, Reduction, Sharding
from planner.judge.megatron import split_products, split_sequences
from planner.rewrite.accumulate import find_batch
from planner.rewrite.best_effort import complete_options


@dataclass(frozen=True)
class Baseline:
    """A named layout: shardings of the graph inputs, options of the ops, and shardings of outputs that it pins."""

    name: str
    inputs: Mapping[str, Sharding]
    options: Mapping[str, Option]
    outputs: Mapping[int, Sharding] = field(default_factory=dict)


LayoutName = Literal["replicated", "dp", "zero1", "fsdp", "hsdp", "tp", "dp+tp", "fsdp+tp"]
AxisChoice = Literal["none", "all", "first", "others"]
"""Which of the mesh axes of two devices or more."""


@dataclass(frozen=True)
class StandardLayout:
    """How a standard layout uses the mesh axes of two devices or more.

    title    its name among the layouts that every plan is compared with; None: it is not among them
    data     the axes that split the batch
    tensor   the axes that split products with weights
    stored   the axes over which parameters are stored split
    updated  the axes over which the update and its states are split
    splits_sequences  whether what lies between products is split over the axes for tensors, along the sequence
    adds_partial      whether gradients are added up in each micro-batch as they are computed, and reduced by the update
    """

    title: str | None
    data: AxisChoice = "none"
    tensor: AxisChoice = "none"
    stored: AxisChoice = "none"
    updated: AxisChoice = "none"
    splits_sequences: bool = False
    adds_partial: bool = False

    @property
    def least_axes(self) -> int:
        return 2 if "others" in (self.tensor, self.stored) else 0


LAYOUTS: Mapping[LayoutName, StandardLayout] = {
    "replicated": StandardLayout("fully replicated"),
    "dp": StandardLayout("data parallel", data="all"),
    "zero1": StandardLayout(None, data="all", updated="all"),
    "fsdp": StandardLayout("FSDP", data="all", stored="all", updated="all"),
    "hsdp": StandardLayout(None, data="all", stored="others", updated="others"),
    "tp": StandardLayout("Megatron tensor parallel", tensor="all"),
    "dp+tp": StandardLayout("DPxTP", data="first", tensor="others"),
    "fsdp+tp": StandardLayout(None, data="first", tensor="others", stored="first", updated="first"),
}


def list_baselines(graph: Graph, mesh: Mesh) -> list[Baseline]:
    """Return the standard layouts that plans are compared with, as far as they exist on the mesh."""
    compared = (layout for layout in LAYOUTS.values() if layout.title and can_have_layout(layout, mesh))
    work: dict[tuple[AxisChoice, AxisChoice], Baseline] = {}
    made = []
    for layout in compared:
        key = layout.data, layout.tensor
        work[key] = work.get(key) or _split_work(layout, graph, mesh)
        made.append(_store(layout, work[key], graph, mesh=mesh))
    return made


def pin_layout(graph: Graph, mesh: Mesh, name: LayoutName) -> Graph:
    """Return the graph with the pins of a standard layout. What the graph pins itself stays as it is.

    Raises InvalidRequest as `check_layout` does.
    """
    check_layout(graph, mesh, name)
    made = build_layout(graph, mesh, name)
    own = {value for value, pins in list_pins(graph, mesh).items() if any(pin.user is None for pin in pins)}
    stored = (Annotation(value, sharding) for value, sharding in made.inputs.items() if value not in own)
    ops = (replace(op, option=made.options[op.id]) if _is_pinned(op) else op for op in graph.ops)
    return replace(graph, ops=tuple(ops), annotations=(*graph.annotations, *stored))


def build_layout(graph: Graph, mesh: Mesh, name: LayoutName) -> Baseline:
    """Return the shardings and options of a standard layout that the mesh can have."""
    return lay_out(LAYOUTS[name], graph, mesh)


def lay_out(layout: StandardLayout, graph: Graph, mesh: Mesh) -> Baseline:
    """Return the shardings and options of a layout that the mesh can have."""
    return _store(layout, _split_work(layout, graph, mesh), graph, mesh=mesh)


def _is_pinned(op: Op) -> bool:
    return op.option is None and op.phase != "update" and work_class(op) is not None


def check_layout(graph: Graph, mesh: Mesh, name: LayoutName) -> None:
    """Raise InvalidRequest for a layout that the graph cannot have on the mesh."""
    layout = LAYOUTS[name]
    if not can_have_layout(layout, mesh):
        wanted = f"a mesh with {layout.least_axes} axes of two devices or more"
        raise InvalidRequest("layout", where=f"mesh {mesh.notation}", got=name, wanted=wanted)
    data, tensor = _choose_axes(mesh, layout.data), _choose_axes(mesh, layout.tensor)
    parts, batch = mesh.group_size(data), find_batch(graph)
    if parts > 1 and (batch is None or batch % parts):
        got = f"{name}, and {'no batch' if batch is None else f'a batch of {batch}'}"
        raise InvalidRequest("layout", where=f"mesh {mesh.notation}", got=got, wanted=f"a batch that {parts} divides")
    if tensor and not split_products(graph, mesh, tensor):
        wanted = f"products with weights that {mesh.group_size(tensor)} devices can split"
        raise InvalidRequest("layout", where=f"mesh {mesh.notation}", got=name, wanted=wanted)


def can_have_layout(layout: StandardLayout, mesh: Mesh) -> bool:
    """Return whether a mesh has the axes that a layout needs."""
    return len(_long_axes(mesh)) >= layout.least_axes


def _long_axes(mesh: Mesh) -> Axes:
    return tuple(axis for axis, size in enumerate(mesh.shape) if size > 1)


def _choose_axes(mesh: Mesh, choice: AxisChoice) -> Axes:
    axes = _long_axes(mesh)
    return {"none": (), "all": axes, "first": axes[:1], "others": axes[1:]}[choice]


def _store(layout: StandardLayout, plain: Baseline, graph: Graph, *, mesh: Mesh) -> Baseline:
    """Return a layout whose work is split as in `plain`, with parameters, update and states as they are stored."""
    stored = _store_split(plain, graph, mesh, over=_choose_axes(mesh, layout.stored))
    split = _store_split(plain, graph, mesh, over=_choose_axes(mesh, layout.updated))
    added = _find_partial(plain, graph) if layout.adds_partial else {}
    updated = _update_as_stored(replace(split, options={**split.options, **added}), graph, added=added)
    inputs = dict(updated.inputs) | {name: stored.inputs[name] for name in _parameters(graph)}
    return replace(updated, name=layout.title or "", inputs=inputs)


def _parameters(graph: Graph) -> list[str]:
    return [entry.id for entry in graph.inputs if entry.kind == "parameter"]


def _split_work(layout: StandardLayout, graph: Graph, mesh: Mesh) -> Baseline:
    """Return a layout with the batch and the products split; parameters are stored as they are read."""
    data, tensor = _choose_axes(mesh, layout.data), _choose_axes(mesh, layout.tensor)
    inputs = {}
    for entry in graph.inputs:
        shape = entry.type.shape
        batch = _dividing_axes(data, shape[0], mesh) if entry.kind == "input" and shape else ()
        axes = [batch, *((),) * (len(shape) - 1)] if shape else []
        if layout.splits_sequences and entry.kind == "input" and len(shape) > 2:
            axes[1] = _dividing_axes(tensor, shape[1], mesh)
        inputs[entry.id] = Sharding(tuple(axes))
    split = split_sequences if layout.splits_sequences else split_products
    options = complete_options(graph, mesh, split(graph, mesh, tensor) if tensor else {}, inputs=inputs)
    return Baseline("", {**inputs, **_layouts_as_read(graph, options)}, options)


def _layouts_as_read(graph: Graph, options: Mapping[str, Option]) -> dict[str, Sharding]:
    """Return for each parameter the sharding in which the first op reads it."""
    parameters = set(_parameters(graph))
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


def _store_split(plain: Baseline, graph: Graph, mesh: Mesh, *, over: Axes) -> Baseline:
    """Store parameters split over those of some axes that do not split them yet: along the first dim that can be split
    so evenly, else at all.
    """
    if not over:
        return plain
    inputs = dict(plain.inputs)
    for entry in graph.inputs:
        if entry.kind != "parameter":
            continue
        kept = inputs[entry.id].split_axes or ((),) * len(entry.type.shape)
        used = {axis for axes in kept for axis in axes}
        free = tuple(axis for axis in over if axis not in used)
        parts = [mesh.group_size((*axes, *free)) for axes in kept]
        sizes = list(zip(entry.type.shape, parts, strict=True))
        fitting = [d for d, (n, most) in enumerate(sizes) if n % most == 0]
        fitting = fitting or [d for d, (n, most) in enumerate(sizes) if n >= most]
        if free and fitting:
            split = ((*axes, *free) if d == fitting[0] else axes for d, axes in enumerate(kept))
            inputs[entry.id] = Sharding(tuple(split))
    return replace(plain, inputs=inputs)


def _find_partial(plain: Baseline, graph: Graph) -> dict[str, Option]:
    """Return the options of ops that add up what is computed in partial sums, for adding these.

    Ops of one operand between the two, such as casts, keep the partial sums where they are linear.
    """
    made = {value: (op, number) for op in graph.ops for number, value in enumerate(op.values)}
    options: dict[str, Option] = {}
    for op in graph.ops:
        chain = [op] if op.accumulates else []
        while chain and chain[-1].inputs[0] in made:
            source, number = made[chain[-1].inputs[0]]
            summed = source.rule.result_sharding(number, plain.options[source.id])
            if summed.partial and summed.reduction is Reduction.SUM:
                options |= _carry_sums(reversed(chain), summed)
            chain = [*chain, source] if _is_linear_in_one(source) and not summed.partial else []
    return options


def _carry_sums(chain: Iterable[Op], summed: Sharding) -> Iterator[tuple[str, Option]]:
    """Yield the options with which ops, each linear in the result of the one before, leave partial sums as they are."""
    for op in chain:
        kept = {
            dim.loops[0]: axes for dim, axes in zip(op.rule.operands[0], summed.split_axes, strict=True) if dim.loops
        }
        linear = {loop.name: summed.partial for loop in op.rule.loops if loop.kind is LoopKind.LINEAR}
        option = tuple((kept | linear).get(loop.name, ()) for loop in op.rule.loops)
        summed = op.rule.result_sharding(0, option)
        yield op.id, option


def _is_linear_in_one(op: Op) -> bool:
    """Return whether an op, such as a cast, is linear in its only operand, and reduces nothing."""
    kinds = {loop.kind for loop in op.rule.loops}
    return len(op.inputs) == 1 and LoopKind.LINEAR in kinds and kinds <= {LoopKind.LINEAR, LoopKind.PARALLEL}


def _update_as_stored(layout: Baseline, graph: Graph, *, added: Mapping[str, Option]) -> Baseline:
    """Shard the ops of the update, from the new parameters back to the states that they read, like the parameters.

    Casts of gradients are too, so that these are reduced before.

    added  the options of ops that add up gradients in another way
    """
    inputs, options = dict(layout.inputs), dict(layout.options)
    states = {entry.id for entry in graph.inputs if entry.kind == "optimizer_state"}
    shardings = {entry.next: inputs[entry.id] for entry in graph.inputs if entry.next and entry.kind == "parameter"}
    for op in reversed(graph.ops):
        updated = [
            (term, shardings[value])
            for term, value in zip(op.rule.results, op.values, strict=True)
            if value in shardings
        ]
        if not updated or not (op.phase == "update" or op.accumulates or _is_linear_in_one(op)):
            continue
        term, stored = updated[0]
        loops = {dim.loops[0]: axes for dim, axes in zip(term, stored.split_axes, strict=True) if dim.loops}
        options[op.id] = added.get(op.id) or tuple(loops.get(loop.name, ()) for loop in op.rule.loops)
        for operand, value in enumerate(op.inputs):
            read = op.rule.operand_sharding(operand, options[op.id])
            shardings.setdefault(value, read)
            if value in states:
                inputs[value] = read
    return Baseline(layout.name, inputs, options)
