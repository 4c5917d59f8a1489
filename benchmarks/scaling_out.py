"""The service on more hosts: how soon plans start, how soon sweeps are queued, and what servers and workers add.

starting  seconds from before `POST /v1/plans` to the start of the plan, while the worker is idle: in the server's
          process on SQLite, in another one on PostgreSQL; and the transactions per second of both while nothing is
          done
sweep     seconds from `POST /v1/capacity` to 1,000 candidates in the queue
hosts     small plans queued per second by one server and by two while the workers are stopped, and then solved per
          second by two workers and by four; with the CPU seconds of these processes and of their children per plan,
          which say what more cores would give

All processes are on one machine; PostgreSQL runs without fsync, as in tests.

    python -m benchmarks.scaling_out [PLANS]        1,000 by default, for each of the two set-ups of hosts
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

from sqlalchemy import text

from api.jobs.database import Database
from benchmarks.record import write
from tests.testing.postgres_cluster import running_cluster
from tests.testing.processes import descendants
from tests.testing.service import Server, ask, ended, named, start, wait_until, work

STARTS, IDLE_S, CANDIDATES, CLIENTS, PLANS = 40, 10.0, 1000, 8, 1000
SERVING = ("--max-queued", "1000000", "--rate-limit", "10000")
HARDWARE = ("a100-sxm", "h100-sxm", "h200-sxm", "b200-sxm")
QUESTION = {"devices": "2..4096", "axes": 3, "hardware": [{"name": name} for name in HARDWARE], "jobs": CANDIDATES}
TRANSACTIONS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"


@contextmanager
def hosts(database: str, folder: Path, servers: int, *, workers: int) -> Iterator[tuple[list[Server], list[int]]]:
    """Run servers and workers, each a process of its own; yield the servers, and the ids of the workers' processes.

    Without workers, the server solves itself.
    """
    with ExitStack() as stack:
        found, options = [], ("--workers", "0" if workers else "1", *SERVING)
        for number in range(servers):
            found.append(start(database, folder / f"server{number}", *options))
            stack.callback(found[-1].kill)
        solvers = []
        for number in range(workers):
            solvers.append(work(database, folder / f"worker{number}"))
            stack.callback(solvers[-1].wait)
            stack.callback(solvers[-1].terminate)
        yield found, [each.pid for each in solvers]


def measure_starts(server: Server) -> dict[str, float]:
    """Request plans one after another, and return how long each waited for its start."""
    waits = []
    for number in range(STARTS + 1):
        asked_at = time.time()
        found = ended(server.client, ask(server.client, named(f"start {number}")).json()["id"])
        waits.append(datetime.fromisoformat(found["started_at"]).timestamp() - asked_at)
        time.sleep(0.3)  # for the worker to be idle
    waits = sorted(waits[1:])
    return {"median_ms": round(1000 * statistics.median(waits)), "at_most_ms": round(1000 * waits[-1])}


def count_transactions(database: str) -> float:
    """Return the transactions per second while nothing is done, without this connection's own."""
    with closing(Database(database)) as store, store.connect() as connection:
        counts = []
        for _ in range(2):
            counts.append(int(connection.execute(text(TRANSACTIONS)).scalar_one()))
            connection.rollback()
            time.sleep(IDLE_S)
    return round((counts[1] - counts[0]) / IDLE_S, 1)


def measure_sweep(server: Server, database: str) -> float:
    """Ask a question of many candidates, and return how long it took to queue 1,000 of them."""
    with closing(Database(database)) as store:

        def is_queued() -> bool:
            with store.connect() as connection:
                rows = connection.execute(text("SELECT count(*) FROM plans WHERE sweep IS NOT NULL")).scalar_one()
            return int(rows) >= CANDIDATES

        asked_at = time.perf_counter()
        answer = server.client.post("/v1/capacity", json={"graphs": [named("swept")], **QUESTION})
        wait_until(is_queued, answer.text)
        took_s = time.perf_counter() - asked_at
    server.client.delete(answer.json()["links"]["self"])
    return round(took_s, 2)


