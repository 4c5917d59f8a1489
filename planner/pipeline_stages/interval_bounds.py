"""Lower bounds of all intervals of units, from those of some of them: `bounds[first, last]`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Span = tuple[int, int]


def raise_bounds(bounds: Matrix, known: Iterable[tuple[Span, float]]) -> Matrix:
    """Raise the bounds of intervals to those that are known, in place."""
    for span, bound in known:
        bounds[span] = max(bounds[span], bound)
    return bounds


def sum_parts(bounds: Matrix) -> Matrix:
    """Raise each bound to the largest sum over the ways to part its interval, in place."""
    for cut in range(1, len(bounds) - 1):
        both = bounds[:cut, cut, None] + bounds[cut, None, cut + 1 :]
        bounds[:cut, cut + 1 :] = np.maximum(bounds[:cut, cut + 1 :], both)
    return bounds
