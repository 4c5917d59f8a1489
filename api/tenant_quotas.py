"""What the tenants of a process share: event streams and the child processes of short tasks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count


class OpenStreams:
    """How many event streams each tenant has open, at most `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def open(self, tenant: str) -> bool:
        """Count a stream of a tenant. Return False where it has as many as it may."""
        with self._lock:
            if self._counts[tenant] >= self.most:
                return False
            self._counts[tenant] += 1
            return True

    def close(self, tenant: str) -> None:
        with self._lock:
            self._counts[tenant] -= 1


class TaskSlots:
    """Slots for tasks that run at the same time.

    A slot that becomes free goes to the tenant that holds the fewest, and among its callers to the first. So a tenant's
    task waits for one task to end, however many tasks of another tenant wait.
    """

    def __init__(self, slots: int) -> None:
        self._free, self._numbers = slots, count()
        self._changed = threading.Condition()
        self._held: Counter[str] = Counter()
        self._waiting: dict[int, str] = {}

    @property
    def waiting(self) -> int:
        """The number of callers that wait for a slot."""
        return len(self._waiting)

    @contextmanager
    def take(self, tenant: str, timeout_s: float) -> Iterator[bool]:
        """Hold a slot in the context; its value is False where none became free in time."""
        is_taken = self._wait(tenant, timeout_s)
        try:
            yield is_taken
        finally:
            if is_taken:
                with self._changed:
                    self._free += 1
                    self._held[tenant] -= 1
                    self._held += Counter()  # forgets tenants that hold none
                    self._changed.notify_all()

    def _wait(self, tenant: str, timeout_s: float) -> bool:
        with self._changed:
            number = next(self._numbers)
            self._waiting[number] = tenant
            is_taken = self._changed.wait_for(lambda: self._is_next(number), timeout_s)
            del self._waiting[number]
            if is_taken:
                self._free -= 1
                self._held[tenant] += 1
            # Where a slot is left, or this caller gives up, another one may be next.
            self._changed.notify_all()
            return is_taken

    def _is_next(self, number: int) -> bool:
        return self._free > 0 and number == min(self._waiting, key=lambda each: (self._held[self._waiting[each]], each))
