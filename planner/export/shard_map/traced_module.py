"""An array module whose functions are recorded while an array function runs."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import jax.numpy as jnp

from planner.export.shard_map.py_source import format_call
from planner.export.shard_map.tracer import FRESH, TracedArray, TracedBits, TracedBound, TracedRows, TracePage


class TracedArrayModule:
    """Stands in for the array module and records the calls of its functions."""

    def __init__(self, page: TracePage) -> None:
        self.page = page

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(jnp, name):
            raise AttributeError(name)
        return _TracedFunction(self.page, name)

    def arange(self, *ends: Any, **named: Any) -> Any:
        """Return consecutive numbers; from a device's bound on, as many as its span is long."""
        if len(ends) > 1 and isinstance(ends[0], TracedBound):
            return ends[0] + self.arange(ends[1] - ends[0], **named)
        return _TracedFunction(self.page, "arange")(*ends, **named)

    def matmul(self, *given: Any) -> Any:
        arrays = (each.array if isinstance(each, TracedRows) else each for each in given)
        return _TracedFunction(self.page, "matmul")(*arrays)


@dataclass(frozen=True, slots=True)
class _TracedFunction:
    page: TracePage
    name: str

    def __getattr__(self, name: str) -> _TracedFunction:
        """Return a function of a module of functions, such as `fft`."""
        if name.startswith("__") or not hasattr(attrgetter(self.name)(jnp), name):
            raise AttributeError(name)
        return _TracedFunction(self.page, f"{self.name}.{name}")

    def __call__(self, *given: Any, **named: Any) -> Any:
        function = attrgetter(self.name)(jnp)
        if named.pop("kind", None) == "stable":  # numpy's word for it
            named["stable"] = True
        text = f"jnp.{self.name}({format_call(*given, **named)})"
        return self.page.line(
            text, lambda a, k: function(*a, **k), given, _StaticNames(named), fresh=self.name in FRESH
        )

    def at(self, into: TracedArray | TracedBits, places: Any, values: Any) -> None:
        """Record `ufunc.at`, which works in place."""
        written_to = into.array if isinstance(into, TracedBits) else into
        written_to.write({"maximum": "max", "minimum": "min"}.get(self.name, self.name), places, values)


class _StaticNames(dict[str, Any]):
    """Keyword arguments, which are no arrays: opaque to JAX's trees."""
