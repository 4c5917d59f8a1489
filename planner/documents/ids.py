"""Canonical JSON (RFC 8785) and the ids made from it. Integers are written exactly, whatever their size."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any


def digest(document: Any) -> str:
    """SHA-256 of canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical(document).encode()).hexdigest()


def canonical(document: Any) -> str:
    """The one text of a JSON value: keys in UTF-16 order, numbers as ECMAScript writes them, no white space."""
    match document:
        case str():
            return encode_basestring(document)
        case None | bool() | int():
            return json.dumps(document)
        case float():
            return _number(document)
        case Mapping():
            keys = sorted(document, key=lambda key: str(key).encode("utf-16-be"))
            return "{" + ",".join(f"{canonical(key)}:{canonical(document[key])}" for key in keys) + "}"
        case _:
            return "[" + ",".join(map(canonical, document)) + "]"


def _number(number: float) -> str:
    """ECMA-262, Number::toString: the shortest digits that read back the same. Raises ValueError for nan, infinity."""
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
