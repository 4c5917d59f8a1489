"""Sizes as people write them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from planner.errors import InvalidRequest

_BYTE_UNITS = {"": 1, "B": 1, **{f"{p}B": 1000**i for i, p in enumerate("KMGT", 1)}}
_BYTE_UNITS |= {f"{p}iB": 1024**i for i, p in enumerate("KMGT", 1)}


def parse_bytes(text: str) -> int:
    """`80GiB`, `500MB` or `1024` in bytes. Raises InvalidRequest."""
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([KMGT]?i?B|)\s*", text, re.ASCII)
    if not found or found[2] not in _BYTE_UNITS:
        raise InvalidRequest("memory size", got=text, wanted="a number with B, KB, KiB, MB, MiB, GB, GiB, TB or TiB")
    return int(float(found[1]) * _BYTE_UNITS[found[2]])


def parse_sizes(given: Iterable[str]) -> dict[str, int]:
    """`batch=8` as a name and a size; a name may hold anything. Raises InvalidRequest."""
    sizes = {}
    for text in given:
        found = re.fullmatch(r"(.+)=(\d{1,12})", text, re.ASCII | re.DOTALL)
        if not found:
            raise InvalidRequest("--dim", got=text, wanted="a name and a size, such as batch=8")
        sizes[found[1]] = int(found[2])
    return sizes
