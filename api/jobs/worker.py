"""The worker: claims plans or sweeps, has each done in a child process, and stores the results.

It sends heartbeats to the database, so that every server knows of the workers on all hosts.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from api.jobs.background_loop import BackgroundLoop
from api.jobs.database import UNAVAILABLE
from api.jobs.ipc import IpcMessage
from api.jobs.queue import JobQueue, JobResult, Lease
from api.jobs.queue_listener import QueueListener
from api.jobs.tables import JobKind
from api.jobs.worker_process import ResourceLimits, TaskResult, WorkerProcesses
from api.metrics import Metrics
from api.settings import HEARTBEAT_S, Limits
from api.tracing import OUTCOME, PLAN, record_wait, span
from planner.documents.versions import current_versions, versions_text

log = logging.getLogger("shardplan.worker")

POLL_S = 0.2
"""How often a worker checks for a cancellation and stores progress."""


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What the workers of a process share."""

    jobs: JobQueue
    children: WorkerProcesses
    limits: Limits
    metrics: Metrics
    listener: QueueListener


class Worker:
    """One thread that solves one plan at a time. When stopped, it puts its plan back into the queue."""

    kind: JobKind = "plan"

    def __init__(self, parts: WorkerParts) -> None:
        jobs, limits = parts.jobs, parts.limits
        self.jobs, self.processes, self.metrics, self.listener = jobs, parts.children, parts.metrics, parts.listener
        self.resource_limits = ResourceLimits(limits.child_wall_s, limits.child_cpu_s, limits.child_memory_bytes)
        self.name, self._heartbeat_at = uuid4().hex, -HEARTBEAT_S
        self.loop = BackgroundLoop("worker", self._claim_and_solve, lambda: jobs.deregister(self.name))

    def keep(self, lease: Lease) -> LeaseKeeper:
        """Return what keeps a lease while its task is done."""
        return LeaseKeeper(self.jobs, lease, self)

    def start(self) -> None:
        self.heartbeat()
        self.loop.start()

    def stop(self) -> None:
        """Kill the child process, and return when the plan is back in the queue."""
        self.loop.stop()
        self.loop.join()

    def heartbeat(self) -> None:
        """Send a heartbeat, unless one was sent lately."""
        if time.monotonic() - self._heartbeat_at >= HEARTBEAT_S:
            self._heartbeat_at = time.monotonic()
            self.jobs.heartbeat(self.name, socket.gethostname())

    def _claim_and_solve(self) -> float:
        """Solve the plan that has waited longest. Return the seconds to wait before the next."""
        lease = self.jobs.claim(self.kind)
        if lease is not None:
            self._solve(lease)
        # After the work: a worker whose every step fails counts as none.
        self.heartbeat()
        return self.listener.poll_s if lease is None else 0.0

    def _solve(self, lease: Lease) -> None:
        started_at = time.monotonic()
        keeper = self.keep(lease)
        self.metrics.count_start(lease.waited_s)
        record_wait("queued", lease.waited_s, {PLAN: lease.id}, traceparent=lease.traceparent)
        with span(f"child {self.kind}", {PLAN: lease.id}, lease.traceparent) as attributes:
            try:
                callbacks = keeper.should_continue, keeper.on_message, keeper.next_messages
                result = self.processes.run(self.kind, lease.request, self.resource_limits, *callbacks)
            except OSError:  # no child could be started: this says nothing about the plan
                self.jobs.release(lease)
                raise
            attributes[OUTCOME] = result.head.get("status", result.kind)
        if result.kind == "killed":
            log.warning("plan %s: the child %s", lease.id, result.head["error"])
            self.jobs.release(lease, has_died=True)
            return
        if result.kind == "stopped":  # after a cancellation or a lost lease, release() changes nothing
            self.jobs.release(lease)
            return
        outcome = _to_job_result(result, lease.id)
        if self._finish(lease, outcome):
            self.metrics.count_solve(outcome.status, time.monotonic() - started_at)
            log.info("plan %s: %s%s", lease.id, outcome.status, f" ({outcome.error})" if outcome.error else "")

    def _finish(self, lease: Lease, outcome: JobResult) -> bool:
        """Store a result; retry until the database accepts it. A late result does no harm: the first one stays."""
        while True:
            try:
                return self.jobs.complete(lease, outcome)
            except (*UNAVAILABLE, OSError) as error:
                log.warning("plan %s: its result cannot be stored yet: %s", lease.id, error)
                if self.loop.pause():
                    return False


class LeaseKeeper:
    """Keeps one lease: renews it, stores progress, and notices when the plan is no longer wanted."""

    progress_event = "incumbent"

    def __init__(self, jobs: JobQueue, lease: Lease, worker: Worker) -> None:
        self.jobs, self.lease, self.worker = jobs, lease, worker
        self.checked_at = self.renewed_at = time.monotonic()
        self.unsaved_progress: dict[str, Any] | None = None

    def on_message(self, message: IpcMessage) -> None:
        """Keep progress until the next check."""
        if message.head.pop("kind") == "incumbent":
            self.unsaved_progress = message.head

    def next_messages(self) -> Iterable[IpcMessage]:
        """Return what the child is to be told now."""
        return ()

    def should_continue(self) -> bool:
        """Return whether to go on solving. A database that does not answer is no reason to stop."""
        try:
            return self._check_lease()
        except (*UNAVAILABLE, OSError) as error:
            log.warning("plan %s: its lease cannot be checked: %s", self.lease.id, error)
            return True

    def _check_lease(self) -> bool:
        now = time.monotonic()
        if self.worker.loop.is_stopping:
            return False
        if now - self.checked_at < POLL_S:
            return True
        self.checked_at = now
        if self.unsaved_progress is not None:
            self.jobs.save_progress(self.lease, self.unsaved_progress, self.progress_event)
            self.unsaved_progress = None
        self.worker.heartbeat()
        # A third: where one renewal fails, the next one still comes before the lease expires.
        if now - self.renewed_at < self.jobs.lease_s / 3:
            return self.jobs.is_held(self.lease)
        self.renewed_at = now
        return self.jobs.renew(self.lease)


def _to_job_result(result: TaskResult, plan: str) -> JobResult:
    """Return the result of a task.

    A plan's id depends on the versions of the server that queued it; a plan with another id, made by a worker of
    another version, is not the answer.
    """
    if result.kind == "result" and result.head.get("id", plan) != plan:
        own_versions = versions_text(current_versions())
        return JobResult(
            "failed", f"requested from a server of another version than the worker's ({own_versions}): request it again"
        )
    if result.kind == "result":
        return JobResult(result.head["status"], None, result.payload, result.head["progress"])
    error = result.head["message"] if result.kind == "refused" else result.head["error"]
    return JobResult("failed", error)
