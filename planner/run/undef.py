"""Local tensors of which some elements are undefined, and errors for reading one.

A mask beside the array marks the undefined elements. The array also holds poison there (NaN; for integers the smallest
value; False), so that a read which is not detected here cannot pass for a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.errors import RunFailed

Array = Any


@dataclass(frozen=True, slots=True, eq=False)
class PartialArray:
    """A device's part of a value. `undefined` is a mask, None where every element is defined."""

    array: Array
    undefined: Array | None = None

    @classmethod
    def of(cls, xp: Any, array: Array, undefined: Array | None) -> PartialArray:
        """Return the array with poison where the mask is set."""
        if undefined is None or not bool(undefined.any()):
            return cls(array)
        return cls(xp.where(undefined, poison_value(xp, array.dtype), array), undefined)

    @classmethod
    def all_undefined(cls, xp: Any, shape: tuple[int, ...], dtype: Any) -> PartialArray:
        """Return an undefined tensor; one without elements has nothing undefined."""
        return cls.of(xp, xp.zeros(shape, dtype), xp.ones(shape, bool))

    def mask(self, xp: Any) -> Array:
        return xp.zeros(self.array.shape, bool) if self.undefined is None else self.undefined


def poison_value(xp: Any, dtype: Any) -> Any:
    """Return the value that an undefined element holds."""
    if dtype.kind == "f":
        return xp.asarray(np.nan, dtype)
    return xp.asarray(False if dtype.kind == "b" else np.iinfo(dtype).min, dtype)


def check_defined(held: PartialArray, value: str, device: int, *, where: str) -> None:
    """Raise RunFailed, naming value, device and index, if any element is undefined."""
    if held.undefined is not None:
        _report_undefined(int(held.undefined.reshape(-1).argmax()), held, value, device=device, where=where)


def check_movement(
    xp: Any,
    tensors: Sequence[PartialArray],
    move: Callable[[list[Array]], Sequence[Array | None]],
    *,
    value: str,
    devices: Sequence[int],
    where: str,
) -> None:
    """Raise RunFailed if a move brings an undefined element of any device's tensor into a defined result.

    The move itself shows what it reads: it runs on the numbers of the undefined elements, with -1 for defined ones.
    """
    if all(held.undefined is None for held in tensors):
        return
    starts = np.cumsum([0, *(held.array.size for held in tensors)])
    marked = [
        xp.where(held.mask(xp), int(start) + xp.arange(held.array.size).reshape(held.array.shape), -1)
        for held, start in zip(tensors, starts, strict=False)
    ]
    for result in move(marked):
        if result is not None and result.size and int(result.max()) >= 0:
            element = int(result[result >= 0].min())
            member = int(np.searchsorted(starts, element, "right")) - 1
            _report_undefined(
                element - int(starts[member]), tensors[member], value, device=devices[member], where=where
            )


def _report_undefined(flat: int, held: PartialArray, value: str, *, device: int, where: str) -> None:
    index = [int(place) for place in np.unravel_index(flat, held.array.shape)]
    raise RunFailed(
        "undefined element read", where=where, got=f"%{value} on device {device} at {index}", wanted="a defined one"
    )
