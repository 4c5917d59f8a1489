"""The dialect's rows of the collectives between shardings, and the words of their calls.

The types of a call, its attributes and what it may be on are those of the collective's row in
`planner.ir.collectives`; the dialect adds only what it calls the dims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from planner.ir.collectives import BASIS, COLLECTIVES, Collective, Kind
from planner.ir.dynamic_dims import is_known
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Shape, Sharding, block_size
from planner.spmd import attributes as check
from planner.spmd.op_def import AttributeCheck, CallSignature, ElementRule, ShapeRule, SpmdOpDef
from planner.spmd.types import LocalType, are_compatible, divide_dim, group_size, multiply_dims

Types = tuple[LocalType, ...]

DIM_NAMES: Mapping[Kind, Mapping[str, str]] = MappingProxyType(
    {
        Kind.ALL_GATHER: {"dim": "gather_axis"},
        Kind.ALL_SLICE: {"dim": "slice_axis"},
        Kind.ALL_TO_ALL: {"dim": "split_axis", "source_dim": "concat_axis"},
        Kind.ALL_REDUCE: {},
        Kind.REDUCE_SCATTER: {"dim": "scatter_axis"},
    }
)
"""The attributes that hold the dims of a collective of the basis: field of `Collective` -> name in the dialect."""

GROUP_ATTRS: Mapping[str, AttributeCheck] = MappingProxyType({"mesh_axes": check.axes})
REDUCTION_ATTRS: Mapping[str, AttributeCheck] = MappingProxyType({"reduction": check.reduction, "reducer": check.name})


def dim_attributes(move: Collective) -> dict[str, int | None]:
    """Return the attributes that hold the dims of a basis move."""
    return {name: getattr(move, field) for field, name in DIM_NAMES[move.kind].items()}


def call_attributes(
    move: Collective, source: Sharding, whole: Shape, *, mesh: Mesh, reduction: Reduction | None = None
) -> dict[str, Any]:
    """Return the attributes of the call of a basis move on local tensors; `whole` is the shape of the tensor.

    Uneven blocks are those of the whole tensor. `reduction` is by default the source's; a sum, the dialect's default,
    is then left out.
    """
    if reduction is None and source.reduction is not Reduction.SUM:
        reduction = source.reduction
    reduced = {"reduction": reduction} if reduction and move.definition.reduces else {}
    attrs: dict[str, Any] = {"mesh_axes": move.axes, **reduced, **dim_attributes(move)}
    if move.definition.appends and move.dim is not None:
        parts = group_size(mesh, move.target(source).split_axes[move.dim])
        size = whole[move.dim] if is_known(whole[move.dim]) else None
        if size is not None and parts is not None and size % parts:
            attrs["block"] = block_size(size, parts)
    return attrs


def same_type(s: CallSignature) -> Types:
    return (s.input,)


def join_along(key: str) -> Callable[[CallSignature], Types]:
    """Infer the type of what all members of a group hold, joined along the dim that attribute `key` names."""

    def infer(s: CallSignature) -> Types:
        return (_multiply(s, s.input, key),)

    return infer


def cut_along(key: str) -> Callable[[CallSignature], Types]:
    """Infer the type of a member's block of a tensor that is cut along the dim that attribute `key` names."""

    def infer(s: CallSignature) -> Types:
        return (_divide(s, key),)

    return infer


def _cut_and_join(cut: str, joined: str) -> Callable[[CallSignature], Types]:
    def infer(s: CallSignature) -> Types:
        return (_multiply(s, _divide(s, cut), joined),)

    return infer


def _multiply(s: CallSignature, kind: LocalType, key: str) -> LocalType:
    dim = s.attrs[key]
    return kind.with_dim(dim, multiply_dims(kind.shape[dim], s.group))


def _divide(s: CallSignature, key: str) -> LocalType:
    dim, block = s.attrs[key], s.attrs["block"]
    size, parts = s.input.shape[dim], s.group
    if isinstance(block, int) and None not in (size, parts) and block * (parts or 0) < (size or 0):
        s.refuse("block size", block, f"at least ceil({size} / {parts}), so that nothing is left over")
    if isinstance(block, list | tuple):
        if not are_compatible(size, block[-1]) or not are_compatible(parts, len(block) - 1):
            s.refuse("offsets of blocks", list(block), f"{parts or 'n'} + 1 of them, {size or 'the dim'} last")
        widths = {stop - start for start, stop in pairwise(block)}
        return s.input.with_dim(dim, widths.pop() if len(widths) == 1 else None)
    return s.input.with_dim(dim, divide_dim(size, parts, block))


def _define(kind: Kind) -> SpmdOpDef:
    """Derive the dialect's row from the collective's."""
    row, names = COLLECTIVES[kind], DIM_NAMES[kind]
    attrs = {**GROUP_ATTRS, **(REDUCTION_ATTRS if row.reduces else {}), **dict.fromkeys(names.values(), check.dim)}
    return SpmdOpDef(
        kind.value,
        _choose_inference(kind),
        attrs | ({"block": check.block} if row.appends else {}),
        shapes=ShapeRule.COVERS if names else ShapeRule.COMPATIBLE,
        element=ElementRule.ACCUMULATOR if row.reduces else ElementRule.SAME,
        allows_scalars=not names,
    )


def _choose_inference(kind: Kind) -> Callable[[CallSignature], Types]:
    names = DIM_NAMES[kind]
    if not names:
        return same_type
    if COLLECTIVES[kind].gathers:
        return join_along(names["dim"])
    return _cut_and_join(names["dim"], names["source_dim"]) if "source_dim" in names else cut_along(names["dim"])


BASIS_OPS = tuple(_define(kind) for kind in BASIS)
