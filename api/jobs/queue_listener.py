"""Wakes the idle workers of a process when any process has queued a plan, on PostgreSQL (LISTEN and NOTIFY).

Workers poll all the same: for leases that expired, and because a notification is lost where its connection is. While
nothing listens, as always on SQLite, they poll more often.
"""

from __future__ import annotations

from collections.abc import Callable

from api.jobs.background_loop import BackgroundLoop
from api.jobs.database import Database

POLL_S = 0.2
"""How often an idle worker looks for plans."""
WOKEN_POLL_S = 1.0
"""How often one that is woken does."""
TICK_S = 0.2
"""How soon the listener notices that it is stopped."""


class QueueListener:
    """Calls `wake` when a plan may have been queued."""

    def __init__(self, store: Database, wake: Callable[[], None]) -> None:
        self.store, self._wake, self._is_listening = store, wake, False
        self.loop = BackgroundLoop("listener", self._listen)

    @property
    def poll_s(self) -> float:
        """The seconds until an idle worker looks for plans, unless it is woken."""
        return WOKEN_POLL_S if self._is_listening else POLL_S

    def _listen(self) -> float:
        with self.store.listen() as wait:
            self._is_listening = True
            try:
                self._wake()  # for what was queued before, and to poll less often
                while not self.loop.is_stopping:
                    if wait(TICK_S):
                        self._wake()
            finally:
                self._is_listening = False
                self._wake()  # to poll more often
        return 0.0
