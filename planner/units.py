"""Sizes, times and shares as people read them."""

from __future__ import annotations


def format_bytes(size: float) -> str:
    """Format a number of bytes, such as `12.3 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_time(seconds: float) -> str:
    """Format a time, such as `3.486 ms`."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1 or unit == "us":
            return f"{seconds * scale:.3f} {unit}"
    raise AssertionError


def format_count(number: float | None) -> str:
    """Format a number of things, such as `12,345` or `1.234`; None is `-`."""
    if number is None:
        return "-"
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


def format_share(part: float | None) -> str:
    """Format a share, such as `0.1 %` or `100 %`; None, an unknown share, is `-`."""
    if part is None:
        return "-"
    return f"{100 * part:.0f} %" if part >= 0.095 else f"{100 * part:.2g} %"
