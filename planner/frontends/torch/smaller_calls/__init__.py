"""Calls without a row, written as smaller calls of torch that have rows, where torch has no such decomposition.

numbers    elementwise functions, sums and distances
order      medians, running extremes, sorting, drawing without replacement
lookup     reading and writing at positions, and views that are no rearrangement of dims
images     pools, paddings and resizing of images

A function takes the arguments of its overload. It returns NotImplemented where a row or torch takes the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.frontends.torch.smaller_calls import images, lookup, numbers, order

BEFORE_GRADIENT: Mapping[Any, Callable[..., Any]] = {
    **numbers.BEFORE_GRADIENT,
    **lookup.BEFORE_GRADIENT,
    **images.CALLS,
}
"""Calls whose gradient in torch is a call without a row: they are rewritten before the graph is differentiated."""

SMALLER_CALLS: Mapping[Any, Callable[..., Any]] = {**BEFORE_GRADIENT, **numbers.CALLS, **order.CALLS, **lookup.CALLS}

__all__ = ["BEFORE_GRADIENT", "SMALLER_CALLS"]
