"""The dialect's ops, a row each: group collectives, point-to-point and halo moves, queries.

n is the size of the device group over `mesh_axes`. `block` sets the size of the blocks of a cut where it is not
ceil(dim / n), or lists the n + 1 offsets of the blocks: on a shard that is itself short, the blocks of the whole
tensor differ from those of the shard. (With 16 elements over 3x2 the last shard has 4, which the whole tensor cuts
3,1 and the shard by itself 2,2.) `only` lists the in-group devices on whose path the call stands; pure collectives
have none, because every device of a group must reach them. `cast` states a shape that cannot be inferred (upstream's
tensor.cast), and is checked when it runs; `constant` is a number. So are the sizes that an update_halo declares where
the sizes of its halos are known only at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from planner.spmd import attributes as check
from planner.spmd.collectives import BASIS_OPS, GROUP_ATTRS, REDUCTION_ATTRS, cut_along, join_along, same_type
from planner.spmd.halo import halo_types
from planner.spmd.op_def import AttributeCheck, CallSignature, ElementRule, ShapeRule, SpmdOpDef
from planner.spmd.types import INDEX, LocalType

Types = tuple[LocalType, ...]


def _indices(s: CallSignature) -> Types:
    return (INDEX,) * (len(s.attrs["axes"]) or len(s.mesh.axes))


def _index(s: CallSignature) -> Types:
    return (INDEX,)


_EXACT, _ALIKE, _SUM = ShapeRule.EXACT, ShapeRule.COMPATIBLE, ElementRule.ACCUMULATOR
_ROOTED: Mapping[str, AttributeCheck] = {**GROUP_ATTRS, "root": check.device}
_REDUCED: Mapping[str, AttributeCheck] = {**_ROOTED, **REDUCTION_ATTRS}

ROOTED = (
    SpmdOpDef("broadcast", same_type, _ROOTED, ("root",), shapes=_EXACT, allows_scalars=True),
    SpmdOpDef("gather", join_along("gather_axis"), {**_ROOTED, "gather_axis": check.dim}, ("root",)),
    SpmdOpDef("reduce", same_type, _REDUCED, ("root",), shapes=_EXACT, element=_SUM, allows_scalars=True),
    SpmdOpDef(
        "scatter", cut_along("scatter_axis"), {**_ROOTED, "scatter_axis": check.dim, "block": check.block}, ("root",)
    ),
)
GROUP_OPS = tuple(sorted((*BASIS_OPS, *ROOTED), key=lambda row: row.name))
MOVES = (
    SpmdOpDef(
        "send",
        same_type,
        {**GROUP_ATTRS, "destination": check.device, "only": check.devices},
        ("destination",),
        shapes=_EXACT,
        is_pure=False,
    ),
    SpmdOpDef(
        "recv",
        same_type,
        {**GROUP_ATTRS, "source": check.any_device, "only": check.devices},
        ("source",),
        shapes=_EXACT,
        is_pure=False,
    ),
    SpmdOpDef(
        "shift",
        same_type,
        {**GROUP_ATTRS, "shift_axis": check.shift_axis, "offset": check.offset, "rotate": check.flag},
        shapes=_ALIKE,
        may_be_identity=False,
    ),
    SpmdOpDef(
        "collective_permute",
        same_type,
        {**GROUP_ATTRS, "pairs": check.pairs, "target": check.target_mesh},
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
LOCAL = (
    SpmdOpDef("cast", same_type, shapes=_ALIKE, allows_scalars=True, may_be_identity=False),
    SpmdOpDef("constant", _index, {"value": check.number}, tensors=(0, 0), may_be_identity=False),
)
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
SPMD_OPS: Mapping[str, SpmdOpDef] = MappingProxyType({row.name: row for row in (*GROUP_OPS, *MOVES, *LOCAL, *QUERIES)})
MESH_SHAPE_OPS = ("idx", "size")
"""The RFC's queries of the mesh of the function they stand in; they do not name a mesh."""
