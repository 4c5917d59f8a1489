"""What is proven where no plan fits the memory limit, in the words of the command line and of errors."""

from __future__ import annotations

from planner.units import format_bytes

FITS = " fits: "
"""What stands between a remedy that was tried, and the plan that was found with it, in the reason of a certificate."""
TIME_LIMIT = "time limit"


def describe_infeasible(limit_bytes: int, least_bytes: int | None, bound_bytes: int | None, reason: str = "") -> str:
    """Return the limit, what is known of other limits per device, and the remedy that was tried and fits, if any."""
    remedy = f"; {reason}" if FITS in reason else ""
    if reason.startswith(TIME_LIMIT):
        remedy = "; the time limit was up before a remedy was found"
    return f"no plan fits {format_bytes(limit_bytes)} per device; {describe_limits(least_bytes, bound_bytes)}{remedy}"


def describe_limits(least_bytes: int | None, bound_bytes: int | None) -> str:
    """Return the least limit known to be sufficient (None: none is) and the proven bound (None or 0: none is)."""
    known = (
        "no sufficient limit is known"
        if least_bytes is None
        else f"{format_bytes(least_bytes)} ({least_bytes} bytes) is sufficient"
    )
    return f"{known}, less than {format_bytes(bound_bytes)} is proven insufficient" if bound_bytes else known
