"""The values that every logical device holds during the run of an SPMD program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import RunFailed
from planner.run.backend import run_dtype
from planner.run.undef import PartialArray, check_defined
from planner.spmd import LocalType, LocalValue
from planner.spmd.types import are_compatible

Array = Any


class ValueStore:
    """Local tensors by device and name, checked against their declared types when stored."""

    def __init__(self, xp: Any, precision: str, values: Mapping[str, LocalValue], devices: int) -> None:
        self.xp, self.precision, self.values = xp, precision, values
        self.held: list[dict[str, PartialArray]] = [{} for _ in range(devices)]

    def read(self, name: str, device: int) -> PartialArray:
        return self.held[device][name]

    def read_defined(self, name: str, device: int, where: str) -> Array:
        """Return the array of a value that is read whole. Raises RunFailed where an element is undefined."""
        held = self.read(name, device)
        check_defined(held, name, device, where=where)
        return held.array

    def read_number(self, name: str, device: int, where: str) -> int:
        return int(self.read_defined(name, device, where))

    def dtype(self, kind: LocalType) -> Any:
        return run_dtype(self.xp, kind.dtype, self.precision)

    def put(self, name: str, device: int, held: PartialArray, *, where: str) -> None:
        """Store a value. Raises RunFailed when the array is not of the value's declared type."""
        kind, array = self.values[name].type, held.array
        if array.ndim != kind.rank or not all(map(are_compatible, array.shape, kind.shape)):
            raise RunFailed(
                f"%{name} has another shape on device {device}", where=where, got=array.shape, wanted=str(kind)
            )
        if array.dtype != self.dtype(kind):
            got = str(array.dtype)
            raise RunFailed(f"%{name} has another dtype on device {device}", where=where, got=got, wanted=str(kind))
        self.held[device][name] = held

    def discard(self, name: str, device: int) -> None:
        self.held[device].pop(name, None)
