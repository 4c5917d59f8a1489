"""What stands for the array module while an array function is recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from planner.export.shard_map.recording import FRESH, Bits, Edge, Page, Recorded, Rows
from planner.export.shard_map.words import written


class Recorder:
    """What stands for the array module."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(jnp, name):
            raise AttributeError(name)
        return _Function(self.page, name)

    def arange(self, *ends: Any, **named: Any) -> Any:
        """From a device's edge on: as many numbers as its span is long."""
        if len(ends) > 1 and isinstance(ends[0], Edge):
            return ends[0] + self.arange(ends[1] - ends[0], **named)
        return _Function(self.page, "arange")(*ends, **named)

    def matmul(self, *given: Any) -> Any:
        arrays = (each.array if isinstance(each, Rows) else each for each in given)
        return _Function(self.page, "matmul")(*arrays)


@dataclass(frozen=True, slots=True)
class _Function:
    page: Page
    name: str

    def __call__(self, *given: Any, **named: Any) -> Any:
        function = getattr(jnp, self.name)
        if named.pop("kind", None) == "stable":  # numpy's word for it
            named["stable"] = True
        text = f"jnp.{self.name}({written(*given, **named)})"
        return self.page.line(text, lambda a, k: function(*a, **k), given, _Static(named), fresh=self.name in FRESH)

    def at(self, into: Recorded | Bits, places: Any, values: Any) -> None:
        """`ufunc.at`, in place."""
        written_to = into.array if isinstance(into, Bits) else into
        written_to.write({"maximum": "max", "minimum": "min"}.get(self.name, self.name), places, values)


class _Static(dict[str, Any]):
    """Keywords, which are no arrays: opaque to JAX's trees."""
