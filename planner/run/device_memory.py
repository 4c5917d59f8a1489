"""Where the arrays of a logical device live, and what its ops take.

On a GPU every logical device has a memory pool and a stream of its own. An op runs on the device's stream and allocates
from its pool; what comes from elsewhere, or shares memory with another value, is copied into it, since every value of a
program has its own buffer. So what the pool has in use between two instructions is the device's live values, each
rounded up to ALIGNMENT, and nothing else. Collectives run on the default stream: it waits for the devices' streams and
they for it (they are blocking streams), also where memory is used again. Numpy has one memory and no streams.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

Array = Any
ALIGNMENT = 512
"""Bytes to which cupy's pools round up."""


class DeviceMemory:
    """In numpy: nothing to be done but to take the time. `seconds`: of every op, by instruction."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}

    @contextmanager
    def time_op(self, place: int) -> Iterator[None]:
        """An op of the device runs."""
        start = time.perf_counter()
        yield
        self.seconds[place] = time.perf_counter() - start

    def adopt(self, array: Array, others: list[Array] | None = None) -> Array:
        """The array as the device keeps it: one that an op made beside `others`, or (None) one from elsewhere."""
        return array

    def add_live(self, array: Array) -> None:
        """One more live value."""

    def remove_live(self, array: Array) -> None:
        """One less."""

    def end_instruction(self) -> None:
        """Between two instructions."""

    def finish(self) -> None:
        """At the end: `seconds` are complete."""

    @property
    def measured_peak(self) -> tuple[int, int] | None:
        """Peak bytes measured in the device's pool, and of its live values, rounded up."""
        return None


class GpuDeviceMemory(DeviceMemory):
    """A memory pool and a stream."""

    def __init__(self, cupy: Any) -> None:
        super().__init__()
        self.cuda = cupy.cuda
        self.memory, self.stream = self.cuda.MemoryPool(), self.cuda.Stream(non_blocking=False)
        self.events: dict[int, tuple[Any, Any]] = {}
        self.live = self.measured = self.predicted = 0

    @contextmanager
    def time_op(self, place: int) -> Iterator[None]:
        start, stop = self.cuda.Event(), self.cuda.Event()
        with self.cuda.using_allocator(self.memory.malloc), self.stream:
            start.record(self.stream)
            yield
            stop.record(self.stream)
        self.events[place] = start, stop

    def adopt(self, array: Array, others: list[Array] | None = None) -> Array:
        if others is not None and array.base is None and not any(array is other for other in others):
            return array
        with self.cuda.using_allocator(self.memory.malloc), self.stream:
            return array.copy()

    def add_live(self, array: Array) -> None:
        self.live += -(-int(array.nbytes) // ALIGNMENT) * ALIGNMENT
        self.predicted = max(self.predicted, self.live)

    def remove_live(self, array: Array) -> None:
        self.live -= -(-int(array.nbytes) // ALIGNMENT) * ALIGNMENT

    def end_instruction(self) -> None:
        self.measured = max(self.measured, int(self.memory.used_bytes()))

    def finish(self) -> None:
        self.stream.synchronize()
        for place, (start, stop) in self.events.items():
            self.seconds[place] = self.cuda.get_elapsed_time(start, stop) / 1e3

    @property
    def measured_peak(self) -> tuple[int, int]:
        return self.measured, self.predicted


def make_device_memory(xp: Any) -> DeviceMemory:
    """Of one logical device."""
    return DeviceMemory() if xp is np else GpuDeviceMemory(xp)
