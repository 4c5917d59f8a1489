"""Faulty child processes: out of memory, aborted, hung, out of CPU time.

A real service gives each plan to a real child process under real limits, whose task fails on purpose. Every plan must
become `failed` with the cause, within the limits and a grace period, and leave no process behind.
`python -m benchmarks.fault_injection [TIMES]`, 100 of each by default.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from api.http.requests import pack_json
from api.jobs.enqueue import PlanJob
from api.jobs.plan_repository import PlanRecord
from api.service import Service
from api.settings import GIB, Limits, Settings
from benchmarks.record import write
from tests.testing.processes import gone
from tests.testing.service import MISBEHAVING

TIMES = 100
WORKERS = 4
CPU_S, MEMORY_BYTES = 2, GIB
PATIENT_S, BRIEF_S = 120.0, 6.0
"""Time limits in seconds: ample for tasks that end by themselves, short for those that hang."""
WAYS = {
    "exhaust": (PATIENT_S, f"out of memory (limit {MEMORY_BYTES} bytes)"),
    "abort": (PATIENT_S, "crashed (SIGABRT)"),
    "spin": (PATIENT_S, "used up its processor time (SIGXCPU)"),
    "hang": (BRIEF_S, f"gave no answer within {BRIEF_S:g} s"),
    "family": (BRIEF_S, f"gave no answer within {BRIEF_S:g} s"),
}
"""Each fault with its time limit and the cause that its plan must show. `family` starts a child and hangs."""
MARK = "SHARDPLAN_FAULTS"
"""The environment variable that marks every process of this benchmark."""


@contextmanager
def house(wall_s: float) -> Iterator[Service]:
    limits = Limits(child_wall_s=wall_s, child_cpu_s=CPU_S, child_memory_bytes=MEMORY_BYTES, max_queued=1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(f"sqlite:///{Path(folder) / 'service.db'}", workers=WORKERS, limits=limits)
        service = Service(settings, MISBEHAVING)
        service.start()
        try:
            yield service
        finally:
            service.stop()


def ended(service: Service, way: str, times: int) -> Iterator[PlanRecord]:
    """Request plans whose tasks go wrong in one way, and yield them once they have ended."""
    ids = [f"{list(WAYS).index(way):032x}{number:032x}" for number in range(times)]
    for plan in ids:
        service.jobs.submit("local", PlanJob(plan, way, pack_json({"graph": {"name": way}})), service.limits.max_queued)
    for plan in ids:
        while (record := service.plans.find("local", plan)) is None or not record.is_done:
            time.sleep(0.1)
        yield record


def tried(way: str, times: int) -> dict[str, Any]:
    """Return the outcomes, and the longest time that a plan was worked on."""
    wall_s, error = WAYS[way]
    with house(wall_s) as service:
        found = list(ended(service, way, times))
    wrong = Counter(f"{each.status}: {each.error}" for each in found if (each.status, each.error) != ("failed", error))
    lasted = max(each.ended_at - each.started_at for each in found if each.ended_at and each.started_at)
    return {
        "times": times,
        "wall_s": wall_s,
        "error": error,
        "otherwise": dict(wrong),
        "seconds_at_most": round(lasted, 1),
    }


def living(mark: str) -> list[int]:
    """Return the other processes that have the mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes() and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else TIMES
    os.environ[MARK] = uuid4().hex
    with closing(MISBEHAVING):
        ways = {way: tried(way, times) for way in WAYS}
    orphans = 0 if gone(living(os.environ[MARK]), 5.0) else len(living(os.environ[MARK]))
    limits = {"cpu_s": CPU_S, "memory_bytes": MEMORY_BYTES}
    write("fault_injection", {"limits": limits, "workers": WORKERS, "ways": ways, "orphans": orphans})


if __name__ == "__main__":
    main()
