"""Passes that fold collectives in a row into fewer, or into none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.ir.collectives import COLLECTIVES, Kind
from planner.ir.dtypes import is_float
from planner.ir.sharding import Reduction
from planner.rewrite.optimize_spmd.program_view import (
    ProgramView,
    Replacement,
    attribute,
    has_default_blocks,
    mesh_axes,
)
from planner.spmd import INDEX, SpmdCall, SpmdInstruction
from planner.spmd.collectives import DIM_NAMES
from planner.spmd.folding import is_identity, is_pure

# What takes axes from one dim to another has two dims, which would have to agree in both calls.
FOLDED = {kind.value: COLLECTIVES[kind] for kind in DIM_NAMES if len(COLLECTIVES[kind].fields) < 2}


def fold_collectives(view: ProgramView, done: SpmdInstruction) -> Replacement | None:
    """Fold a query of known sizes into numbers, a collective over no axes into its operand, and two of one kind in a
    row into one.
    """
    if not isinstance(done, SpmdCall):
        return None
    if done.op in ("mesh_shape", "size"):
        return _fold_sizes(view, done)
    if done.operands and is_identity(done, view.type(done.operands[0])):
        return Replacement((), {done.results[0]: done.operands[0]})
    first = view.find_call(done.operands[0], done.op, like=done) if done.op in FOLDED else None
    if first is None or view.reads[done.operands[0]] > 1 or not _can_follow(view, first, done):
        return None
    axes = FOLDED[done.op].fold_axes(mesh_axes(first), mesh_axes(done))
    if axes is None:
        return None
    attrs = {**done.attrs, "mesh_axes": axes}
    return Replacement((replace(done, operands=first.operands, attrs=attrs),))


def _fold_sizes(view: ProgramView, done: SpmdCall) -> Replacement | None:
    """Return numbers for the sizes of a query that are known, and a query of the others."""
    attrs: dict[str, Any] = dict(done.attrs)
    mesh = view.program.meshes[view.program.mesh_name(done)]
    listed = (attrs["axis"],) if done.op == "size" else tuple(attrs.get("axes") or range(len(mesh.axes)))
    sizes = [mesh.axes[axis].size for axis in listed]
    if all(size is None for size in sizes):
        return None
    on = {"mesh": view.program.mesh_name(done)}
    rows = list(zip(done.results, listed, sizes, strict=True))
    constants = [
        SpmdCall("constant", (), (name,), (INDEX,), {**on, "value": size}) for name, _, size in rows if size is not None
    ]
    left = [(name, axis) for name, axis, size in rows if size is None]
    query = replace(
        done,
        results=tuple(name for name, _ in left),
        types=(INDEX,) * len(left),
        attrs={**attrs, "axes": tuple(axis for _, axis in left)},
    )
    return Replacement((*constants, query) if left else tuple(constants))


def _can_follow(view: ProgramView, first: SpmdCall, second: SpmdCall) -> bool:
    """Return whether two calls of one kind, of different axes, do the same along the same dim, on equal blocks."""
    keys = [*DIM_NAMES[Kind(first.op)].values(), "reduction"]
    if set(mesh_axes(first)) & set(mesh_axes(second)) or any(
        attribute(first, key) != attribute(second, key) for key in keys
    ):
        return False
    if FOLDED[first.op].reduces and not _is_associative(first, second):
        return False
    if not FOLDED[first.op].appends:
        return True
    size = view.type(first.operands[0]).shape[int(attribute(first, _dim_key(first)))]
    return all(has_default_blocks(call, size) for call in (first, second))


def _dim_key(call: SpmdCall) -> str:
    return DIM_NAMES[Kind(call.op)]["dim"]


def _is_associative(first: SpmdCall, second: SpmdCall) -> bool:
    """Return whether the terms may be reduced at once: a generic reduction or an integer average may not."""
    kind, dtype = attribute(first, "reduction"), first.types[0].dtype
    exact = kind != Reduction.AVERAGE or is_float(dtype)
    return kind != "generic" and exact and dtype == second.types[0].dtype


def cancel_gather_slice(view: ProgramView, done: SpmdInstruction) -> Replacement | None:
    """Cancel an all_slice of an all_gather, and an all_gather of an all_slice of what the group holds alike."""
    if not isinstance(done, SpmdCall) or done.op not in ("all_gather", "all_slice"):
        return None
    other = "all_slice" if done.op == "all_gather" else "all_gather"
    first = view.find_call(done.operands[0], other, like=done)
    if first is None or mesh_axes(first) != mesh_axes(done):
        return None
    dims = [attribute(call, _dim_key(call)) for call in (first, done)]
    before = first.operands[0]
    gather, cut = (done, first) if other == "all_slice" else (first, done)
    alike = gather is first or view.agreed_axes[before] >= set(mesh_axes(done))
    size = gather.types[0].shape[dims[0]]
    if dims[0] != dims[1] or not alike or done.types != (view.type(before),) or not has_default_blocks(cut, size):
        return None
    return Replacement((), {done.results[0]: before})


def form_reduce_scatter(view: ProgramView, done: SpmdInstruction) -> Replacement | None:
    """Make a reduce_scatter of an all_slice of an all_reduce; axes that are not cut are reduced on the smaller part."""
    if not isinstance(done, SpmdCall) or done.op != "all_slice":
        return None
    reduce = view.find_call(done.operands[0], "all_reduce", like=done)
    if reduce is None or view.reads[done.operands[0]] > 1 or not set(mesh_axes(done)) <= set(mesh_axes(reduce)):
        return None
    rest = tuple(axis for axis in mesh_axes(reduce) if axis not in mesh_axes(done))
    if rest and not _is_associative(reduce, reduce):
        return None
    attrs: dict[str, Any] = {key: value for key, value in done.attrs.items() if key != "slice_axis"}
    attrs |= {key: reduce.attrs[key] for key in ("reduction", "reducer") if key in reduce.attrs}
    scattered = view.fresh_name(done.results[0]) if rest else done.results[0]
    attrs["scatter_axis"] = attribute(done, "slice_axis")
    scatter = SpmdCall("reduce_scatter", reduce.operands, (scattered,), done.types, attrs)
    after = replace(reduce, operands=(scattered,), results=done.results, types=done.types)
    return Replacement((scatter, replace(after, attrs={**reduce.attrs, "mesh_axes": rest})) if rest else (scatter,))


def eliminate_common_collectives(view: ProgramView, done: SpmdInstruction) -> Replacement | None:
    """Read the first of two equal pure calls in place of the second."""
    if not isinstance(done, SpmdCall) or not is_pure(done):
        return None
    first = view.find_first_equal(done)
    return None if first is done else Replacement((), dict(zip(done.results, first.results, strict=True)))
