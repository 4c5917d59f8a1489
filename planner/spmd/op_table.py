"""The dialect's ops, a row each: group collectives, point-to-point and halo moves, queries.

n is the size of the device group over `mesh_axes`. `block` widens a cut beyond ceil(dim / n): on a shard that is
itself short, the blocks of the whole tensor differ from those of the shard (16 over 3x2: the last shard has 4
elements, cut 3,1 in the whole and 2,2 by itself). `only` lists the in-group devices on whose path the call stands;
pure collectives have none, since every device of a group must reach them. `cast` states a shape the inference cannot
know (upstream's tensor.cast); it is checked when run. So are the sizes that an update_halo declares where its halos
are of sizes told at run time: refreshed as they are, they leave the operand's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from planner.spmd import attributes as check
from planner.spmd.halo import halo_types
from planner.spmd.op_def import AttributeCheck, CallSignature, ElementRule, ShapeRule, SpmdOpDef
from planner.spmd.types import INDEX, LocalType, divide_dim, multiply_dims

Types = tuple[LocalType, ...]


def _same(s: CallSignature) -> Types:
    return (s.input,)


def _gathered(s: CallSignature) -> Types:
    dim = s.attrs["gather_axis"]
    return (s.input.with_dim(dim, multiply_dims(s.input.shape[dim], s.group)),)


def _sliced(key: str) -> Callable[[CallSignature], Types]:
    def infer(s: CallSignature) -> Types:
        dim, block = s.attrs[key], s.attrs["block"]
        size = s.input.shape[dim]
        if block is not None and None not in (size, s.group) and block * (s.group or 0) < (size or 0):
            s.refuse("block size", block, f"at least ceil({size} / {s.group}), so that nothing is left over")
        return (s.input.with_dim(dim, divide_dim(size, s.group, block)),)

    return infer


def _exchanged(s: CallSignature) -> Types:
    (cut,) = _sliced("split_axis")(s)
    dim = s.attrs["concat_axis"]
    return (cut.with_dim(dim, multiply_dims(cut.shape[dim], s.group)),)


def _indices(s: CallSignature) -> Types:
    return (INDEX,) * (len(s.attrs["axes"]) or len(s.mesh.axes))


def _index(s: CallSignature) -> Types:
    return (INDEX,)


_EXACT, _ALIKE, _SUM = ShapeRule.EXACT, ShapeRule.COMPATIBLE, ElementRule.ACCUMULATOR
_GROUP: Mapping[str, AttributeCheck] = {"mesh_axes": check.axes}
_ROOTED: Mapping[str, AttributeCheck] = {**_GROUP, "root": check.device}
_REDUCE: Mapping[str, AttributeCheck] = {"reduction": check.reduction, "reducer": check.name}
_SCATTER: Mapping[str, AttributeCheck] = {"scatter_axis": check.dim, "block": check.block}

COLLECTIVES = (
    SpmdOpDef("all_gather", _gathered, {**_GROUP, "gather_axis": check.dim}),
    SpmdOpDef("all_reduce", _same, {**_GROUP, **_REDUCE}, shapes=_ALIKE, element=_SUM, allows_scalars=True),
    SpmdOpDef("all_slice", _sliced("slice_axis"), {**_GROUP, "slice_axis": check.dim, "block": check.block}),
    SpmdOpDef(
        "all_to_all",
        _exchanged,
        {**_GROUP, "split_axis": check.dim, "concat_axis": check.dim, "block": check.block},
    ),
    SpmdOpDef("broadcast", _same, _ROOTED, ("root",), shapes=_EXACT, allows_scalars=True),
    SpmdOpDef("gather", _gathered, {**_ROOTED, "gather_axis": check.dim}, ("root",)),
    SpmdOpDef("reduce", _same, {**_ROOTED, **_REDUCE}, ("root",), shapes=_EXACT, element=_SUM, allows_scalars=True),
    SpmdOpDef("reduce_scatter", _sliced("scatter_axis"), {**_GROUP, **_REDUCE, **_SCATTER}, element=_SUM),
    SpmdOpDef("scatter", _sliced("scatter_axis"), {**_ROOTED, **_SCATTER}, ("root",)),
)
MOVES = (
    SpmdOpDef(
        "send",
        _same,
        {**_GROUP, "destination": check.device, "only": check.devices},
        ("destination",),
        shapes=_EXACT,
        is_pure=False,
    ),
    SpmdOpDef(
        "recv",
        _same,
        {**_GROUP, "source": check.any_device, "only": check.devices},
        ("source",),
        shapes=_EXACT,
        is_pure=False,
    ),
    SpmdOpDef(
        "shift",
        _same,
        {**_GROUP, "shift_axis": check.shift_axis, "offset": check.offset, "rotate": check.flag},
        shapes=_ALIKE,
        may_be_identity=False,
    ),
    SpmdOpDef(
        "collective_permute",
        _same,
        {**_GROUP, "pairs": check.pairs, "target": check.target_mesh},
        shapes=_EXACT,
        allows_scalars=True,
        may_be_identity=False,
    ),
    SpmdOpDef(
        "update_halo",
        halo_types,
        {
            "split_axes": check.axes_lists,
            "source_halo_sizes": check.halo,
            "destination_halo_sizes": check.halo,
        },
        ("source_halo_sizes", "destination_halo_sizes"),
        tensors=(1, 2),
        shapes=_ALIKE,
        may_be_identity=False,
    ),
)
LOCAL = (SpmdOpDef("cast", _same, shapes=_ALIKE, allows_scalars=True, may_be_identity=False),)
QUERIES = tuple(
    SpmdOpDef(name, infer, attrs, dynamic, (0, 0), may_be_identity=False)
    for name, infer, attrs, dynamic in (
        ("mesh_shape", _indices, {"axes": check.axes}, ()),
        ("process_multi_index", _indices, {"axes": check.axes}, ()),
        ("process_linear_index", _index, {}, ()),
        ("idx", _index, {"axis": check.axis}, ()),
        ("size", _index, {"axis": check.axis}, ()),
        (
            "shard_shape",
            lambda s: (INDEX,) * len(s.attrs["shape"]),
            {"shape": check.shape, "sharding": check.sharding, "device": check.linear_device},
            ("shape", "device"),
        ),
    )
)
SPMD_OPS: Mapping[str, SpmdOpDef] = MappingProxyType(
    {row.name: row for row in (*COLLECTIVES, *MOVES, *LOCAL, *QUERIES)}
)
MESH_SHAPE_OPS = ("idx", "size")
"""RFC queries: they name no mesh but take that of the function they stand in."""
