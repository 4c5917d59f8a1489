"""Rows for reads and writes at positions: StableHLO's gather and scatter, where they have one of these forms

    embedding   rows of a table                                  x[ids]
    index       positions for adjacent dims, the others whole    x[:, i, j]
    gather      positions along one dim, the others paired       take_along_axis

or the form of a counterpart that writes. StableHLO clamps positions out of range when it reads and drops them when it
writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.stablehlo.op_call import RowResult, StablehloOpCall
from planner.frontends.stablehlo.symbolic_values import NO_ELEMENTS, KnownNumbers, TensorSymbol
from planner.frontends.stablehlo.views import slice_value, transpose_value, update_value
from planner.ir.sharding import Shape

_REDUCTIONS = {"add": "sum", "maximum": "max", "minimum": "min"}


@dataclass(frozen=True, slots=True)
class _IndexDims:
    """The roles of dims: those that positions index, those read whole, those paired with dims of the positions."""

    dims: tuple[int, ...]
    whole: tuple[int, ...]
    """The dims of x that are read or written whole, in the order of `windows`."""
    windows: tuple[int, ...]
    """The dims of the result (or of the updates) that correspond to `whole`."""
    paired: tuple[int, ...]
    paired_ids: tuple[int, ...]
    vector: int
    """The dim of the positions that lists one number per indexed dim."""
    numbers: tuple[int, ...]
    """Where in that list the number of each of `dims` is."""

    def drop_whole(self, taken: Sequence[int], shape: Shape) -> _IndexDims:
        """Leave out indexed dims of which the whole is taken: positions there are clamped to 0."""
        places = zip(self.dims, self.numbers, strict=True)
        kept = [(dim, number) for dim, number in places if dim not in self.whole or taken[dim] < shape[dim]]
        dims, numbers = (tuple(pair[k] for pair in kept) for k in (0, 1))
        return replace(self, dims=dims, numbers=numbers) if kept else self

    def drop_units(self, taken: Sequence[int], shape: Shape) -> tuple[_IndexDims, tuple[int, ...]]:
        """Index dims of which one position is taken without their window, as if they were collapsed.

        `taken` lists the size of each window. Returns the windows that were dropped, too.
        """
        pairs = list(zip(self.whole, self.windows, strict=True))
        dropped = {win for dim, win in pairs if dim in self.dims and taken[dim] == 1 != shape[dim]}
        kept = [(dim, win - sum(each < win for each in dropped)) for dim, win in pairs if win not in dropped]
        whole, windows = (tuple(pair[k] for pair in kept) for k in (0, 1))
        return replace(self, whole=whole, windows=windows), tuple(sorted(dropped))


def gather(call: StablehloOpCall) -> RowResult:
    numbers = stablehlo.GatherDimensionNumbers(call.op.attributes["dimension_numbers"])
    shape, sizes = call.operands[0].type.shape, call.ints("slice_sizes")
    away = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    places = _IndexDims(
        tuple(numbers.start_index_map),
        tuple(dim for dim in range(len(shape)) if dim not in away),
        tuple(numbers.offset_dims),
        tuple(numbers.operand_batching_dims),
        tuple(numbers.start_indices_batching_dims),
        numbers.index_vector_dim,
        tuple(range(len(numbers.start_index_map))),
    )
    places, dropped = places.drop_whole(sizes, shape).drop_units(sizes, shape)
    made = _without(call.result.shape, dropped)
    call.demand("slices that are not whole dims", all(sizes[dim] == shape[dim] for dim in places.whole))
    return call.reshape(_read(call, places, made), call.result.shape)


def _read(call: StablehloOpCall, places: _IndexDims, made: Shape) -> DocumentValue:
    """Emit the read of elements in the shape `made`."""
    if places.paired:
        along, order = _along(call, places)
        rows = call.step("gather", [call.whole(0), along], along.shape, dim=places.dims[0], beyond="clamp")
        rows = call.reshape(rows, tuple(made[dim] for dim in order))
        return transpose_value(call, rows, [order.index(dim) for dim in range(len(order))])
    ids, order = _ids(call, places), _order(call, places, len(made))
    first = places.dims[0]
    read = tuple(made[dim] for dim in order)
    if len(call.operands[0].type.shape) == 2 and first == 0 and len(ids) == 1:
        rows = call.step("embedding", [call.whole(0), *ids], read, beyond="clamp")
    else:
        rows = call.step("index", [call.whole(0), *ids], read, dims=list(places.dims), beyond="clamp")
    return transpose_value(call, rows, [order.index(dim) for dim in range(len(order))])


def scatter(call: StablehloOpCall) -> RowResult:
    if call.operands[2] is NO_ELEMENTS:
        return call.whole(0)
    shape, body, places = call.operands[0].type.shape, _read_reduction(call), _scatter_dims(call)
    x, updates = call.operands[0], call.whole(2)
    if (corner := _corner(call, places)) is not None:
        if body is not None:
            cuts = [slice(at, at + size) for at, size in zip(corner, updates.shape, strict=True)]
            there = call.builder.whole(slice_value(call, x, cuts, made=call.operands[2].type))
            updates = call.step(body, [there, updates], updates.shape)
        return update_value(call, call.whole(0), updates, starts=corner)
    call.demand("windows without positions", call.operands[1] is not NO_ELEMENTS)
    sizes = dict(zip(places.whole, (updates.shape[dim] for dim in places.windows), strict=True))
    taken = [sizes.get(dim, 0) for dim in range(len(shape))]
    if _are_clamped(call, places, taken):
        places = places.drop_whole(taken, shape)
    places, dropped = places.drop_units(taken, shape)
    updates = call.reshape(updates, _without(updates.shape, dropped))
    windows = [updates.shape[dim] for dim in places.windows]
    call.demand("windows that are not whole dims", windows == [shape[dim] for dim in places.whole])
    reduced = {} if body is None else {"accumulate": True, "reduction": _REDUCTIONS[body]}
    attrs: dict[str, Any] = {"beyond": "drop", **reduced}
    if places.paired:
        along, order = _along(call, places)
        updates = call.reshape(transpose_value(call, updates, order), along.shape)
        return call.emit("scatter", call.whole(0), along, updates, dim=places.dims[0], **attrs)
    order, ids = _order(call, places, len(updates.shape)), _ids(call, places)
    updates = transpose_value(call, updates, order)
    zeros = isinstance(x, KnownNumbers) and x.splat and x.number == 0
    if zeros and body == "add" and len(shape) == 2 and places.dims == (0,):
        return call.emit("embedding_backward", updates, *ids, beyond="drop")
    return call.emit("index_put", call.whole(0), *ids, updates, dims=list(places.dims), **attrs)


def _scatter_dims(call: StablehloOpCall) -> _IndexDims:
    numbers = stablehlo.ScatterDimensionNumbers(call.op.attributes["scatter_dimension_numbers"])
    away = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    return _IndexDims(
        tuple(numbers.scattered_dims_to_operand_dims),
        tuple(dim for dim in range(len(call.operands[0].type.shape)) if dim not in away),
        tuple(numbers.update_window_dims),
        tuple(numbers.input_batching_dims),
        tuple(numbers.scatter_indices_batching_dims),
        numbers.index_vector_dim,
        tuple(range(len(numbers.scattered_dims_to_operand_dims))),
    )


def _are_clamped(call: StablehloOpCall, places: _IndexDims, taken: Sequence[int]) -> bool:
    """Return whether positions are clamped to where their window fits: minimum(maximum(ids, 0), known numbers).

    Windows at other positions are not written, even where a dim is written whole.
    """
    ids, shape, builder = call.whole(1), call.operands[0].type.shape, call.builder
    least = builder.find_node(ids)
    if least is None or least["op"] != "minimum" or len(least["inputs"]) != 2 or places.vector != len(ids.shape) - 1:
        return False
    raised, limit = map(builder.find_value, least["inputs"])
    above, limits = builder.find_node(raised), builder.find_numbers(limit)
    wanted = [shape[dim] - (taken[dim] or 1) for dim in places.dims]
    known = limits is not None and limits.reshape(-1).tolist() == wanted
    return known and above is not None and (above["op"], above["attrs"]) == ("maximum", {"scalar": 0})


def _without(shape: Shape, dims: Sequence[int]) -> Shape:
    return tuple(size for dim, size in enumerate(shape) if dim not in dims)


def _corner(call: StablehloOpCall, places: _IndexDims) -> list[int] | None:
    """Return the start of the written window, if there is one window with all dims at a known position in range."""
    ids, shape, sizes = call.operands[1], call.operands[0].type.shape, call.operands[2].type.shape
    numbers: list[int] | None = [] if ids is NO_ELEMENTS else None
    if isinstance(ids, KnownNumbers) and len(ids.type.shape) == 1:
        numbers = ids.whole.tolist()
    if numbers is None or places.windows != tuple(range(len(shape))):
        return None
    corner = [0] * len(shape)
    for dim, at in zip(places.dims, numbers, strict=True):
        corner[dim] = at
    inside = all(0 <= at <= full - size for at, full, size in zip(corner, shape, sizes, strict=True))
    return corner if inside else None


def _read_reduction(call: StablehloOpCall) -> str | None:
    """Return the op that reduces what is there with the updates; None for a body that returns the update unchanged."""
    call.demand("several operands", len(call.operands) == 3)
    block = call.op.regions[0].blocks[0]
    if len(block.operations) == 1 and block.operations[0].operation.operands[0] == block.arguments[1]:
        return None
    kind = call.reducer()
    call.demand(f"a body that computes {kind}", kind in _REDUCTIONS)
    return kind


def _along(call: StablehloOpCall, places: _IndexDims) -> tuple[DocumentValue, list[int]]:
    """Return the positions along the one indexed dim, with the dims of x in its order, and the dims paired with x's.

    Those are dims of the result (or of the updates), in the order of x; the indexed dim has none if one position is
    taken per element of the paired dims.
    """
    ids, count = _list_positions(call, places), len(places.paired)
    call.demand("paired dims in another order", places.paired_ids == tuple(range(count)) and len(places.dims) == 1)
    call.demand("positions of several dims", len(ids[0].shape) <= count + 1)
    listed = len(ids[0].shape) == count + 1
    order = [*places.paired, *places.dims]
    beside = _others(places.windows, count + listed + len(places.windows))
    dims = dict(zip(places.whole, places.windows, strict=True)) | dict(zip(order, beside, strict=False))
    shape = call.operands[0].type.shape
    flat = call.builder.reshape(ids[0], (*ids[0].shape[:count], ids[0].shape[count] if listed else 1))
    sizes = dict(zip(order, flat.shape, strict=True))
    turned = transpose_value(call, flat, sorted(range(len(order)), key=order.__getitem__))
    spread = call.builder.reshape(turned, tuple(sizes.get(dim, 1) for dim in range(len(shape))))
    whole = tuple(sizes.get(dim, size) for dim, size in enumerate(shape))
    positions = spread if whole == spread.shape else call.step("expand", [spread], whole)
    return positions, [dims[dim] for dim in range(len(shape)) if dim in dims]


def _ids(call: StablehloOpCall, places: _IndexDims) -> list[DocumentValue]:
    """Return the positions as one value per indexed dim; these are adjacent."""
    first = places.dims[:1]
    beside = tuple(range(first[0], first[0] + len(places.dims))) if first else ()
    call.demand("positions for dims apart", bool(first) and places.dims == beside)
    return _list_positions(call, places)


def _list_positions(call: StablehloOpCall, places: _IndexDims) -> list[DocumentValue]:
    whole, vector = call.whole(1), places.vector
    shape = whole.shape
    if vector == len(shape):
        return [whole]
    kept = (*shape[:vector], *shape[vector + 1 :])
    parts = [call.builder.part(TensorSymbol.of(whole), vector, k, k + 1) for k in places.numbers]
    return [call.builder.reshape(part, kept) for part in parts]


def _order(call: StablehloOpCall, places: _IndexDims, rank: int) -> list[int]:
    """Return the result's dims in the order of `index`: windows before the indexed dims, positions, windows after."""
    gone = set(places.dims) - set(places.whole)
    call.demand("positions for dims that stay", gone == set(places.dims))
    before = [window for dim, window in zip(places.whole, places.windows, strict=True) if dim < places.dims[0]]
    behind = [window for dim, window in zip(places.whole, places.windows, strict=True) if dim > places.dims[0]]
    return [*before, *_others(places.windows, rank), *behind]


def _others(windows: Sequence[int], rank: int) -> Shape:
    return tuple(dim for dim in range(rank) if dim not in windows)
