"""What is proven where no plan fits the memory limit, in the words of the command line and of errors."""

from __future__ import annotations

from planner.units import format_bytes


def describe_infeasible(limit_bytes: int, least_bytes: int | None, bound_bytes: int | None) -> str:
    """Return the limit, the least limit known to be sufficient (None: none is) and the proven bound, per device."""
    known = (
        "no sufficient limit is known"
        if least_bytes is None
        else f"{format_bytes(least_bytes)} ({least_bytes} bytes) is sufficient"
    )
    return (
        f"no plan fits {format_bytes(limit_bytes)} per device; {known}, less than {format_bytes(bound_bytes or 0)} is "
        "proven insufficient"
    )
