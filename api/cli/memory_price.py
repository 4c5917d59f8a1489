"""Describes what more memory per device would be worth.

The price is the slope of the proven bound against the memory limit: with m bytes more, no plan is faster than
bound - price * m (weak duality; the multipliers of the limit stay feasible when it grows). So it is the most that more
memory saves, near the limit. What more memory does save is known only for layouts that were priced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.units import format_bytes, format_time

Document = dict[str, Any]
MIB_PER_GIB = 1 << 10


def describe_memory_price(price_s_per_gib: float) -> str:
    """Return what one more MiB per device saves at most; "" where the limit does not bind."""
    if not price_s_per_gib:
        return ""
    return f"the memory limit binds: one more MiB per device saves at most {format_time(price_s_per_gib / MIB_PER_GIB)}"


def describe_next_layout(step_s: float, limit_bytes: int, baselines: Sequence[Document]) -> str:
    """Return the layout that needs the least memory beyond the limit and is faster than a step of `step_s`, or ""."""
    faster = [layout for layout in baselines if layout["peak_bytes"] > limit_bytes and layout["step_s"] < step_s]
    if not faster:
        return ""
    least = min(faster, key=lambda layout: int(layout["peak_bytes"]))
    extra_bytes, saved_s = least["peak_bytes"] - limit_bytes, step_s - least["step_s"]
    return f"{format_bytes(extra_bytes)} more let {least['name']} save {format_time(saved_s)}"
