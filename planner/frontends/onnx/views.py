"""Rows for operators that rearrange elements, and for operators that create constants and ranges."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from planner.frontends.graph_builder import DocumentValue, clamp_infinity
from planner.frontends.onnx.node_call import OnnxNodeCall


def reshape(call: OnnxNodeCall) -> DocumentValue:
    """Any operator that keeps the order of the elements: reshape to the result's shape."""
    return call.reshape_to_result(call.value())


def expand(call: OnnxNodeCall) -> DocumentValue:
    value = call.value()
    return value if value.shape == call.result.shape else call.emit("expand", value)


def transpose(call: OnnxNodeCall) -> DocumentValue:
    value = call.value()
    order = list(call.attribute("perm", range(len(value.shape))[::-1]))
    return value if order == sorted(order) else call.emit("transpose", value, permutation=order)


def slice_(call: OnnxNodeCall) -> DocumentValue:
    """Slice dim by dim; a negative step reverses the dim."""
    value = call.value()
    starts, ends = call.integers(1, "starts") or [], call.integers(2, "ends") or []
    axes = call.integers(3, "axes") or list(range(len(starts)))
    steps = call.integers(4) or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        dim = axis % len(value.shape)
        value = take_slice(call, value, dim, places=range(value.shape[dim])[start:end:step])
    return value


def take_slice(call: OnnxNodeCall, value: DocumentValue, dim: int, *, places: range) -> DocumentValue:
    """Return the elements at these positions of a dim, through a slice, a flip and a strided slice as needed."""
    call.demand("a result without elements", len(places) > 0)
    low, high = min(places), max(places) + 1
    value = call.cut(value, dim, start=low, stop=high)
    if places.step < 0 and len(places) > 1:
        value = call.step("flip", [value], dims=[dim])
    if abs(places.step) > 1 and len(places) > 1:
        value = call.step(
            "strided_slice", [value], _replace_dim(value.shape, dim, len(places)), dim=dim, step=abs(places.step)
        )
    return value


