"""Workers of sweeps: each leads the search of one capacity question, whose candidates are plans of the queue.

The search runs in a child process and plans nothing itself. It asks for plans, which wait in line among those of the
question's tenant and are solved by the workers of all hosts. The search is a workflow, as a plan is. When its host
dies, another one begins it again, and is told at once what was planned before: plans are found by their content. When a
sweep ends or is cancelled, unfinished plans that it alone asked for end with it (`JobQueue`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from api.jobs.database import UNAVAILABLE
from api.jobs.enqueue import PlanJob, SweepEnded
from api.jobs.ipc import IpcMessage
from api.jobs.plan_repository import PlanRepository
from api.jobs.queue import JobQueue, Lease
from api.jobs.tables import JobKind
from api.jobs.worker import POLL_S, LeaseKeeper, Worker, WorkerParts, log

BATCH = 100
"""How many plans one transaction queues, and one query reads: others write and read in between."""


class SweepWorker(Worker):
    """Leads sweeps, each in the thread that calls `do`."""

    kind: JobKind = "sweep"

    def __init__(self, parts: WorkerParts) -> None:
        super().__init__(parts)
        limits = parts.limits
        self.resource_limits = replace(self.resource_limits, wall_s=limits.sweep_wall_s, cpu_s=int(limits.sweep_wall_s))

    def keep(self, lease: Lease) -> LeaseKeeper:
        return SweepKeeper(self.jobs, lease, self)


class SweepKeeper(LeaseKeeper):
    """Keeps the lease of a sweep, requests the plans that it asks for, and tells it those that have ended."""

    progress_event = "frontier"

    def __init__(self, jobs: JobQueue, lease: Lease, worker: Worker) -> None:
        super().__init__(jobs, lease, worker)
        self.plans = PlanRepository(jobs.store)
        self._asked: dict[str, PlanJob] = {}
        self._requested: dict[str, PlanJob] = {}
        self._polled_at = 0.0

    def on_message(self, message: IpcMessage) -> None:
        head = message.head
        if head["kind"] == "ask":
            self._asked[head["plan"]] = PlanJob(
                head["plan"], head["name"], message.payload, self.lease.traceparent, sweep=self.lease.number
            )
        else:
            super().on_message(message)

    def next_messages(self) -> Iterable[IpcMessage]:
        """Return the plans that have ended. A database that does not answer is asked again later."""
        now = time.monotonic()
        if now - self._polled_at < POLL_S:
            return ()
        self._polled_at = now
        try:
            return self._request_plans()
        except SweepEnded:  # the next check of the lease stops the search
            return ()
        except (*UNAVAILABLE, OSError) as error:
            log.warning("sweep %s: its plans cannot be read: %s", self.lease.id, error)
            return ()

    def _request_plans(self) -> list[IpcMessage]:
        for batch in _batches(self._asked):
            self.jobs.submit_of_sweep(self.lease.tenant, [self._asked[plan] for plan in batch])
            self._requested |= {plan: self._asked.pop(plan) for plan in batch}
        ended = []
        for batch in _batches(self._requested):
            records = self.plans.find_all(self.lease.tenant, batch)
            for plan in batch:
                record = records.get(plan)
                if record is None:  # purged meanwhile
                    self._asked[plan] = self._requested[plan]
                elif record.is_done:
                    document = self.plans.document(record) or b""
                    ended.append(IpcMessage({"kind": "answer", "plan": plan, "status": record.status}, document))
        for plan in [*self._asked, *(message.head["plan"] for message in ended)]:
            self._requested.pop(plan, None)
        return ended


def _batches(plans: Iterable[str]) -> list[list[str]]:
    listed = list(plans)
    return [listed[first : first + BATCH] for first in range(0, len(listed), BATCH)]
