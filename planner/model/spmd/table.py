"""The dialect's ops, a row each: group collectives, point-to-point and halo moves, queries.

n is the size of the device group over `mesh_axes`. `block` widens a cut beyond ceil(dim / n): on a shard that is
itself short, the blocks of the whole tensor differ from those of the shard (16 over 3x2: the last shard has 4
elements, cut 3,1 in the whole and 2,2 by itself). `only` lists the in-group devices on whose path the call stands;
pure collectives have none, since every device of a group must reach them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from planner.model.spmd import attributes as check
from planner.model.spmd.halo import halo_types
from planner.model.spmd.row import Check, Element, Row, Shapes, Signature
from planner.model.spmd.types import INDEX, LocalType, divided, multiplied

Types = tuple[LocalType, ...]


def _same(s: Signature) -> Types:
    return (s.input,)


def _gathered(s: Signature) -> Types:
    dim = s.attrs["gather_axis"]
    return (s.input.with_dim(dim, multiplied(s.input.shape[dim], s.group)),)


def _sliced(key: str) -> Callable[[Signature], Types]:
    def infer(s: Signature) -> Types:
        dim, block = s.attrs[key], s.attrs["block"]
        size = s.input.shape[dim]
        if block is not None and None not in (size, s.group) and block * (s.group or 0) < (size or 0):
            s.refuse("block size", block, f"at least ceil({size} / {s.group}), so that nothing is left over")
        return (s.input.with_dim(dim, divided(size, s.group, block)),)

    return infer


def _exchanged(s: Signature) -> Types:
    (cut,) = _sliced("split_axis")(s)
    dim = s.attrs["concat_axis"]
    return (cut.with_dim(dim, multiplied(cut.shape[dim], s.group)),)


def _indices(key: str) -> Callable[[Signature], Types]:
    def infer(s: Signature) -> Types:
        return (INDEX,) * (len(s.attrs[key]) or len(s.mesh.axes))

    return infer


def _one_index(s: Signature) -> Types:
    return (INDEX,)


_DEFAULTS: Mapping[str, object] = {
    "mesh_axes": (),
    "reduction": "sum",
    "reducer": None,
    "block": None,
    "only": None,
    "source": None,
    "rotate": False,
    "pairs": None,
    "target": None,
    "axes": (),
}
_REDUCES: Mapping[str, Check] = {"reduction": check.reduction, "reducer": check.name}


def _row(
    name: str,
    infer: Callable[[Signature], Types],
    attrs: Mapping[str, Check],
    *,
    dynamic: tuple[str, ...] = (),
    tensors: tuple[int, int] = (1, 1),
    shapes: Shapes = Shapes.COVERS,
    element: Element = Element.SAME,
    pure: bool = True,
    scalars: bool = False,
    identity: bool = True,
    grouped: bool = True,
) -> Row:
    """A row with the mesh axes of its groups and the usual defaults."""
    every = {"mesh_axes": check.axes, **attrs} if grouped else dict(attrs)
    defaults = {key: value for key, value in _DEFAULTS.items() if key in every}
    return Row(
        name=name,
        infer=infer,
        attrs=MappingProxyType(every),
        defaults=MappingProxyType(defaults),
        dynamic=dynamic,
        tensors=tensors,
        shapes=shapes,
        element=element,
        pure=pure,
        scalars=scalars,
        identity=identity,
        grouped=grouped,
    )


def _query(name: str, infer: Callable[[Signature], Types], attrs: Mapping[str, Check], *dynamic: str) -> Row:
    return _row(name, infer, attrs, dynamic=dynamic, tensors=(0, 0), identity=False, grouped=False)


_EXACT, _ALIKE, _SUM = Shapes.EXACT, Shapes.COMPATIBLE, Element.ACCUMULATOR
_CUT: Mapping[str, Check] = {"block": check.block}
_ROOT: Mapping[str, Check] = {"root": check.device}

COLLECTIVES = (
    _row("all_gather", _gathered, {"gather_axis": check.dim}),
    _row("all_reduce", _same, _REDUCES, shapes=_ALIKE, element=_SUM, scalars=True),
    _row("all_slice", _sliced("slice_axis"), {"slice_axis": check.dim, **_CUT}),
    _row("all_to_all", _exchanged, {"split_axis": check.dim, "concat_axis": check.dim, **_CUT}),
    _row("broadcast", _same, _ROOT, dynamic=("root",), shapes=_EXACT, scalars=True),
    _row("gather", _gathered, {"gather_axis": check.dim, **_ROOT}, dynamic=("root",)),
    _row("reduce", _same, {**_REDUCES, **_ROOT}, dynamic=("root",), shapes=_EXACT, element=_SUM, scalars=True),
    _row("reduce_scatter", _sliced("scatter_axis"), {**_REDUCES, "scatter_axis": check.dim, **_CUT}, element=_SUM),
    _row("scatter", _sliced("scatter_axis"), {"scatter_axis": check.dim, **_ROOT, **_CUT}, dynamic=("root",)),
)
MOVES = (
    _row(
        "send",
        _same,
        {"destination": check.device, "only": check.devices},
        dynamic=("destination",),
        shapes=_EXACT,
        pure=False,
    ),
    _row(
        "recv",
        _same,
        {"source": check.any_device, "only": check.devices},
        dynamic=("source",),
        shapes=_EXACT,
        pure=False,
    ),
    _row(
        "shift",
        _same,
        {"shift_axis": check.shift_axis, "offset": check.offset, "rotate": check.flag},
        shapes=_ALIKE,
        identity=False,
    ),
    _row(
        "collective_permute",
        _same,
        {"pairs": check.pairs, "target": check.target_mesh},
        shapes=_EXACT,
        scalars=True,
        identity=False,
    ),
    _row(
        "update_halo",
        halo_types,
        {
            "split_axes": check.axes_lists,
            "source_halo_sizes": check.halo,
            "destination_halo_sizes": check.halo,
        },
        dynamic=("source_halo_sizes", "destination_halo_sizes"),
        tensors=(1, 2),
        identity=False,
        grouped=False,
    ),
)
QUERIES = (
    _query("mesh_shape", _indices("axes"), {"axes": check.axes}),
    _query("process_multi_index", _indices("axes"), {"axes": check.axes}),
    _query("process_linear_index", _one_index, {}),
    _query("idx", _one_index, {"axis": check.axis}),
    _query("size", _one_index, {"axis": check.axis}),
    _query(
        "shard_shape",
        lambda s: (INDEX,) * len(s.attrs["shape"]),
        {"shape": check.shape, "sharding": check.sharding, "device": check.linear_device},
        "shape",
        "device",
    ),
)
TABLE: Mapping[str, Row] = MappingProxyType({row.name: row for row in (*COLLECTIVES, *MOVES, *QUERIES)})
OF_THE_FUNCTION = ("idx", "size")
"""RFC queries: they name no mesh but take that of the function they stand in."""
