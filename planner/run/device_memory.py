"""Memory and time of a logical device.

On a GPU every logical device has a memory pool and a stream of its own. An op runs on the device's stream and allocates
from its pool. Arrays that come from elsewhere, or share memory with another value, are copied into it, because every
value of a program has its own buffer. So between two instructions the pool holds exactly the device's live values,
each rounded up to ALIGNMENT. Collectives run on the default stream, which waits for the devices' streams and they for
it (they are blocking streams), also where memory is used again. Numpy has one memory and no streams.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

Array = Any
ALIGNMENT = 512
"""Bytes to whose multiples cupy's pools round up."""


class DeviceMemory:
    """A device in numpy: only time is taken. `seconds` are those of every op, by instruction."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}

    @contextmanager
    def time_op(self, place: int) -> Iterator[None]:
        """Take the time of an op of the device, or of one of its steps: they are added up."""
        start = time.perf_counter()
        yield
        self.seconds[place] = self.seconds.get(place, 0.0) + time.perf_counter() - start

    def adopt(self, array: Array, others: list[Array] | None = None) -> Array:
        """Return the array as the device keeps it.

        `others` are the operands of the op that made it; None for an array from elsewhere.
        """
        return array

    def add_live(self, array: Array) -> None:
        """Count one more live value."""

    def remove_live(self, array: Array) -> None:
        """Count one live value less."""

    def end_instruction(self) -> None:
        """Measure the pool between two instructions."""

    def finish(self) -> None:
        """Wait for the device and complete `seconds`, which are those of all runs of an instruction."""

    @property
    def measured_peak(self) -> tuple[int, int] | None:
        """Peak bytes measured in the device's pool, and of its live values, rounded up; None without a pool."""
        return None


class GpuDeviceMemory(DeviceMemory):
    """A device with a memory pool and a stream on a GPU."""

    def __init__(self, cupy: Any) -> None:
        super().__init__()
        self.cuda = cupy.cuda
        self.memory, self.stream = self.cuda.MemoryPool(), self.cuda.Stream(non_blocking=False)
        self.events: list[tuple[int, Any, Any]] = []
        self.live = self.measured = self.predicted = 0

    @contextmanager
    def time_op(self, place: int) -> Iterator[None]:
        start, stop = self.cuda.Event(), self.cuda.Event()
        with self.cuda.using_allocator(self.memory.malloc), self.stream:
            start.record(self.stream)
            yield
            stop.record(self.stream)
        self.events.append((place, start, stop))

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
        for place, start, stop in self.events:
            self.seconds[place] = self.seconds.get(place, 0.0) + self.cuda.get_elapsed_time(start, stop) / 1e3
        self.events.clear()

    @property
    def measured_peak(self) -> tuple[int, int]:
        return self.measured, self.predicted


def make_device_memory(xp: Any) -> DeviceMemory:
    """Return the memory of one logical device."""
    return DeviceMemory() if xp is np else GpuDeviceMemory(xp)
