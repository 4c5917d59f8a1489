"""Windows: operand dims that are read at sum_l c_l * l - padding, as by a convolution.

Where the first loop of a window (say y, coefficient c) runs over [y0, y1) and the others whole, the op reads the
interval [c y0 - padding, c (y1 - 1) + sum_r c_r (R - 1) + 1 - padding) of the dim: beyond its ends is padding. With y
in blocks over n devices and the dim in blocks over the same, the interval of device i is its own block and a halo:
as wide before, and after, as the neediest device has it, for shards are all widened alike.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.ir.notation import Dim
from planner.ir.sharding import block_bounds


def read_interval(dim: Dim, spans: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Start and stop of what is read of a window dim, beyond its ends too; `spans`: start and stop of the loops.

    Nothing is read where a loop does not run.
    """
    terms = [(factor, *spans[loop]) for factor, loop in zip(dim.coefficients, dim.loops, strict=True)]
    low = sum(factor * start for factor, start, _ in terms) - (dim.padding or 0)
    high = sum(factor * (stop - 1) for factor, _, stop in terms) - (dim.padding or 0) + 1
    return low, high if all(start < stop for _, start, stop in terms) else low


def find_halo(dim: Dim, size: int, loops: Mapping[str, int], *, parts: int) -> tuple[int, int]:
    """Elements that blocks of a window dim need before and after them, for blocks of its first loop."""
    whole = {loop: (0, loops[loop]) for loop in dim.loops}
    before = after = 0
    runs, holds = (_split_blocks(length, parts) for length in (loops[dim.loops[0]], size))
    for run, (begin, end) in zip(runs, holds, strict=True):
        low, high = read_interval(dim, whole | {dim.loops[0]: run})
        if low < high:
            before, after = max(before, begin - max(low, 0)), max(after, min(high, size) - end)
    return before, after


def _split_blocks(size: int, parts: int) -> list[tuple[int, int]]:
    bounds = block_bounds(size, parts, np.arange(parts))
    return [(int(start), int(stop)) for start, stop in zip(*bounds, strict=True)]


def window_fits(dim: Dim, size: int, loops: Mapping[str, int]) -> bool:
    """Whether windows may lie so in a dim: without padding inside it, with less than a step unread at its end."""
    unread = size - read_interval(dim, {loop: (0, loops[loop]) for loop in dim.loops})[1]
    return dim.padding is not None or 0 <= unread < max(dim.coefficients)
