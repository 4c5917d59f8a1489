"""Canonical JSON (RFC 8785) and the ids made from it. Integers are written exactly, whatever their size."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

_FLOAT = re.compile(r"[:\[,](-?\d+(?:\.\d+(?:e[+-]\d+)?|e[+-]\d+))")
_ESCAPE = re.compile(r"\\.")


def digest_document(document: Any) -> str:
    """Return the SHA-256 of a document's canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(document).encode()).hexdigest()


def canonical_json(document: Any) -> str:
    """Return the one text of a JSON value: keys in UTF-16 order, numbers as ECMAScript writes them, no white space.

    Raises ValueError for nan and infinity.
    """
    text = _dump_json(document, sort_keys=True)
    if not text.isascii() and max(text) > "\uffff":  # only then do code points and UTF-16 sort differently
        text = _dump_json(_sort_keys(document), sort_keys=False)
    return _restore_numbers(f",{text}")[1:]


def _restore_numbers(text: str) -> str:
    """Rewrite floats as ECMAScript writes them.

    A match is a number, not part of a string, where an even number of quotes precedes it.
    """
    parts, done, quotes = [], 0, 0
    for match in _FLOAT.finditer(text):
        between = text[done : match.start(1)]
        quotes += (_ESCAPE.sub("", between) if "\\" in between else between).count('"')
        parts += [between, match[1] if quotes % 2 else _format_number(float(match[1]))]
        done = match.end()
    return "".join([*parts, text[done:]])


def _dump_json(document: Any, *, sort_keys: bool) -> str:
    return json.dumps(
        document, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys, separators=(",", ":"), default=_to_plain
    )


def _to_plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value)


def _sort_keys(document: Any) -> Any:
    match document:
        case Mapping():
            keys = sorted(document, key=lambda key: str(key).encode("utf-16-be"))
            return {key: _sort_keys(document[key]) for key in keys}
        case list() | tuple():
            return [_sort_keys(each) for each in document]
        case _:
            return document


@lru_cache(maxsize=4096)
def _format_number(number: float) -> str:
    """Return the shortest digits that read back the same (ECMA-262, Number::toString)."""
    if number == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)
    if 0 < point <= 21:
        text = f"{text[:point]}.{text[point:]}" if point < len(text) else text.ljust(point, "0")
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{text}"
    else:
        mantissa = f"{text[0]}.{text[1:]}" if len(text) > 1 else text
        text = f"{mantissa}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return f"-{text}" if sign else text
