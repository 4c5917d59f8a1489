"""Formats values as Python source."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def format_call(*given: Any, **named: Any) -> str:
    """Format arguments or keys as they stand between brackets."""
    return ", ".join([*map(format_value, given), *(f"{key}={format_value(value)}" for key, value in named.items())])


def format_value(value: Any) -> str:
    """Format a value; recorded arrays by their name. Raises TypeError for what has no text."""
    if hasattr(value, "text"):
        return str(value.text)
    match value:
        case None | bool() | int() | complex() | str() | range():
            return repr(value)
        case np.generic() | np.dtype() | float():
            return _format_number(value)
        case type():
            return _format_number(np.dtype(value))
        case slice() | tuple() | list():
            return _format_sequence(value)
        case _ if value is Ellipsis:
            return "..."
        case _:
            raise TypeError(f"no text for {type(value).__name__}")


def _format_number(value: Any) -> str:
    """Format a number; numpy's types by JAX's names of them."""
    if isinstance(value, np.dtype):
        return "jnp.bool_" if value.kind == "b" else f"jnp.{value.name}"
    if isinstance(value, np.generic):
        return f"{_format_number(value.dtype)}({format_value(value.item())})"
    return repr(value) if math.isfinite(value) else f"float({str(value)!r})"


def _format_sequence(value: Any) -> str:
    if isinstance(value, slice):
        return f"slice({format_value(value.start)}, {format_value(value.stop)}, {format_value(value.step)})"
    inside = ", ".join(map(format_value, value))
    return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
