"""The service's parts, made together and ended together."""

from __future__ import annotations

import logging
import threading
from collections import Counter

from sqlalchemy.exc import OperationalError

from api.http.requests import pack_json
from api.jobs.api_keys import ApiKeys
from api.jobs.database import Database
from api.jobs.plan_repository import PlanRepository
from api.jobs.queue import JobQueue
from api.jobs.retention import purge
from api.jobs.worker import Worker
from api.jobs.worker_process import ResourceLimits, TaskResult, WorkerProcesses
from api.metrics import Metrics
from api.settings import DAY_S, WORKER_TTL_S, Settings
from api.tracing import OUTCOME, span
from api.webhooks.dispatcher import WebhookDispatcher
from api.webhooks.sender import WebhookSender
from api.webhooks.store import WebhookStore

log = logging.getLogger("shardplan.service")

MAX_CONCURRENT_TASKS = 2
"""Validations, exports and reshards answered at the same time."""
QUEUE_WAIT_S = 2.0
PURGE_EVERY_S = 600.0


class ServiceBusy(Exception):
    """As much is being answered as can be at once."""


class Service:
    """Store, queue, workers, and children for what is answered at once, which whoever lends them closes; `sender` posts
    to webhooks."""

    def __init__(self, settings: Settings, children: WorkerProcesses, sender: WebhookSender | None = None) -> None:
        self.settings, self.limits = settings, settings.limits
        self.store = Database(settings.database)
        self.jobs, self.plans, self.keys = (
            JobQueue(self.store, settings.lease_s),
            PlanRepository(self.store),
            ApiKeys(self.store),
        )
        self.metrics, self.processes = Metrics(), children
        self.webhooks = WebhookStore(self.store)
        self.dispatcher = WebhookDispatcher(self.webhooks, sender or WebhookSender()) if settings.webhooks else None
        work = self.jobs, self.processes, self.limits, self.metrics
        self.workers = tuple(Worker(*work) for _ in range(settings.workers))
        self.streams: Counter[str] = Counter()
        self._free = threading.BoundedSemaphore(MAX_CONCURRENT_TASKS)
        self._stopping = threading.Event()

    def start(self) -> None:
        self.processes.prepare()
        for worker in self.workers:
            worker.start()
        if self.dispatcher is not None:
            self.dispatcher.start()
        if self.settings.keep_days is not None:
            threading.Thread(target=self._purge_regularly, args=(self.settings.keep_days * DAY_S,), daemon=True).start()

    def _purge_regularly(self, older_than_s: float) -> None:
        """Old plans, again and again."""
        while not self._stopping.is_set():
            try:
                purge(self.store, older_than_s)
            except OperationalError as error:
                log.warning("database: %s", error.orig)
            self._stopping.wait(PURGE_EVERY_S)

    def wake(self) -> None:
        """There is work."""
        for worker in self.workers:
            worker.wake()

    @property
    def has_worker(self) -> bool:
        """Whether a worker, here or on another host, was seen lately."""
        return self.plans.workers(WORKER_TTL_S) > 0

    def begin_shutdown(self) -> None:
        """Streams and what is being answered end, so that no connection holds up the stop."""
        self._stopping.set()

    def stop(self) -> None:
        """Ends every child; plans in hand go back in line."""
        self.begin_shutdown()
        for worker in self.workers:
            worker.stop()
        if self.dispatcher is not None:
            self.dispatcher.stop()
        self.store.close()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def run_task(self, kind: str, ask: object) -> TaskResult:
        """Do a piece of work that its caller waits for. Raises Busy."""
        if not self._free.acquire(timeout=QUEUE_WAIT_S):
            raise ServiceBusy
        try:
            allowed = ResourceLimits(
                self.limits.answer_wall_s, int(self.limits.answer_wall_s), self.limits.child_memory_bytes
            )
            with span(f"child {kind}", {}) as told:
                ended = self.processes.run(kind, pack_json(ask), allowed, lambda: not self.is_stopping)
                told[OUTCOME] = ended.kind
            return ended
        finally:
            self._free.release()
