"""Passes that move collectives across local ops.

An op that computes every element from those at the same place (elementwise) can run on parts of its operands: its row,
bound to the part's shape, is the same op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from planner.ir.indexing import Loop, LoopKind
from planner.ir.mesh import Mesh
from planner.ops import bind_op
from planner.ops.elementwise import OP_DEFS
from planner.rewrite.optimize_spmd.program_view import ProgramView, Replacement, attribute, mesh_axes
from planner.spmd import LocalOp, LocalType, SpmdCall, SpmdInstruction
from planner.spmd.types import divide_dim, group_size

ELEMENTWISE = frozenset(row.name for row in OP_DEFS)
Part = tuple[tuple[SpmdInstruction, ...], str]
"""Instructions, and the name of the part that they make."""


def reassociate_all_reduce(view: ProgramView, done: SpmdInstruction) -> Replacement | None:
    """Reduce once, after an op that is linear in its operands, in place of every operand before it."""
    for calls, loop in _find_linear_groups(view, done, "all_reduce"):
        assert isinstance(done, LocalOp)
        others = [name for place, name in enumerate(done.operands) if place not in loop.operands]
        if all(view.agreed_axes[name] >= set(mesh_axes(calls[0])) for name in others):
            return _swap(view, done, calls, loop=loop, op=done)
    return None


def reassociate_reduce_scatter(view: ProgramView, done: SpmdInstruction) -> Replacement | None:
    """Reduce and scatter once, after an elementwise op that is linear in all operands."""
    for calls, loop in _find_linear_groups(view, done, "reduce_scatter"):
        assert isinstance(done, LocalOp)
        same_dim = len({(attribute(call, "scatter_axis"), attribute(call, "block")) for call in calls}) == 1
        if same_dim and len(loop.operands) == len(done.operands) and is_elementwise(done):
            whole = bind_part(view, done, view.type(calls[0].operands[0]).shape)
            return None if whole is None else _swap(view, done, calls, loop=loop, op=whole)
    return None


def _find_linear_groups(view: ProgramView, done: SpmdInstruction, kind: str) -> list[tuple[list[SpmdCall], Loop]]:
    """Return the linear loops of an op whose operands are all made by equal reductions that nothing else reads."""
    if not isinstance(done, LocalOp) or len(done.results) != 1:
        return []
    groups = []
    for loop, axes in zip(done.op.rule.loops, done.option, strict=True):
        if loop.kind is LoopKind.LINEAR and not axes:
            found = [view.find_call(done.operands[place], kind, like=done) for place in loop.operands]
            calls = [call for call in found if call is not None and _is_reassociable(view, call, done, loop=loop)]
            if len(calls) == len(found) and len({frozenset(mesh_axes(call)) for call in calls}) == 1:
                groups.append((calls, loop))
    return groups


def _is_reassociable(view: ProgramView, call: SpmdCall, done: LocalOp, *, loop: Loop) -> bool:
    read_here = done.operands.count(call.results[0]) == view.reads[call.results[0]]
    same_kind = attribute(call, "reduction") == loop.reduction
    same_element = view.type(call.operands[0]).dtype == call.types[0].dtype == done.op.results[0].dtype
    return read_here and same_kind and same_element and not set(mesh_axes(call)) & _split_axes(done)


def _split_axes(done: LocalOp) -> set[int]:
    return {axis for axes in done.option for axis in axes}


def _swap(view: ProgramView, done: LocalOp, calls: Sequence[SpmdCall], *, loop: Loop, op: LocalOp) -> Replacement:
    """Return the op on what the calls read, and one call on its result."""
    before = dict(zip(loop.operands, (call.operands[0] for call in calls), strict=True))
    operands = tuple(before.get(place, name) for place, name in enumerate(done.operands))
    partial = view.fresh_name(done.results[0])
    result = view.type(done.results[0])
    call = replace(calls[0], operands=(partial,), results=done.results, types=(result,))
    return Replacement((replace(op, operands=operands, results=(partial,)), call))


def sink_all_gather(view: ProgramView, done: SpmdInstruction) -> Replacement | None:
    """Gather the result of an elementwise op in place of its operands, which nothing else reads."""
    return _split(view, done, "all_gather", _part_without_cut)


def decompose_all_reduce(view: ProgramView, done: SpmdInstruction) -> Replacement | None:
    """Make a reduce_scatter of the all_reduce before an elementwise op, and gather the op's result."""
    return _split(view, done, "all_reduce", _part_with_cut)


MakePart = Callable[[ProgramView, LocalOp, str, SpmdCall], Part | None]


def _split(view: ProgramView, done: SpmdInstruction, kind: str, make_part: MakePart) -> Replacement | None:
    if not isinstance(done, LocalOp) or len(done.results) != 1 or _split_axes(done) or not is_elementwise(done):
        return None
    for name in done.operands:
        call = view.find_call(name, kind, like=done)
        gathers = [] if call is None else _list_gathers(view, call)
        for gather in gathers:
            parts = {operand: make_part(view, done, operand, gather) for operand in done.operands}
            replacement = _run_on_parts(view, done, gather, parts=parts)
            if replacement is not None:
                return replacement
    return None


