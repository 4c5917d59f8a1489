"""Rows for ops that rearrange elements, and for constants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxlib.mlir import ir

from planner.frontends.graph_builder import DocumentValue, clamp_infinity
from planner.frontends.stablehlo.op_call import RowResult, StablehloOpCall
from planner.frontends.stablehlo.symbolic_values import (
    MAX_KNOWN,
    KnownNumbers,
    RowStack,
    Symbol,
    TensorSymbol,
    drop_leading_ones,
    numpy_dtype,
    pad_rank,
    reshape_core,
)
from planner.frontends.uncovered_ops import NotCovered
from planner.ir.graph import TensorType
from planner.ir.sharding import Shape


def constant(call: StablehloOpCall) -> RowResult:
    """Known numbers; for element types that the bindings cannot read, an input of kind constant."""
    attribute, dtype = call.op.attributes["value"], numpy_dtype(call.result.dtype)
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        return call.literal(np.asarray(attribute.get_splat_value().value, dtype))
    try:
        return call.literal(np.array(attribute, dtype).reshape(call.result.shape))
    except (TypeError, ValueError):
        return call.builder.constant(call.result)


def iota(call: StablehloOpCall) -> RowResult:
    dim, shape = call.integer("iota_dimension"), call.result.shape
    if shape[dim] > MAX_KNOWN:
        core = (shape[dim], *(1,) * (len(shape) - dim - 1))
        counted = call.builder.emit("arange", [], core, dtype=call.result.dtype, start=0, step=1, dim=0)
        return TensorSymbol(counted, call.result)
    line = np.arange(shape[dim]).astype(numpy_dtype(call.result.dtype))
    return call.literal(line.reshape(shape[dim], *(1,) * (len(shape) - dim - 1)))


def broadcast_in_dim(call: StablehloOpCall) -> RowResult:
    (x,), dims = call.operands, call.ints("broadcast_dimensions")
    order = sorted(range(len(dims)), key=dims.__getitem__)
    if order != list(range(len(dims))):
        x = TensorSymbol.of(transpose_value(call, call.whole(0), order))
    if isinstance(x, RowStack):
        x = TensorSymbol.of(call.builder.whole(x))
    sizes = dict(zip(sorted(dims), pad_rank(x.core.shape, len(dims)), strict=True))
    return _with_core(call, x, drop_leading_ones(tuple(sizes.get(dim, 1) for dim in range(len(call.result.shape)))))


def reshape(call: StablehloOpCall) -> RowResult:
    (x,) = call.operands
    if not isinstance(x, RowStack):
        core = reshape_core(x.core.shape, x.type.shape, call.result.shape)
        if core is not None:
            return _with_core(call, x, drop_leading_ones(core))
    if isinstance(x, KnownNumbers) and x.core.shape == x.type.shape:
        return call.literal(x.core.reshape(call.result.shape))
    return call.builder.reshape(call.whole(0), call.result.shape)


def _with_core(call: StablehloOpCall, x: KnownNumbers | TensorSymbol, core: Shape) -> Symbol:
    """Return the elements of x under a core of another shape."""
    if isinstance(x, KnownNumbers):
        return call.literal(x.core.reshape(core))
    if drop_leading_ones(x.core.shape) == core:
        return TensorSymbol(x.core, call.result)
    return TensorSymbol(call.builder.reshape(x.core, core), call.result)


def transpose(call: StablehloOpCall) -> RowResult:
    (x,), order = call.operands, list(call.ints("permutation"))
    if order == list(range(len(order))):
        return x
    if isinstance(x, KnownNumbers):
        core = x.core.reshape(pad_rank(x.core.shape, len(order)))
        return call.literal(
            np.transpose(core, order).reshape(drop_leading_ones(tuple(core.shape[dim] for dim in order)))
        )
    return transpose_value(call, call.whole(0), order)


def transpose_value(call: StablehloOpCall, value: DocumentValue, order: Sequence[int]) -> DocumentValue:
    """Transpose a value; a transpose of a transpose is joined, and one that restores the order is dropped."""
    before = call.builder.find_node(value)
    if before and before["op"] == "transpose":
        value, order = (
            call.builder.find_value(before["inputs"][0]),
            [before["attrs"]["permutation"][dim] for dim in order],
        )
    if list(order) == list(range(len(order))):
        return value
    shape = tuple(value.shape[dim] for dim in order)
    return call.builder.emit("transpose", [value], shape, dtype=value.dtype, permutation=list(order))


def slice_(call: StablehloOpCall) -> Symbol:
    cuts = zip(call.ints("start_indices"), call.ints("limit_indices"), call.ints("strides"), strict=True)
    return slice_value(call, call.operands[0], [slice(*cut) for cut in cuts], made=call.result)


def slice_value(call: StablehloOpCall, x: Symbol, cuts: Sequence[slice], *, made: TensorType) -> Symbol:
    """Return the elements of a slice with a cut for every dim, as a symbol of the type `made`."""
    if isinstance(x, RowStack):
        row = _row(x, cuts)
        if row is not None:
            return row
        x = TensorSymbol.of(call.builder.whole(x))
    core = pad_rank(x.core.shape, len(cuts))
    if isinstance(x, KnownNumbers):
        taken = tuple(cut if size > 1 else slice(None) for cut, size in zip(cuts, core, strict=True))
        kept = x.core.reshape(core)[taken]
        return KnownNumbers(kept.reshape(drop_leading_ones(kept.shape)), made)
    value = call.builder.reshape(x.core, core) if len(x.core.shape) > len(cuts) else x.core
    for dim, (cut, size) in enumerate(zip(cuts, core, strict=True)):
        if size > 1:
            value = _slice_dim(call, value, dim - len(cuts) + len(value.shape), cut=cut)
    return TensorSymbol(value, made)


def _slice_dim(call: StablehloOpCall, value: DocumentValue, dim: int, *, cut: slice) -> DocumentValue:
    """Slice one dim; a strided slice is a slice and then a `strided_slice`."""
    piece, step = _narrow_dim(call, value, dim, start=cut.start, stop=cut.stop), cut.step or 1
    if step == 1:
        return piece
    count = -(-(cut.stop - cut.start) // step)
    shape = (*value.shape[:dim], count, *value.shape[dim + 1 :])
    return call.builder.emit("strided_slice", [piece], shape, dtype=value.dtype, dim=dim, step=step)


def _narrow_dim(call: StablehloOpCall, value: DocumentValue, dim: int, *, start: int, stop: int) -> DocumentValue:
    return call.builder.part(TensorSymbol.of(value), dim, start, stop)


def _row(stack: RowStack, cuts: Sequence[slice]) -> Symbol | None:
    """Return the row of a stack that a slice reads, if it is exactly one known row."""
    first, *others = cuts
    full = all(
        cut == slice(0, size, cut.step) and cut.step in (None, 1)
        for cut, size in zip(others, stack.type.shape[1:], strict=True)
    )
    return stack.rows.get(first.start) if full and first.stop == first.start + 1 else None


def dynamic_slice(call: StablehloOpCall) -> RowResult:
    """An ordinary slice at known positions, which StableHLO clamps into range, else `dynamic_slice`."""
    x, *starts = call.operands
    sizes = call.ints("slice_sizes")
    known = _positions(starts, x.type.shape, sizes)
    if known is not None:
        cuts = [slice(at, at + size) for at, size in zip(known, sizes, strict=True)]
        return slice_value(call, x, cuts, made=call.result)
    dims, moving = _dynamic_start(call, starts, x.type.shape, sizes=sizes)
    return call.emit("dynamic_slice", call.whole(0), *moving, dims=dims)


def dynamic_update_slice(call: StablehloOpCall) -> RowResult:
    x, update, *starts = call.operands
    shape, sizes = x.type.shape, update.type.shape
    known = _positions(starts, shape, sizes)
    if known is not None and sizes == shape:
        return update
    if known is not None and sizes == (1, *shape[1:]):
        stack = x if isinstance(x, RowStack) else RowStack(x, {}, x.type)
        return stack.with_row(known[0], update)
    if known is not None:
        return update_value(call, call.whole(0), call.whole(1), starts=known)
    dims, moving = _dynamic_start(call, starts, shape, sizes=sizes)
    return call.emit("dynamic_update_slice", call.whole(0), call.whole(1), *moving, dims=dims)


def _dynamic_start(
    call: StablehloOpCall, starts: Sequence[Symbol], shape: Shape, *, sizes: Sequence[int]
) -> tuple[list[int], list[DocumentValue]]:
    """Return the dims that are cut, and their start positions."""
    dims = [dim for dim, (size, full) in enumerate(zip(sizes, shape, strict=True)) if size != full]
    return dims, [call.builder.whole(starts[dim]) for dim in dims]


def update_value(
    call: StablehloOpCall, x: DocumentValue, update: DocumentValue, *, starts: Sequence[int]
) -> DocumentValue:
    """Write an update at known positions: concatenate, dim by dim, the parts before, inside and after it."""
    for dim, (at, size) in enumerate(zip(starts, update.shape, strict=True)):
        if size == x.shape[dim]:
            continue
        band = _narrow_dim(call, x, dim, start=at, stop=at + size)
        middle = update_value(call, band, update, starts=[0 if i == dim else start for i, start in enumerate(starts)])
        pieces = [_narrow_dim(call, x, dim, start=0, stop=at)] if at else []
        pieces.append(middle)
        pieces += [_narrow_dim(call, x, dim, start=at + size, stop=x.shape[dim])] if at + size < x.shape[dim] else []
        return call.builder.concatenate(pieces, dim)
    return update


def _positions(starts: Sequence[Symbol], shape: Shape, sizes: Sequence[int]) -> list[int] | None:
    """Return the clamped start of a slice; None if it is unknown along a dim that is not read whole."""
    positions = []
    for start, full, size in zip(starts, shape, sizes, strict=True):
        if size != full and not isinstance(start, KnownNumbers):
            return None
        at = int(start.number) if isinstance(start, KnownNumbers) else 0
        positions.append(min(max(at, 0), full - size))
    return positions


def concatenate(call: StablehloOpCall) -> RowResult:
    if len(call.operands) == 1:
        return call.operands[0]
    dim = call.integer("dimension")
    if all(isinstance(piece, KnownNumbers) for piece in call.operands) and math.prod(call.result.shape) <= MAX_KNOWN:
        return call.literal(
            np.concatenate([piece.whole for piece in call.operands if isinstance(piece, KnownNumbers)], dim)
        )
    return call.builder.concatenate(call.wholes(), dim)


def pad(call: StablehloOpCall) -> RowResult:
    """Pad below, above and between the elements; a negative width cuts."""
    value = call.operands[1]
    if not (isinstance(value, KnownNumbers) and value.splat):
        raise NotCovered("padding with numbers that are not known")
    low, high, between = (call.ints(name) for name in ("edge_padding_low", "edge_padding_high", "interior_padding"))
    padded = call.whole(0)
    call.demand("other numbers than zeros between elements", value.number == 0 or not any(between))
    for dim, gap in enumerate(between):
        padded = dilate_value(call, padded, dim, step=gap + 1)
    return pad_value(call, padded, low, high=high, number=value.scalar)


def dilate_value(call: StablehloOpCall, x: DocumentValue, dim: int, *, step: int) -> DocumentValue:
    """Insert step - 1 zeros between the elements of a dim."""
    shape = (*x.shape[:dim], (x.shape[dim] - 1) * step + 1, *x.shape[dim + 1 :])
    return x if shape == x.shape else call.builder.emit("dilate", [x], shape, dtype=x.dtype, dim=dim, step=step)


def pad_value(
    call: StablehloOpCall, x: DocumentValue, low: Sequence[int], *, high: Sequence[int], number: float
) -> DocumentValue:
    """Pad every dim below and above; a negative width cuts."""
    for dim, (before, behind) in enumerate(zip(low, high, strict=True)):
        x = _narrow_dim(call, x, dim, start=max(-before, 0), stop=x.shape[dim] - max(-behind, 0))
    first, last = ([max(count, 0) for count in side] for side in (low, high))
    if not any((*first, *last)):
        return x
    shape = tuple(map(sum, zip(first, x.shape, last, strict=True)))
    return call.builder.emit(
        "pad", [x], shape, dtype=x.dtype, low=first, high=last, value=clamp_infinity(number, x.dtype)
    )


def reverse(call: StablehloOpCall) -> RowResult:
    x, dims = call.operands[0], call.ints("dimensions")
    if isinstance(x, KnownNumbers):
        core = x.core.reshape(pad_rank(x.core.shape, len(call.result.shape)))
        return call.literal(np.flip(core, dims))
    return call.emit("flip", call.whole(0), dims=list(dims))
