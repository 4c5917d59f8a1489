"""What it costs to queue a plan: by our own tables, and by DBOS, each within the same group commit.

Eight threads queue small plans as `POST /v1/plans` does, on SQLite (WAL, every commit on the disk) and on PostgreSQL
(without fsync, as in tests). With DBOS, the plan's row is written as ours is, because answers are read from it, and
`enqueue_in_transaction` puts a workflow beside it. That ours also looks whether the plan exists, counts the tenant's
plans and appends an event is left out, so that DBOS's figures are the least that a move would cost. CPU seconds are
those of this process, without the database's server: on a machine with other load they say more than the rates.

DBOS is no dependency of the package: it is installed into an environment of its own, beside this one's packages.

    python -m benchmarks.queue_engines [PLANS]      400 by default, in each of five rounds that the two take in turn
"""

from __future__ import annotations

import itertools
import json
import site
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert

from api.http.openapi import GRAPH
from api.http.requests import pack_json
from api.jobs.database import Database
from api.jobs.enqueue import PlanJob
from api.jobs.group_commit import GroupCommit
from api.jobs.queue import JobQueue
from api.jobs.tables import plans
from benchmarks.record import write
from tests.testing.postgres_cluster import running_cluster

ROOT = Path(__file__).resolve().parents[1]
PLANS, ROUNDS, THREADS = 400, 5, 8
DBOS_VERSION = ">=3.4,<3.5"
REQUEST = {"graph": GRAPH, "mesh": "dp=2,tp=4", "request": {"gap": 0.01}}
QUEUE = "plans"
Submit = Callable[[PlanJob], object]


@contextmanager
def our_queue(store: Database) -> Iterator[Submit]:
    jobs = JobQueue(store, 6.0)
    yield lambda job: jobs.submit("local", job, 1 << 30)


@contextmanager
def dbos_queue(store: Database) -> Iterator[Submit]:
    dbos: Any = import_module("dbos")  # no dependency of ours

    url = store.engine.url.render_as_string(hide_password=False).replace("+psycopg", "")
    dbos.DBOS(config={"name": "shardplan", "system_database_url": url, "run_admin_server": False})
    dbos.DBOS.launch()  # makes its tables
    dbos.DBOS.register_queue(QUEUE)
    dbos.DBOS.destroy()
    client, commits = dbos.DBOSClient(system_database_engine=store.engine), GroupCommit(store)

    def submit(job: PlanJob) -> None:
        def write_row(connection: Connection) -> None:
            state = {"state": "queued", "created_at": store.now(connection), "attempts": 0, "generation": 1}
            row = {"tenant": "local", "id": job.id, "name": job.name, "request": job.request, **state}
            connection.execute(insert(plans).values(row))
            options = {"queue_name": QUEUE, "workflow_name": "solve", "workflow_id": f"local:{job.id}"}
            client.enqueue_in_transaction(connection, options, job.id)

        commits.write(write_row)

    yield submit
    client.destroy()


ENGINES = {"ours": our_queue, "DBOS": dbos_queue}


def measure(submit: Submit, first: int, count: int) -> dict[str, float]:
    """Queue plans from several threads at once, numbered from the first, and return what each took."""
    request = pack_json(REQUEST)
    jobs = [PlanJob(f"{number:064x}", f"layer {number}", request) for number in range(first, first + count)]

    def timed(job: PlanJob) -> float:
        start = time.perf_counter()
        submit(job)
        return time.perf_counter() - start

    began, cpu_s = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(THREADS) as threads:
        times = list(threads.map(timed, jobs))
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    return {
        "per_s": round(count / took_s, 1),
        "p50_ms": round(1000 * statistics.median(times), 1),
        "p99_ms": round(1000 * statistics.quantiles(times, n=100)[98], 1),
        "cpu_ms_each": round(1000 * cpu_s / count, 2),
    }


def measure_in_turn(make_url: Callable[[], str], count: int) -> dict[str, dict[str, float]]:
    """Return the medians of both engines' rounds, each engine on a database of its own."""
    with ExitStack() as stack:
        submits = [
            stack.enter_context(opened(stack.enter_context(closing(Database(make_url())))))
            for opened in ENGINES.values()
        ]
        for submit in submits:
            measure(submit, 0, THREADS)
        rounds = [[measure(submit, (turn + 1) * count, count) for submit in submits] for turn in range(ROUNDS)]
    return {
        engine: {key: statistics.median(each[place][key] for each in rounds) for key in rounds[0][place]}
        for place, engine in enumerate(ENGINES)
    }


def measure_all(count: int) -> dict[str, Any]:
    """Measure both engines on both databases."""
    with running_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()
        on_files = measure_in_turn(lambda: f"sqlite:///{folder}/{next(numbers)}.db", count)
        return {"sqlite": on_files, "postgresql": measure_in_turn(cluster.database, count)}


def run_beside_dbos(count: int) -> dict[str, Any]:
    """Measure in an environment that has DBOS beside this one's packages."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "bin", "python")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        (packages,) = Path(folder).glob("lib/python*/site-packages")
        (packages / "beside.pth").write_text("\n".join([*site.getsitepackages(), str(ROOT)]))
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"dbos{DBOS_VERSION}"], check=True)
        words = [str(python), "-m", "benchmarks.queue_engines", str(count), "--here"]
        done = subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(result: dict[str, Any]) -> str:
    """Return the result as a page shows it."""
    names = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
    lines = ["| database | queue | per second | median | 99th percentile | CPU each |", "|---|---|---|---|---|---|"]
    for kind, name in names.items():
        for engine in ENGINES:
            found = result[kind][engine]
            times = f"{found['p50_ms']} ms | {found['p99_ms']} ms | {found['cpu_ms_each']} ms"
            lines.append(f"| {name} | {engine} | {found['per_s']:.0f} | {times} |")
    return "\n".join(lines)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PLANS
    if sys.argv[2:] == ["--here"]:
        print(json.dumps(measure_all(count)))
        return
    write(
        "queue_engines",
        {"plans": count, "rounds": ROUNDS, "threads": THREADS, "dbos": DBOS_VERSION, **run_beside_dbos(count)},
    )


if __name__ == "__main__":
    main()