def _list_gathers(view: ProgramView, call: SpmdCall) -> list[SpmdCall]:
    """Return the all_gathers that may end the split: the call itself, or one along each even dim, the last first."""
    if call.op == "all_gather":
        return [call]
    kind, kept = call.types[0], {key: call.attrs[key] for key in ("mesh",) if key in call.attrs}
    gathers = []
    for dim in reversed(range(kind.rank)):
        size = divide_dim(kind.shape[dim], group_size(_mesh(view, call), mesh_axes(call)))
        if size and mesh_axes(call):
            attrs = {**kept, "mesh_axes": mesh_axes(call), "gather_axis": dim}
            part = view.type(call.operands[0])
            gathers.append(
                SpmdCall("all_gather", (call.operands[0],), call.results, (part.with_dim(dim, size),), attrs)
            )
    return gathers


def _mesh(view: ProgramView, call: SpmdCall) -> Mesh:
    return view.program.meshes[view.program.mesh_name(call)]


def _part_shape(view: ProgramView, done: LocalOp, gather: SpmdCall) -> tuple[int | None, ...]:
    kind, dim = view.type(done.results[0]), int(attribute(gather, "gather_axis"))
    return kind.with_dim(dim, divide_dim(kind.shape[dim], group_size(_mesh(view, gather), mesh_axes(gather)))).shape


def _part_without_cut(view: ProgramView, done: LocalOp, name: str, gather: SpmdCall) -> Part | None:
    """Return the part of an operand that an equal all_gather reads, or of a constant."""
    made = view.find_call(name, "all_gather", like=done)
    if made is None:
        return _part_of_constant(view, done, name, gather=gather)
    same = [mesh_axes(made), attribute(made, "gather_axis")] == [mesh_axes(gather), attribute(gather, "gather_axis")]
    single = view.reads[name] == done.operands.count(name)
    return ((), made.operands[0]) if same and single else None


def _part_with_cut(view: ProgramView, done: LocalOp, name: str, gather: SpmdCall) -> Part | None:
    """Return an operand's part: scattered by its reduction, gathered, constant, or cut from what all hold alike."""
    if part := _part_without_cut(view, done, name, gather):
        return part
    axes, dim, kind = mesh_axes(gather), attribute(gather, "gather_axis"), view.type(name)
    size = _part_shape(view, done, gather)[dim]
    part_type, new = kind.with_dim(dim, size), view.fresh_name(name)
    attrs = {key: value for key, value in gather.attrs.items() if key != "gather_axis"}
    reduce = view.find_call(name, "all_reduce", like=done)
    single = view.reads[name] == done.operands.count(name)
    if reduce is not None and single and set(mesh_axes(reduce)) == set(axes):
        attrs |= {key: reduce.attrs[key] for key in ("reduction", "reducer") if key in reduce.attrs}
        return (SpmdCall("reduce_scatter", reduce.operands, (new,), (part_type,), attrs | {"scatter_axis": dim}),), new
    if view.agreed_axes[name] >= set(axes):
        return (SpmdCall("all_slice", (name,), (new,), (part_type,), attrs | {"slice_axis": dim}),), new
    return None


def _part_of_constant(view: ProgramView, done: LocalOp, name: str, *, gather: SpmdCall) -> Part | None:
    made = view.makers.get(name)
    if not isinstance(made, LocalOp) or made.op.op != "full" or _split_axes(made):
        return None
    part = bind_part(view, made, _part_shape(view, done, gather))
    return None if part is None else ((replace(part, results=(new := view.fresh_name(name),)),), new)


def _run_on_parts(
    view: ProgramView, done: LocalOp, gather: SpmdCall, *, parts: dict[str, Part | None]
) -> Replacement | None:
    made = {name: part for name, part in parts.items() if part is not None}
    shape = _part_shape(view, done, gather)
    op = bind_part(view, done, shape) if len(made) == len(parts) else None
    if op is None:
        return None
    result = view.fresh_name(done.results[0])
    run = replace(op, operands=tuple(made[name][1] for name in done.operands), results=(result,))
    last = replace(gather, operands=(result,), results=done.results, types=(view.type(done.results[0]),))
    return Replacement((*(each for part, _ in made.values() for each in part), run, last))


def shrink_constants(view: ProgramView, done: SpmdInstruction) -> Replacement | None:
    """Make the slice of a constant in place of slicing it."""
    if not isinstance(done, SpmdCall) or done.op != "all_slice":
        return None
    made = view.makers.get(done.operands[0])
    if not isinstance(made, LocalOp) or made.op.op != "full" or _split_axes(made):
        return None
    part = bind_part(view, made, done.types[0].shape)
    return None if part is None else Replacement((replace(part, results=done.results),))


def is_elementwise(done: LocalOp) -> bool:
    """Return whether the op computes every element from those at the same place of operands of its result's shape."""
    shapes = {*done.op.rule.shapes[: len(done.operands)], *(kind.shape for kind in done.op.results)}
    return done.op.op in ELEMENTWISE and len(shapes) == 1


def bind_part(view: ProgramView, done: LocalOp, shape: tuple[int | None, ...]) -> LocalOp | None:
    """Return the op on operands and results of another shape; None where a size is unknown or 0."""
    sizes = tuple(size for size in shape if size)
    if len(sizes) < len(shape):
        return None
    read = tuple(LocalType(sizes, view.type(name).dtype).tensor for name in done.operands)
    made = tuple(LocalType(sizes, kind.dtype).tensor for kind in done.op.results)
    rule = bind_op(done.op.op, read, made, attrs=done.op.attrs, notation=done.op.notation)
    return replace(done, op=replace(done.op, results=made, rule=rule), option=((),) * len(rule.loops))
