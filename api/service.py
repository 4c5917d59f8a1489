"""The parts of the service, created together and stopped together."""

from __future__ import annotations

import threading

from api.http.requests import pack_json
from api.jobs.api_keys import ApiKeys
from api.jobs.background_loop import BackgroundLoop
from api.jobs.database import Database
from api.jobs.executor import PlanExecutor
from api.jobs.plan_repository import PlanRepository
from api.jobs.queue import JobQueue
from api.jobs.retention import purge
from api.jobs.sweep_worker import SweepWorker
from api.jobs.tables import JobKind
from api.jobs.worker import Worker, WorkerParts
from api.jobs.worker_process import ResourceLimits, TaskResult, WorkerProcesses
from api.metrics import Metrics
from api.settings import DAY_S, WORKER_TTL_S, Settings
from api.tenant_quotas import OpenStreams, TaskSlots
from api.tracing import OUTCOME, span
from api.webhooks.dispatcher import WebhookDispatcher
from api.webhooks.sender import WebhookSender
from api.webhooks.store import WebhookStore

MAX_CONCURRENT_TASKS = 2
"""Validations, exports and reshards that run at the same time."""
MAX_SWEEPS = 2
"""Sweeps that a process with workers leads at the same time."""
QUEUE_WAIT_S = 2.0
PURGE_EVERY_S = 600.0


class ServiceBusy(Exception):
    """The service runs as many tasks at once as it may."""


class Service:
    """The database, the queue, the workers, and the processes that run short tasks.

    The caller closes `children`. `sender` posts to webhooks; by default over TLS to public addresses.
    """

    def __init__(self, settings: Settings, children: WorkerProcesses, sender: WebhookSender | None = None) -> None:
        self.settings, self.limits = settings, settings.limits
        self.store = Database(settings.database)
        self.jobs, self.plans, self.keys = (
            JobQueue(self.store),
            PlanRepository(self.store),
            ApiKeys(self.store),
        )
        self.metrics, self.processes = Metrics(self.plans.counts), children
        self.webhooks = WebhookStore(self.store)
        self.dispatcher = WebhookDispatcher(self.webhooks, sender or WebhookSender()) if settings.webhooks else None
        parts = WorkerParts(self.jobs, self.processes, self.limits, self.metrics)
        slots: dict[JobKind, int] = {"plan": settings.workers, "sweep": MAX_SWEEPS}
        workers: dict[JobKind, Worker] = {"plan": Worker(parts), "sweep": SweepWorker(parts)}
        self.executor = PlanExecutor(self.jobs, workers, slots) if settings.workers else None
        self.streams = OpenStreams(settings.limits.streams)
        self._task_slots = TaskSlots(MAX_CONCURRENT_TASKS)
        self._stopping = threading.Event()
        keep = settings.keep_days
        self._loops = () if keep is None else (BackgroundLoop("purge", lambda: self._purge(keep * DAY_S)),)

    def start(self) -> None:
        self.processes.prepare()
        self.jobs.workflows.enqueue_missing()
        if self.executor is not None:
            self.executor.start()
        if self.dispatcher is not None:
            self.dispatcher.start()
        for loop in self._loops:
            loop.start()

    def _purge(self, older_than_s: float) -> float:
        purge(self.jobs.workflows, older_than_s)
        return PURGE_EVERY_S

    @property
    def is_alive(self) -> bool:
        """Return whether every thread of this process is there to go on with its work."""
        delivering = () if self.dispatcher is None else self.dispatcher.loops
        executing = () if self.executor is None else (self.executor,)
        return all(part.is_alive for part in (*executing, *self._loops, *delivering))

    @property
    def is_working(self) -> bool:
        """Return whether no worker of this process failed in its last step."""
        return self.executor is None or self.executor.is_working

    @property
    def has_worker(self) -> bool:
        """Return whether a worker of this or another host has sent a heartbeat lately."""
        return self.plans.workers(WORKER_TTL_S) > 0

    def begin_shutdown(self) -> None:
        """End event streams and running tasks, so that no open connection delays the shutdown."""
        self._stopping.set()

    def stop(self) -> None:
        """Kill all child processes; plans that were being solved go back to the queue."""
        self.begin_shutdown()
        for loop in self._loops:
            loop.stop()
        if self.executor is not None:
            self.executor.stop()
        if self.dispatcher is not None:
            self.dispatcher.stop()
        for loop in self._loops:
            loop.join()
        self.jobs.workflows.close()
        self.store.close()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def run_task(self, tenant: str, kind: str, task: object) -> TaskResult:
        """Run a task of a tenant whose caller waits for the result. Raises ServiceBusy."""
        with self._task_slots.take(tenant, QUEUE_WAIT_S) as is_taken:
            if not is_taken:
                raise ServiceBusy
            limits = ResourceLimits(
                self.limits.answer_wall_s, int(self.limits.answer_wall_s), self.limits.child_memory_bytes
            )
            with span(f"child {kind}", {}) as attributes:
                result = self.processes.run(kind, pack_json(task), limits, lambda: not self.is_stopping)
                attributes[OUTCOME] = result.kind
            return result
