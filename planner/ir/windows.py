"""Windows: operand dims that are read at sum_l c_l * l - padding, as in a convolution.

Where the first loop of a window (y, with coefficient c) runs over [y0, y1) and the others over their whole range, the
op reads the interval [c y0 - padding, c (y1 - 1) + sum_r c_r (R - 1) + 1 - padding) of the dim. Beyond the ends of
the dim is padding. With y and the dim both in blocks over n devices, device i reads its own block and a halo around
it. All shards have the same halo, so it is as wide as the device that needs most requires.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.ir.notation import Dim
from planner.ir.sharding import block_bounds


def read_interval(dim: Dim, spans: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Return the start and stop of what a window dim reads, which may lie beyond its ends.

    `spans` holds the start and stop of each loop. The interval is empty where a loop is.
    """
    terms = [(factor, *spans[loop]) for factor, loop in zip(dim.coefficients, dim.loops, strict=True)]
    low = sum(factor * start for factor, start, _ in terms) - (dim.padding or 0)
    high = sum(factor * (stop - 1) for factor, _, stop in terms) - (dim.padding or 0) + 1
    return low, high if all(start < stop for _, start, stop in terms) else low


def find_halo(dim: Dim, size: int, loops: Mapping[str, int], *, parts: int) -> tuple[int, int]:
    """Return how many elements before and after its own block a device needs, with the first loop split in `parts`."""
    whole = {loop: (0, loops[loop]) for loop in dim.loops}
    before = after = 0
    loop_blocks, dim_blocks = (_split_blocks(length, parts) for length in (loops[dim.loops[0]], size))
    for span, (begin, end) in zip(loop_blocks, dim_blocks, strict=True):
        low, high = (min(max(bound, 0), size) for bound in read_interval(dim, whole | {dim.loops[0]: span}))
        if low < high:
            # What lies beyond the dim's ends is padding, which nobody sends.
            before, after = max(before, begin - low), max(after, high - end)
    return before, after


def _split_blocks(size: int, parts: int) -> list[tuple[int, int]]:
    bounds = block_bounds(size, parts, np.arange(parts))
    return [(int(start), int(stop)) for start, stop in zip(*bounds, strict=True)]


def window_fits(dim: Dim, size: int, loops: Mapping[str, int]) -> bool:
    """Return whether the windows fit a dim: without padding they stay inside it and leave less than a step unread."""
    unread = size - read_interval(dim, {loop: (0, loops[loop]) for loop in dim.loops})[1]
    return dim.padding is not None or 0 <= unread < max(dim.coefficients)
