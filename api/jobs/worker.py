"""The worker: has plans or sweeps done in child processes, and stores the results.

It is the function of a workflow, which DBOS calls in as many threads as the process has slots. What the function
returns or raises is the workflow's end for DBOS. So it returns only when the plan has ended. Where it gives up, it
raises LeaseLost, of which DBOS takes no notice: the workflow stays this executor's until one brings it back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import DBAPIError

from api.jobs import background_loop
from api.jobs.database import UNAVAILABLE
from api.jobs.ipc import IpcMessage
from api.jobs.queue import JobQueue, JobResult, Lease, LeaseLost
from api.jobs.tables import JobKind
from api.jobs.worker_process import ResourceLimits, TaskResult, WorkerProcesses
from api.jobs.workflows import QUEUES, name_workflow
from api.metrics import Metrics
from api.settings import Limits
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


class Worker:
    """Does plans, each in the thread that calls `do`. `errors` has what went wrong last, by plan."""

    kind: JobKind = "plan"

    def __init__(self, parts: WorkerParts) -> None:
        limits = parts.limits
        self.jobs, self.processes, self.metrics = parts.jobs, parts.children, parts.metrics
        self.resource_limits = ResourceLimits(limits.child_wall_s, limits.child_cpu_s, limits.child_memory_bytes)
        self.errors: dict[str, str] = {}
        self._active, self._changed = Counter[str](), threading.Condition()
        self._stopping = threading.Event()

    def keep(self, lease: Lease) -> LeaseKeeper:
        """Return what keeps a lease while its task is done."""
        return LeaseKeeper(self.jobs, lease, self)

    def stop(self) -> None:
        """Have every child process killed and its plan put back; `join` waits for it."""
        self._stopping.set()

    def join(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._active)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def active(self) -> set[str]:
        """The workflows that this worker does now."""
        with self._changed:
            return set(self._active)

    def do(self, number: int, generation: int) -> None:
        """Do a plan until it has ended. Raises LeaseLost where it gives up."""
        workflow = name_workflow(number, generation)
        with self._counted(workflow):
            try:
                self._do(number, generation)
            except Exception as error:
                self._give_up(workflow, error)
                raise LeaseLost from error
            self.errors.pop(workflow, None)

    def _give_up(self, workflow: str, error: Exception) -> None:
        """Log an error, and have the plan begun again after a pause. The executor brings it back where this fails."""
        self.errors[workflow] = str(error)
        if isinstance(error, DBAPIError):
            log.warning("plan %s: database: %s", workflow, error.orig)
        else:
            log.error("plan %s: a step failed", workflow, exc_info=error)
        if self._stopping.wait(background_loop.AFTER_ERROR_S):
            return
        try:
            self.jobs.workflows.bring_back(workflow, QUEUES[self.kind])
        except Exception as later:  # noqa: BLE001 - DBOS would take it for the end of the workflow
            log.warning("plan %s cannot be brought back yet: %s", workflow, later)

    def keep_errors_of(self, workflows: set[str]) -> None:
        """Forget the errors of workflows that are no longer this process's."""
        for workflow in self.errors.keys() - workflows:
            self.errors.pop(workflow, None)

    @contextmanager
    def _counted(self, workflow: str) -> Iterator[None]:
        with self._changed:
            self._active[workflow] += 1
        try:
            yield
        finally:
            with self._changed:
                self._active[workflow] -= 1
                self._active += Counter()  # without those that are at zero
                self._changed.notify_all()

    def _do(self, number: int, generation: int) -> None:
        lease: Lease | None = None
        while not self.is_stopping:
            lease = self.jobs.begin(number, generation, lease)
            if lease is None or self._solve(lease):
                return
        raise LeaseLost

    def _solve(self, lease: Lease) -> bool:
        """Have a plan solved once. Return whether its result is stored."""
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
            return False
        if result.kind == "stopped":  # after a cancellation or a lost lease, release() changes nothing
            self.jobs.release(lease)
            return False
        outcome = _to_job_result(result, lease.id)
        if self._finish(lease, outcome):
            self.metrics.count_solve(outcome.status, time.monotonic() - started_at)
            log.info("plan %s: %s%s", lease.id, outcome.status, f" ({outcome.error})" if outcome.error else "")
        return True

    def _finish(self, lease: Lease, outcome: JobResult) -> bool:
        """Store a result; retry until the database accepts it. A late result does no harm: the first one stays."""
        while True:
            try:
                return self.jobs.complete(lease, outcome)
            except (*UNAVAILABLE, OSError) as error:
                log.warning("plan %s: its result cannot be stored yet: %s", lease.id, error)
                if self._stopping.wait(background_loop.AFTER_ERROR_S):
                    raise LeaseLost from error


class LeaseKeeper:
    """Keeps one lease: stores progress, and notices when the plan is no longer wanted of this worker."""

    progress_event = "incumbent"

    def __init__(self, jobs: JobQueue, lease: Lease, worker: Worker) -> None:
        self.jobs, self.lease, self.worker = jobs, lease, worker
        self.checked_at = time.monotonic()
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
        if self.worker.is_stopping:
            return False
        if now - self.checked_at < POLL_S:
            return True
        self.checked_at = now
        if self.unsaved_progress is not None:
            self.jobs.save_progress(self.lease, self.unsaved_progress, self.progress_event)
            self.unsaved_progress = None
        return self.jobs.is_held(self.lease)


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
