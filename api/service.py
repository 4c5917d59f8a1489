"""The service's parts, made together and ended together."""

from __future__ import annotations

import logging
import threading
from collections import Counter

from sqlalchemy.exc import OperationalError

from api.asking import packed
from api.children import Allowed, Children, Ended
from api.hooks.notifier import Notifier
from api.hooks.register import Register
from api.hooks.sending import Sender
from api.jobs import Jobs
from api.keys import Keys
from api.metrics import Metrics
from api.records import Records
from api.retention import forget
from api.settings import DAY_S, UNSEEN_S, Settings
from api.store import Store
from api.tracing import OUTCOME, span
from api.worker import Worker

log = logging.getLogger("shardplan.service")

AT_ONCE = 2
"""Validations, exports and reshards answered at the same time."""
WAIT_S = 2.0
FORGET_EVERY_S = 600.0


class Busy(Exception):
    """As much is being answered as can be at once."""


class Service:
    """Store, queue, workers, and children for what is answered at once, which whoever lends them closes; `sender` posts
    to webhooks."""

    def __init__(self, settings: Settings, children: Children, sender: Sender | None = None) -> None:
        self.settings, self.limits = settings, settings.limits
        self.store = Store(settings.database)
        self.jobs, self.records, self.keys = Jobs(self.store, settings.lease_s), Records(self.store), Keys(self.store)
        self.metrics, self.children = Metrics(), children
        self.hooks = Register(self.store)
        self.notifier = Notifier(self.hooks, sender or Sender()) if settings.webhooks else None
        work = self.jobs, self.children, self.limits, self.metrics
        self.workers = tuple(Worker(*work) for _ in range(settings.workers))
        self.streams: Counter[str] = Counter()
        self._free = threading.BoundedSemaphore(AT_ONCE)
        self._stopping = threading.Event()

    def start(self) -> None:
        self.children.prepare()
        for worker in self.workers:
            worker.start()
        if self.notifier is not None:
            self.notifier.start()
        if self.settings.keep_days is not None:
            threading.Thread(target=self._forget, args=(self.settings.keep_days * DAY_S,), daemon=True).start()

    def _forget(self, older_than_s: float) -> None:
        """Old plans, again and again."""
        while not self._stopping.is_set():
            try:
                forget(self.store, older_than_s)
            except OperationalError as error:
                log.warning("database: %s", error.orig)
            self._stopping.wait(FORGET_EVERY_S)

    def wake(self) -> None:
        """There is work."""
        for worker in self.workers:
            worker.wake()

    @property
    def has_worker(self) -> bool:
        """Whether a worker, here or on another host, was seen lately."""
        return self.records.workers(UNSEEN_S) > 0

    def leave(self) -> None:
        """Streams and what is being answered end, so that no connection holds up the stop."""
        self._stopping.set()

    def stop(self) -> None:
        """Ends every child; plans in hand go back in line."""
        self.leave()
        for worker in self.workers:
            worker.stop()
        if self.notifier is not None:
            self.notifier.stop()
        self.store.close()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def answer(self, kind: str, ask: object) -> Ended:
        """Do a piece of work that its caller waits for. Raises Busy."""
        if not self._free.acquire(timeout=WAIT_S):
            raise Busy
        try:
            allowed = Allowed(self.limits.answer_wall_s, int(self.limits.answer_wall_s), self.limits.child_memory_bytes)
            with span(f"child {kind}", {}) as told:
                ended = self.children.do(kind, packed(ask), allowed, lambda: not self.is_stopping)
                told[OUTCOME] = ended.kind
            return ended
        finally:
            self._free.release()
