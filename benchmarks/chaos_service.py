"""A service that a benchmark kills: its processes, and the state of its plans in the database."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, Signals
from subprocess import Popen
from typing import Any

from sqlalchemy import text

from api.jobs.database import Database
from api.webhooks.store import WebhookStore
from tests.testing.processes import borne, children_of, descendants
from tests.testing.service import Server, start, work, writers_stopped

BEGUN_S = 0.05
"""CPU seconds after which a child counts as started."""
ALONE_S = 0.5
"""Longer than the child of a small plan works."""
WAIT_S = 60.0
STATE = """SELECT state, progress, status, attempts,
    (SELECT count(*) FROM outcomes WHERE outcomes.number = plans.number) AS outcomes,
    (SELECT count(*) FROM events WHERE events.number = plans.number AND kind = 'done') AS done,
    (SELECT count(*) FROM deliveries WHERE body LIKE '%' || plans.id || '%') AS deliveries,
    (SELECT count(*) FROM plans AS candidates WHERE candidates.sweep = plans.number AND state = 'done') AS planned
    FROM plans LEFT JOIN outcomes USING (number, generation) WHERE name = :name AND sweep IS NULL"""


@dataclass
class ChaosService:
    """A service, its worker (a separate process or inside the server), and the driver's connection to its database."""

    database: str
    folder: Path
    apart: bool
    numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.server, self.worker = self._server(), self._worker()
        self.store = Database(self.database)
        WebhookStore(self.store).add("local", "local", "https://hooks.invalid/", 1)

    def _log(self) -> Path:
        return self.folder / f"log{next(self.numbers)}"

    def _server(self) -> Server:
        return start(self.database, self._log(), "--webhooks", "--workers", "0" if self.apart else "1")

    def _worker(self) -> Popen[bytes] | None:
        return work(self.database, self._log()) if self.apart else None

    @property
    def solver(self) -> int:
        """The process whose fork server's children solve."""
        return self.server.process.pid if self.worker is None else self.worker.pid

    def state(self, connection: Any, name: str) -> Any:
        return connection.execute(text(STATE), {"name": name}).mappings().first()

    def comes_to(self, stage: str, name: str, seen: set[int], connection: Any) -> bool | None:
        """Return whether a plan is at a stage, None if it has passed it; adds the plan's children to `seen`."""
        row = self.state(connection, name)
        now = cpu_s(borne(self.solver)) if row is not None and row["state"] == "running" else {}
        seen.update(now)
        return is_at(stage, row, max(now.values(), default=0.0), bool(seen) and not now)

    def strike(self, victim: str) -> list[int]:
        """Kill a process; return the processes that must end soon."""
        if victim in ("child", "nursery"):
            struck = borne(self.solver) if victim == "child" else children_of(self.solver)
            _signal(struck, SIGKILL)
            return struck
        struck = descendants(self.server.process.pid if victim == "server" else self.solver)
        if victim == "worker":
            assert self.worker is not None
            self.worker.kill()
            self.worker.wait()
        else:
            self.server.kill()
        return struck

    @contextmanager
    def line_stands(self) -> Iterator[None]:
        """Keep the worker from claiming plans within the context, by stopping it at a moment when it does not write."""
        assert self.worker is not None
        with writers_stopped(self.store):
            self.worker.send_signal(SIGSTOP)
        try:
            yield
        finally:
            self.worker.send_signal(SIGCONT)

    @contextmanager
    def forks_stand(self) -> Iterator[None]:
        """Keep the solver from starting children within the context, by stopping its fork server."""
        nurseries = children_of(self.solver)
        _signal(nurseries, SIGSTOP)
        try:
            yield
        finally:
            _signal(nurseries, SIGCONT)

    @contextmanager
    def child_alone(self) -> Iterator[None]:
        """Let the child work that `forks_stand` holds back, while the solver is stopped within the context: it then
        receives progress and result at the same time, and stores no progress before the result.
        """
        _signal([self.solver], SIGSTOP)
        _signal(children_of(self.solver), SIGCONT)
        time.sleep(ALONE_S)
        try:
            yield
        finally:
            _signal([self.solver], SIGCONT)

    def again(self, victim: str) -> None:
        """Restart the killed process and wait until the service is ready."""
        if victim == "server":
            self.server = self._server()
        elif victim == "worker":
            self.worker = self._worker()
        until = time.monotonic() + WAIT_S
        while self.server.client.get("/readyz").status_code != 200 and time.monotonic() < until:
            time.sleep(0.05)

    def close(self) -> None:
        if self.worker is not None:
            self.worker.kill()
            self.worker.wait()
        self.server.kill()
        self.store.close()


def _signal(processes: list[int], number: Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def cpu_s(processes: list[int]) -> dict[int, float]:
    """Return the CPU seconds of each process."""
    found = {}
    for process in processes:
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            found[process] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def is_at(stage: str, row: Any, used_s: float, done: bool) -> bool | None:
    """Return whether a plan is at a stage, by its row, its child's CPU seconds, and whether the child has ended."""
    if row is None:
        return False
    began = used_s > BEGUN_S or done
    runs, stored = row["state"] == "running", row["status"] is not None
    has_incumbent = row["progress"] is not None and json.loads(row["progress"]).get("incumbent_s") is not None
    place = {
        "commit": (row["state"] == "queued" and row["attempts"] == 0, runs or stored),
        "claim": (runs and row["progress"] is None and not began, began or stored),
        "build": (runs and not has_incumbent and began and not done, has_incumbent or stored),
        "solve": (runs and has_incumbent and not done and not stored, stored),
        "store": (runs and not stored and done, stored),
        "notify": (stored and row["deliveries"] == 1, False),
        "sweep": (runs and row["planned"] > 0 and not stored, stored),
    }
    there, passed = place[stage]
    return True if there else None if passed else False