def cpu_s(processes: list[int]) -> float:
    """Return the CPU seconds of processes, of their descendants, and of those that have ended."""
    spent = 0
    for process in {each for top in processes for each in (top, *descendants(top))}:
        with suppress(FileNotFoundError):  # it has just ended, and is counted by its parent
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            spent += sum(map(int, fields[11:15]))
    return spent / os.sysconf("SC_CLK_TCK")


def measure_hosts(database: str, folder: Path, *, servers: int, workers: int, plans: int) -> dict[str, float]:
    """Have clients request plans of all servers while no worker takes any, and then the workers solve them."""
    numbers, found = iter(range(plans)), {}
    with hosts(database, folder, servers, workers=workers) as (serving, solving):
        serving_ids = [each.process.pid for each in serving]

        def request(number: int) -> None:
            for plan in numbers:
                ask(serving[number % servers].client, named(f"plan {plan}")).raise_for_status()

        def queue() -> None:
            with ThreadPoolExecutor(CLIENTS) as threads:
                list(threads.map(request, range(CLIENTS)))

        for process in solving:
            os.kill(process, SIGSTOP)
        found["queued_per_s"], found["server_cpu_ms_per_plan"] = _measure(queue, serving_ids, plans)
        for process in solving:
            os.kill(process, SIGCONT)
        found["solved_per_s"], found["worker_cpu_ms_per_plan"] = _measure(
            lambda: _await_plans(database, plans), solving, plans
        )
    return found


def _measure(work: Callable[[], None], processes: list[int], plans: int) -> tuple[float, float]:
    """Return the plans per second of some work, and the CPU milliseconds per plan that processes spend on it."""
    began, before_s = time.perf_counter(), cpu_s(processes)
    work()
    took_s, spent_s = time.perf_counter() - began, cpu_s(processes) - before_s
    return round(plans / took_s, 1), round(1000 * spent_s / plans, 1)


def _await_plans(database: str, plans: int) -> None:
    with closing(Database(database)) as store:

        def are_done() -> bool:
            with store.connect() as connection:
                done = connection.execute(text("SELECT count(*) FROM plans WHERE state = 'done'")).scalar_one()
            return int(done) >= plans

        while not are_done():
            time.sleep(0.2)


def main() -> None:
    plans = int(sys.argv[1]) if len(sys.argv) > 1 else PLANS
    result: dict[str, Any] = {"load_before": os.getloadavg()[0], "plans": plans}
    with running_cluster() as cluster, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, database, workers in (
            ("sqlite", f"sqlite:///{folder}/service.db", 0),
            ("postgresql", cluster.database(), 1),
        ):
            with hosts(database, folder, 1, workers=workers) as ((server,), _):
                result[kind] = measure_starts(server)
                if workers:
                    result[kind]["idle_transactions_per_s"] = count_transactions(database)
                result[kind]["sweep_queued_s"] = measure_sweep(server, database)
        for servers, workers in ((1, 2), (2, 4)):
            found = measure_hosts(cluster.database(), folder, servers=servers, workers=workers, plans=plans)
            result[f"servers: {servers}, workers: {workers}"] = found
    write("scaling_out", result)


def table(result: dict[str, Any]) -> str:
    """Return the result as a page shows it."""
    lines = ["| database | start after, median | at most | 1,000 candidates queued after |", "|---|---|---|---|"]
    for kind, name in (("sqlite", "SQLite"), ("postgresql", "PostgreSQL")):
        found = result[kind]
        starts = f"{found['median_ms']} ms | {found['at_most_ms']} ms"
        lines.append(f"| {name} | {starts} | {found['sweep_queued_s']} s |")
    lines += [
        "",
        "| on PostgreSQL | queued per second | CPU of servers per plan | solved per second | CPU of workers per plan |",
        "|---|---|---|---|---|",
    ]
    for key, found in result.items():
        if key.startswith("servers"):
            figures = f"{found['queued_per_s']} | {found['server_cpu_ms_per_plan']} ms"
            figures += f" | {found['solved_per_s']} | {found['worker_cpu_ms_per_plan']} ms"
            lines.append(f"| {key} | {figures} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
