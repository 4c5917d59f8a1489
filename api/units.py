"""Sizes as people write them on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable

from planner.errors import InvalidRequest

_BYTE_UNITS = {"": 1, "B": 1, **{f"{p}B": 1000**i for i, p in enumerate("KMGT", 1)}}
_BYTE_UNITS |= {f"{p}iB": 1024**i for i, p in enumerate("KMGT", 1)}


def parse_bytes(text: str) -> int:
    """Return the bytes of `80GiB`, `500MB` or `1024`. Raises InvalidRequest."""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([KMGT]?i?B|)\s*", text, re.ASCII)
    if not match or match[2] not in _BYTE_UNITS:
        raise InvalidRequest("memory size", got=text, wanted="a number with B, KB, KiB, MB, MiB, GB, GiB, TB or TiB")
    return int(float(match[1]) * _BYTE_UNITS[match[2]])


def parse_sizes(texts: Iterable[str]) -> dict[str, int]:
    """Return the sizes of `batch=8` by name; a name may contain any character. Raises InvalidRequest."""
    sizes = {}
    for text in texts:
        match = re.fullmatch(r"(.+)=(\d{1,12})", text, re.ASCII | re.DOTALL)
        if not match:
            raise InvalidRequest("--dim", got=text, wanted="a name and a size, such as batch=8")
        sizes[match[1]] = int(match[2])
    return sizes
