"""The worker: takes plans from the line, has each solved in a child process, and keeps what comes of it.

It says in the store that it is there, so that every server on it knows of the workers on all hosts.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import suppress
from typing import Any
from uuid import uuid4

from sqlalchemy.exc import OperationalError

from api.jobs.queue import JobQueue, JobResult, Lease
from api.jobs.worker_process import ResourceLimits, TaskResult, WorkerProcesses
from api.metrics import Metrics
from api.settings import HEARTBEAT_S, Limits
from api.tracing import OUTCOME, PLAN, record_wait, span
from planner.documents.versions import current_versions, versions_text

log = logging.getLogger("shardplan.worker")

IDLE_S = 0.2
AFTER_ERROR_S = 1.0
POLL_S = 0.2
"""How often a worker looks whether its plan was cancelled, and tells what it has found."""


class Worker:
    """One thread, one plan at a time. It ends when told, and puts what it held back in line."""

    def __init__(self, jobs: JobQueue, children: WorkerProcesses, limits: Limits, metrics: Metrics) -> None:
        self.jobs, self.processes, self.metrics = jobs, children, metrics
        self.resource_limits = ResourceLimits(limits.child_wall_s, limits.child_cpu_s, limits.child_memory_bytes)
        self._stopping, self._woken = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)
        self.name, self._heartbeat_at = uuid4().hex, -HEARTBEAT_S

    def start(self) -> None:
        self.heartbeat()
        self._thread.start()

    def wake(self) -> None:
        """There is work."""
        self._woken.set()

    def stop(self) -> None:
        """Ends the child; returns when the plan is back in line."""
        self._stopping.set()
        self._woken.set()
        self._thread.join()

    def heartbeat(self) -> None:
        """That it is there, where this was not said lately."""
        if time.monotonic() - self._heartbeat_at >= HEARTBEAT_S:
            self._heartbeat_at = time.monotonic()
            self.jobs.heartbeat(self.name, socket.gethostname())

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.heartbeat()
                claim = self.jobs.claim()
                if claim is not None:
                    self._solve(claim)
                    continue
                self._woken.wait(IDLE_S)
                self._woken.clear()
            except OperationalError as error:  # what is held meanwhile comes back when its lease ends
                log.warning("database: %s", error.orig)
                self._stopping.wait(AFTER_ERROR_S)
        with suppress(OperationalError):
            self.jobs.deregister(self.name)

    def _solve(self, claim: Lease) -> None:
        began = time.monotonic()
        watch = LeaseKeeper(self.jobs, claim, self)
        record_wait("in line", claim.waited_s, {PLAN: claim.id})
        with span("child plan", {PLAN: claim.id}) as told:
            ended = self.processes.run(
                "plan", claim.ask, self.resource_limits, watch.should_continue, watch.on_progress
            )
            told[OUTCOME] = ended.head.get("status", ended.kind)
        if ended.kind == "killed":
            log.warning("plan %s: the child %s", claim.id, ended.head["error"])
            self.jobs.release(claim)
            return
        if ended.kind == "stopped":  # or cancelled, or lost to another worker: then there is nothing to give back
            self.jobs.release(claim, counted=False)
            return
        outcome = _job_result(ended, claim.id)
        if self._finish(claim, outcome):
            self.metrics.count_solve(outcome.status, time.monotonic() - began)
            log.info("plan %s: %s%s", claim.id, outcome.status, f" ({outcome.error})" if outcome.error else "")

    def _finish(self, claim: Lease, outcome: JobResult) -> bool:
        """What took long to find is kept until the database can take it; late is no harm, the first outcome stays."""
        while True:
            try:
                return self.jobs.complete(claim, outcome)
            except OperationalError as error:
                log.warning("database: %s", error.orig)
                if self._stopping.wait(AFTER_ERROR_S):
                    return False

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()


class LeaseKeeper:
    """Over one claim: holds its lease, hears of incumbents, sees when the plan is no longer wanted."""

    def __init__(self, jobs: JobQueue, claim: Lease, worker: Worker) -> None:
        self.jobs, self.claim, self.worker = jobs, claim, worker
        self.looked_at = self.renewed_at = time.monotonic()
        self.unsaved_progress: dict[str, Any] | None = None

    def on_progress(self, progress: dict[str, Any]) -> None:
        self.unsaved_progress = progress

    def should_continue(self) -> bool:
        """A database that does not answer is no reason to stop."""
        try:
            return self._check_lease()
        except OperationalError as error:
            log.warning("database: %s", error.orig)
            return True

    def _check_lease(self) -> bool:
        now = time.monotonic()
        if self.worker.is_stopping:
            return False
        if now - self.looked_at < POLL_S:
            return True
        self.looked_at = now
        if self.unsaved_progress is not None:
            self.jobs.save_progress(self.claim, self.unsaved_progress)
            self.unsaved_progress = None
        self.worker.heartbeat()
        if now - self.renewed_at < self.jobs.lease_s / 3:
            return self.jobs.is_held(self.claim)
        self.renewed_at = now
        return self.jobs.renew(self.claim)


def _job_result(ended: TaskResult, plan: str) -> JobResult:
    """What became of a plan. Its id holds the versions of the server that was asked: another's is not the answer."""
    if ended.kind == "result" and ended.head.get("id", plan) != plan:
        mine = versions_text(current_versions())
        return JobResult("failed", f"asked of another version than the worker's ({mine}): ask again")
    if ended.kind == "result":
        progress = {key: ended.head[key] for key in ("incumbent_s", "bound_s", "gap")}
        return JobResult(ended.head["status"], None, ended.payload, progress)
    error = ended.head["message"] if ended.kind == "refused" else ended.head["error"]
    return JobResult("failed", error)
