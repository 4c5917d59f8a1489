"""Values as Python text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def written(*given: Any, **named: Any) -> str:
    """Arguments or keys, as they stand between brackets."""
    return ", ".join([*map(word, given), *(f"{key}={word(value)}" for key, value in named.items())])


def word(value: Any) -> str:
    """Arrays by their name. Raises TypeError for what has no text."""
    if hasattr(value, "text"):
        return str(value.text)
    match value:
        case None | bool() | int() | str() | range():
            return repr(value)
        case np.generic() | np.dtype() | float():
            return _number(value)
        case type():
            return _number(np.dtype(value))
        case slice() | tuple() | list():
            return _several(value)
        case _ if value is Ellipsis:
            return "..."
        case _:
            raise TypeError(f"no text for {type(value).__name__}")


def _number(value: Any) -> str:
    """In numpy's types by JAX's names of them."""
    if isinstance(value, np.dtype):
        return "jnp.bool_" if value.kind == "b" else f"jnp.{value.name}"
    if isinstance(value, np.generic):
        return f"{_number(value.dtype)}({word(value.item())})"
    return repr(value) if math.isfinite(value) else f"float({str(value)!r})"


def _several(value: Any) -> str:
    if isinstance(value, slice):
        return f"slice({word(value.start)}, {word(value.stop)}, {word(value.step)})"
    inside = ", ".join(map(word, value))
    return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
