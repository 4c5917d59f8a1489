"""The executor of a process: DBOS hands it plans and sweeps, as many at a time as it has workers.

DBOS finds waiting workflows by polling, and takes the lines of tenants in random order, so that one tenant's plans
delay another's by those that run, however many wait. It does not notice that another executor is gone: each sends
heartbeats by the database's clock, and brings back what is in the hands of one that sent none lately. It also brings
back what DBOS says that it runs itself and that it does not.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from api.jobs.background_loop import BackgroundLoop
from api.jobs.database import UNAVAILABLE
from api.jobs.queue import JobQueue
from api.jobs.tables import JobKind
from api.jobs.worker import Worker
from api.jobs.workflows import APPLICATION, QUEUES, WORKFLOW_VERSION
from api.settings import HEARTBEAT_S, WORKER_TTL_S

log = logging.getLogger("shardplan.executor")

POLL_S: dict[JobKind, float] = {"plan": 0.1, "sweep": 0.5}
"""How often an executor that has idle workers looks for plans and for sweeps: one read of the database each time."""
TICK_S = 0.02
_DBOS_IS_FREE = threading.Lock()
"""DBOS is one object per process."""


class PlanExecutor:
    """Runs the workers of a process; `slots` is how many plans, or sweeps, are done at the same time."""

    def __init__(self, jobs: JobQueue, workers: Mapping[JobKind, Worker], slots: Mapping[JobKind, int]) -> None:
        self.jobs, self.workers, self.slots, self.id = jobs, workers, slots, uuid4().hex
        self.loop = BackgroundLoop("executor", self._step, lambda: jobs.deregister(self.id))
        self._suspects: set[str] = set()
        self._queues: list[Any] = []

    def start(self) -> None:
        """Take workflows from now on. Raises RuntimeError where this process has an executor already."""
        if not _DBOS_IS_FREE.acquire(blocking=False):
            raise RuntimeError("a process runs one executor at a time")
        try:
            self._send_heartbeat()
            self._launch()
        except BaseException:
            self._end_dbos()
            raise
        self.loop.start()

    def stop(self) -> None:
        """Kill the child processes, put their plans back into the queue, and take no others."""
        for queue in self._queues:
            queue._worker_concurrency = 0
        for worker in self.workers.values():
            worker.stop()
        for worker in self.workers.values():
            worker.join()  # before DBOS ends: it notes what has ended
        self._end_dbos()
        for worker in self.workers.values():
            worker.join()
        self.loop.stop()
        self.loop.join()
        try:
            self._bring_back_own()
        except UNAVAILABLE as error:
            log.warning("plans that were begun here wait until others miss this executor: %s", error)

    def _bring_back_own(self) -> None:
        for workflow, (queue, executor) in self.jobs.workflows.list_running().items():
            if executor == self.id:
                self.jobs.workflows.bring_back(workflow, queue)

    @property
    def is_alive(self) -> bool:
        """Return whether the threads that take workflows and send heartbeats are there, or were told to stop."""
        return self.loop.is_alive and (self.loop.is_stopping or self._is_polling)

    @property
    def _is_polling(self) -> bool:
        threads = {thread.name for thread in threading.enumerate()}
        return all(f"queue-worker-{queue}" in threads for queue in QUEUES.values())

    @property
    def is_working(self) -> bool:
        """Return whether neither the last heartbeat nor the last step of a worker failed."""
        return not self.loop.error and not any(worker.errors for worker in self.workers.values())

    def _launch(self) -> None:
        from dbos import DBOS, DBOSPortableJSONSerializer

        dbos = DBOS(
            config={
                "name": APPLICATION,
                "system_database_url": self.jobs.store.url,
                "sys_db_pool_size": 5,
                "executor_id": self.id,
                "application_version": WORKFLOW_VERSION,
                "serializer": DBOSPortableJSONSerializer(),
                "use_listen_notify": False,
                "notification_listener_polling_interval_sec": TICK_S,  # reads nothing, and delays the end by as much
                "log_level": "WARNING",
                "run_migrations": False,
            }
        )
        for kind, worker in self.workers.items():
            DBOS.workflow(name=kind, max_recovery_attempts=None)(_make_function(worker))
            self._queues.append(_add_queue(QUEUES[kind], self.slots[kind], POLL_S[kind]))
        DBOS.launch()
        # As its client may be told in public: its pauses grow to a minute, and last when the database is back.
        dbos._sys_db._retry_connection_errors = False
        while not self._is_polling:
            time.sleep(TICK_S)

    def _end_dbos(self) -> None:
        """Return when DBOS can take no more workflows."""
        from dbos import DBOS

        DBOS.destroy(destroy_registry=True)
        _DBOS_IS_FREE.release()

    def _step(self) -> float:
        self._send_heartbeat()
        self._bring_back_lost()
        return HEARTBEAT_S

    def _send_heartbeat(self) -> None:
        self.jobs.heartbeat(self.id, socket.gethostname(), slots=self.slots["plan"])

    def _bring_back_lost(self) -> None:
        alive = self.jobs.list_alive(WORKER_TTL_S)
        running = self.jobs.workflows.list_running()
        own = {workflow for workflow, (_, executor) in running.items() if executor == self.id}
        # Twice, because one that was just taken is not yet being done.
        idle = own - {workflow for worker in self.workers.values() for workflow in worker.active}
        lost = {workflow for workflow, (_, executor) in running.items() if executor not in alive}
        lost |= idle & self._suspects
        self._suspects = idle - lost
        for worker in self.workers.values():
            worker.keep_errors_of(own)
        for workflow in lost:
            self.jobs.workflows.bring_back(workflow, running[workflow][0])


def _make_function(worker: Worker) -> Callable[[int, int], None]:
    """Return the function of a workflow; DBOS sets attributes on it, which a method has not."""

    def do(number: int, generation: int) -> None:
        worker.do(number, generation)

    return do


def _add_queue(name: str, slots: int, poll_s: float) -> Any:
    """Have DBOS take workflows of a queue, as many at a time as this process has slots. Return the queue.

    A queue registered in public is a row that all processes share, with one number of slots for all of them. This one
    is what DBOS's own queues are, of this process alone; there is no public way to make one (3.4).
    """
    from dbos._dbos import _get_or_create_dbos_registry

    limits = {"worker_concurrency": slots, "partition_worker_concurrency": slots, "polling_interval_sec": poll_s}
    return _get_or_create_dbos_registry()._register_internal_queue(name, **limits)