def _replace_dim(shape: Sequence[int], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


def split(call: OnnxNodeCall) -> Sequence[DocumentValue]:
    """Pieces along a dim, of the sizes of the results."""
    call.demand("a piece left out", not call.leaves_result_out)
    return [call.value()] if len(call.results) == 1 else call.emit_all("split", call.value(), dim=call.dim())


def concat(call: OnnxNodeCall) -> DocumentValue:
    pieces = [call.value(k) for k in range(len(call.operands))]
    return pieces[0] if len(pieces) == 1 else call.emit("concat", *pieces, dim=call.dim(default=1))


def tile(call: OnnxNodeCall) -> DocumentValue:
    """Repeat every dim as a whole."""
    value = call.value()
    counts = call.integers(1) or []
    return repeat_value(call, value, [(count, 1) for count in counts])


def repeat_value(call: OnnxNodeCall, value: DocumentValue, times: Sequence[tuple[int, int]]) -> DocumentValue:
    """Repeat dims; `times` gives, per dim, the copies of the whole dim and the copies of each element.

    Dims for the copies are inserted before and behind every dim, broadcast and merged.
    """
    pairs = list(zip(value.shape, times, strict=True))
    apart = tuple(chain.from_iterable((1, n, 1) for n, _ in pairs))
    copied = tuple(chain.from_iterable((whole, n, each) for n, (whole, each) in pairs))
    if apart == copied:
        return value
    return call.reshape_to_result(call.step("expand", [call.reshape(value, apart)], copied))


def pad(call: OnnxNodeCall) -> DocumentValue:
    """Pad with a number; negative widths cut."""
    call.demand("padding with elements of the tensor", call.attribute("mode", "constant") == "constant")
    listed = call.integers(1, "pads") or []
    value, rank = call.value(), len(call.shape())
    axes = [axis % rank for axis in call.integers(3) or range(rank)]
    low, high = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        low[axis], high[axis] = listed[place], listed[place + len(axes)]
    for dim, size in enumerate(value.shape):
        kept = range(max(0, -low[dim]), size - max(0, -high[dim]))
        value = take_slice(call, value, dim, places=kept) if len(kept) < size else value
    number = call.number(2) if call.given(2) is not None else call.attribute("value", 0.0)
    call.demand("a number that depends on data", number is not None)
    return pad_value(call, value, low, high=high, number=number or 0)


def pad_value(
    call: OnnxNodeCall, value: DocumentValue, low: Sequence[int], *, high: Sequence[int], number: float
) -> DocumentValue:
    low, high = ([max(0, size) for size in sizes] for sizes in (low, high))
    if not any((*low, *high)):
        return value
    shape = [sum(sizes) for sizes in zip(value.shape, low, high, strict=True)]
    return call.step("pad", [value], shape, low=low, high=high, value=clamp_infinity(number, value.dtype))


def depth_to_space(call: OnnxNodeCall) -> DocumentValue:
    """Move blocks of channels into the image; DCR orders (block, channel) in the channel dim, CRD (channel, block)."""
    batch, channels, height, width = call.shape()
    size = int(call.attribute("blocksize"))
    left = channels // size**2
    if call.attribute("mode", "DCR") == "DCR":
        parts, order = (batch, size, size, left, height, width), [0, 3, 4, 1, 5, 2]
    else:
        parts, order = (batch, left, size, size, height, width), [0, 1, 4, 2, 5, 3]
    return _rearrange(call, parts, order)


def space_to_depth(call: OnnxNodeCall) -> DocumentValue:
    batch, channels, height, width = call.shape()
    size = int(call.attribute("blocksize"))
    parts = (batch, channels, height // size, size, width // size, size)
    return _rearrange(call, parts, [0, 3, 5, 1, 2, 4])


def _rearrange(call: OnnxNodeCall, parts: Sequence[int], order: list[int]) -> DocumentValue:
    apart = call.reshape(call.value(), parts)
    return call.reshape_to_result(call.step("transpose", [apart], [parts[k] for k in order], permutation=order))


def constant_of_shape(call: OnnxNodeCall) -> DocumentValue:
    filled = call.attribute("value")
    number = 0 if filled is None else filled.item()
    return call.emit("full", value=clamp_infinity(number, call.result.dtype))


def arange(call: OnnxNodeCall) -> DocumentValue:
    start, step = call.number(0), call.number(2)
    call.demand("bounds that depend on data", start is not None and step is not None)
    return call.emit("arange", start=start, step=step)


def eye(call: OnnxNodeCall) -> DocumentValue:
    """Ones on a diagonal: where column - row is `k`."""
    rows, columns = call.result.shape
    down, across = (call.step("arange", [], (n,), dtype="i64", start=0, step=1) for n in (rows, columns))
    shifted = call.step("add", [down], scalar=int(call.attribute("k", 0)))
    equal = call.step("equal", [across, call.reshape(shifted, (rows, 1))], (rows, columns), dtype="bool")
    return call.cast(equal, call.result.dtype)


def triangle(call: OnnxNodeCall) -> DocumentValue:
    """Keep the elements on one side of a diagonal; the others become zero."""
    (diagonal,) = call.integers(1) or [0]
    return call.emit("triu" if call.attribute("upper", 1) else "tril", call.value(), diagonal=diagonal)


def upsample(call: OnnxNodeCall) -> DocumentValue:
    """Repeat every element, which is nearest-neighbour resizing to a multiple of the size."""
    pairs = list(zip(call.shape(), call.result.shape, strict=True))
    nearest = call.attribute("mode", "nearest") == "nearest"
    call.demand("other than the nearest element, a multiple of times", nearest and all(n % m == 0 for m, n in pairs))
    return repeat_value(call, call.value(), [(1, large // small) for small, large in pairs])


def resize(call: OnnxNodeCall) -> DocumentValue:
    """Nearest-neighbour resizing to a multiple of the size, in the modes where it equals repeating every element."""
    place = call.attribute("coordinate_transformation_mode", "half_pixel")
    rounding = call.attribute("nearest_mode", "round_prefer_floor")
    alike = (place == "asymmetric" and rounding == "floor") or (
        place in ("half_pixel", "half_pixel_symmetric") and rounding in ("round_prefer_floor", "round_prefer_ceil")
    )
    call.demand(f"{rounding} of {place}", alike)
    return upsample(call)
