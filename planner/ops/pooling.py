"""Pooling by windows over the last dims, and its gradients.

The gradient of a maximum goes to the first element of a window that equals it, that of a mean to all elements alike. An
element sums the gradients of all windows that contain it: the backward ops do not split the pooled dims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import product
from typing import Any

from planner.errors import InvalidGraph
from planner.ir.sharding import Shape
from planner.ops import attribute_types as types
from planner.ops.attributes import Attribute
from planner.ops.convolution import (
    WINDOW_ATTRS,
    Geometry,
    check_positions,
    kernel_taps,
    name_each,
    parse_geometry,
)
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature, float_dtype

SIZE = Attribute("size", types.whole_numbers(1))
ATTRS = (SIZE, *WINDOW_ATTRS)


def _read_windows(signature: OpSignature, shape: Shape, made: Shape) -> tuple[list[Geometry], tuple[int, ...]]:
    """Return geometry and size of the windows of a tensor of `shape`. Raises InvalidGraph where they do not fit."""
    size = signature.read(SIZE)
    rank = len(size)
    if not 1 <= rank <= len(shape):
        raise InvalidGraph("attribute 'size'", got=list(size), wanted=f"1 to {len(shape)} numbers, for the last dims")
    geometry = parse_geometry(signature.attrs, rank)
    check_positions(geometry, shape[-rank:], size, made=made[-rank:])
    if wide := [each.padding for each, taps in zip(geometry, size, strict=True) if 2 * each.padding > taps]:
        raise InvalidGraph("attribute 'padding'", got=wide[0], wanted="at most half of the size")
    return geometry, size


def _rule(modifier: str) -> Callable[[OpSignature], str]:
    def rule(signature: OpSignature) -> str:
        geometry, size = _read_windows(signature, signature.operands[0].shape, signature.results[0].shape)
        windows = " ".join(each.window(f"y{i}", f"r{i}") for i, each in enumerate(geometry))
        taps = " ".join(f"r{i}={n}" for i, n in enumerate(size))
        return f"... {windows} -> ... {name_each('y', len(size))}; size {taps}; {modifier}"

    return rule


def _max_pool(local: OpContext, x: Array) -> Array:
    return reduce(local.xp.maximum, (read for _, read in kernel_taps(local, x)))


def _average_pool(local: OpContext, x: Array) -> Array:
    reads = [read for _, read in kernel_taps(local, x)]
    return sum(reads) / len(reads)


def _backward_rule(reads_x: bool) -> Callable[[OpSignature], str]:
    """Return a rule function of dy (, x) -> dx. The pooled dims of dy, x and dx are separate, blocked loops."""

    def rule(signature: OpSignature) -> str:
        made = signature.results[0].shape
        if reads_x and signature.operands[1].shape != made:
            raise InvalidGraph("gradient of an operand", got=list(made), wanted=list(signature.operands[1].shape))
        _, size = _read_windows(signature, made, signature.operands[0].shape)
        y, x, dx = (name_each(loop, len(size)) for loop in "yxz")
        x_term, x_loops = (f", ... {x}", f"{x} ") if reads_x else ("", "")
        return f"... {y}{x_term} -> ... {dx}; blocked {y} {x_loops}{dx}; linear 0"

    return rule


def _padded(local: OpContext, x: Array, value: float) -> Array:
    rank = len(local.read(SIZE))
    ends = [(each.padding, each.padding) for each in parse_geometry(local.attrs, rank)]
    return local.xp.pad(x, [(0, 0)] * (x.ndim - rank) + ends, constant_values=value)


def _places(local: OpContext, positions: Shape) -> Iterator[tuple[Any, ...]]:
    """Yield for each tap an index into the padded operand, which selects one element per window."""
    size = local.read(SIZE)
    geometry = parse_geometry(local.attrs, len(size))
    for tap in product(*map(range, size)):
        starts = [each.dilation * at for each, at in zip(geometry, tap, strict=True)]
        ends = zip(starts, positions[-len(size) :], geometry, strict=True)
        yield (..., *(slice(at, at + each.stride * count, each.stride) for at, count, each in ends))


def _inner(local: OpContext, padded: Array, x: Shape) -> Array:
    rank = len(local.read(SIZE))
    geometry = parse_geometry(local.attrs, rank)
    return padded[(..., *(slice(each.padding, each.padding + n) for each, n in zip(geometry, x[-rank:], strict=True)))]


def _max_pool_backward(local: OpContext, grad: Array, x: Array) -> Array:
    padded = _padded(local, x, -math.inf)
    made, free = local.xp.zeros_like(padded), local.xp.ones(grad.shape, bool)
    highest = reduce(local.xp.maximum, (padded[place] for place in _places(local, grad.shape)))
    for place in _places(local, grad.shape):
        first = free & (padded[place] == highest)
        made[place] = made[place] + grad * first
        free = free & ~first
    return _inner(local, made, x.shape)


def _average_pool_backward(local: OpContext, grad: Array) -> Array:
    made = _padded(local, local.xp.zeros(local.shapes[0], grad.dtype), 0)
    for place in _places(local, grad.shape):
        made[place] = made[place] + grad / math.prod(local.read(SIZE))
    return _inner(local, made, local.shapes[0])


OP_DEFS = (
    OpDef("max_pool", _rule("commutes max 0"), _max_pool, 1, float_dtype, attrs=ATTRS, padding=-math.inf),
    OpDef("max_pool_backward", _backward_rule(reads_x=True), _max_pool_backward, 2, float_dtype, attrs=ATTRS),
    OpDef("average_pool", _rule("linear 0"), _average_pool, 1, float_dtype, attrs=ATTRS),
    OpDef("average_pool_backward", _backward_rule(reads_x=False), _average_pool_backward, 1, float_dtype, attrs=ATTRS),
)
