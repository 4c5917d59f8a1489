"""Failover between two workers on PostgreSQL: the time from a worker's kill to the end of the plan that it was solving.

The second worker is stopped until the first has begun the plan, so that it is known which to kill, and continues once
the first is killed. The solve itself is part of the time.

    python -m benchmarks.failover [TIMES]     10 by default
"""

from __future__ import annotations

import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from subprocess import Popen
from typing import Any

from sqlalchemy import text

from api.jobs.database import Database
from benchmarks.record import write
from tests.testing.postgres_cluster import running_cluster
from tests.testing.service import Server, ask, chain, descendants, ended, gone, start, work

TIMES = 10
LENGTH = 200
ROW = """SELECT state, attempts, ended_at, status,
    (SELECT count(*) FROM outcomes WHERE outcomes.number = plans.number) AS outcomes
    FROM plans LEFT JOIN outcomes USING (number, generation) WHERE name = :name"""


def row(store: Database, name: str) -> Any:
    with store.connect() as connection:
        return connection.execute(text(ROW), {"name": name}).mappings().first()


def struck(store: Database, server: Server, workers: tuple[Popen[bytes], Popen[bytes]], name: str) -> dict[str, Any]:
    """Kill the first worker of one plan and return the outcome."""
    first, second = workers
    second.send_signal(signal.SIGSTOP)
    plan = ask(server.client, chain(name, LENGTH)).json()["id"]
    while row(store, name)["state"] != "running":
        time.sleep(0.01)
    children = descendants(first.pid)
    first.kill()
    first.wait()
    killed_at, held = time.time(), row(store, name)
    second.send_signal(signal.SIGCONT)
    status = ended(server.client, plan)["status"]
    found = row(store, name)
    return {
        "hit": held["status"] is None,
        "after_kill_s": round(found["ended_at"] - killed_at, 2),
        "well": (status, found["outcomes"], found["attempts"]) == ("optimal", 1, 2),
        "orphans": not gone(children, 10.0),
    }


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else TIMES
    results = []
    with running_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        database, log = cluster.database(), Path(folder) / "log"
        server, store = start(database, Path(folder) / "server", "--workers", "0"), Database(database)
        first = work(database, log)
        for number in range(times):
            second = work(database, log)
            results.append(struck(store, server, (first, second), f"struck {number}"))
            first = second
        first.kill()
        first.wait()
        server.kill()
        store.close()
    after = [each["after_kill_s"] for each in results]
    shown = {key: sum(each[key] for each in results) for key in ("hit", "well", "orphans")}
    seconds = {"finished_after_kill_s_median": statistics.median(after), "finished_after_kill_s_at_most": max(after)}
    write("failover", {"times": times, **shown, **seconds})


if __name__ == "__main__":
    main()
