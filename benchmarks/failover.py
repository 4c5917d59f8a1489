"""Failover between hosts: what it takes to go on after a worker is killed.

plans   on PostgreSQL, the time from a worker's kill to the end of the plan that it was solving, by another worker. The
        second worker is stopped until the first has begun the plan, so that it is known which to kill, and continues
        once the first is killed. The solve itself is part of the time.
sweeps  on both databases, a capacity question of 1,000 candidates whose only worker, which leads the search and solves,
        is killed five times and replaced: whether its answer is the one of a service that nobody kills, and the seconds
        that both take

    python -m benchmarks.failover [TIMES [CANDIDATES]]     10 and 1,000 by default
"""

from __future__ import annotations

import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from subprocess import Popen
from typing import Any

from sqlalchemy import text

from api.jobs.database import Database
from benchmarks.record import write
from tests.testing.postgres_cluster import running_cluster
from tests.testing.processes import descendants, gone
from tests.testing.service import Server, ask, chain, ended, named, start, wait_until, work

TIMES, CANDIDATES, KILLS = 10, 1000, 5
LENGTH = 200
HARDWARE = ("a100-sxm", "h100-sxm", "h200-sxm", "b200-sxm")
ENDED = 1 << 30
"""Stands for more candidates than any question has."""
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


def answer_question(database: str, folder: Path, candidates: int, *, kills: int) -> tuple[Any, dict[str, Any]]:
    """Return the answer to a capacity question whose worker is killed, and how it came about."""
    folder.mkdir()
    server, solver = start(database, folder / "server", "--workers", "0"), work(database, folder / "worker")
    asked_at, hardware = time.perf_counter(), [{"name": name} for name in HARDWARE]
    question = {"graphs": [named("swept")], "devices": "2..4096", "axes": 3, "hardware": hardware, "jobs": candidates}
    link = server.client.post("/v1/capacity", json=question).raise_for_status().json()["links"]["self"]

    def count_decided() -> int:
        sweep = server.client.get(link).json()
        assert sweep["ended_at"] is None or sweep["status"] == "complete", sweep
        return ENDED if sweep["ended_at"] else (sweep["progress"] or {}).get("decided", 0)

    def has_decided(least: int) -> bool:
        return count_decided() >= least

    for number in range(kills):
        wait_until(partial(has_decided, candidates * (number + 1) // (kills + 1)), link)
        solver.kill()
        solver.wait()
        solver = work(database, folder / f"worker{number}")
    while count_decided() < ENDED:
        time.sleep(0.2)
    seconds = round(time.perf_counter() - asked_at, 1)
    document = server.client.get(f"{link}/document").json()
    solver.kill()
    solver.wait()
    server.kill()
    return without_times(document), {"candidates": len(document["candidates"]), "seconds": seconds}


def without_times(document: Any) -> Any:
    """Return an answer without how long its plans took."""
    return json.loads(json.dumps(document), object_hook=lambda part: {k: v for k, v in part.items() if k != "wall_s"})


def measure_sweeps(database: Callable[[], str], folder: Path, candidates: int) -> dict[str, Any]:
    """Answer a question on two new databases, with kills and without any; return how the answers compare."""
    folder.mkdir()
    expected, alone = answer_question(database(), folder / "alone", candidates, kills=0)
    found, killed = answer_question(database(), folder / "killed", candidates, kills=KILLS)
    return {**killed, "kills": KILLS, "same_answer": found == expected, "seconds_without_kills": alone["seconds"]}


def measure_plans(database: str, folder: Path, times: int) -> dict[str, Any]:
    """Kill one worker after another while another one can go on; return how soon and how well the plans end."""
    server, store = start(database, folder / "server", "--workers", "0"), Database(database)
    first, results = work(database, folder / "log"), []
    for number in range(times):
        second = work(database, folder / "log")
        results.append(struck(store, server, (first, second), f"struck {number}"))
        first = second
    first.kill()
    first.wait()
    server.kill()
    store.close()
    after = [each["after_kill_s"] for each in results]
    shown = {key: sum(each[key] for each in results) for key in ("hit", "well", "orphans")}
    seconds = {"finished_after_kill_s_median": statistics.median(after), "finished_after_kill_s_at_most": max(after)}
    return {"times": times, **shown, **seconds}


def table(result: dict[str, Any]) -> str:
    """Return the result as a page shows it."""
    ended = f"{result['finished_after_kill_s_median']} s, at most {result['finished_after_kill_s_at_most']} s"
    lines = ["| database | killed | again | ended |", "|---|---|---|---|"]
    lines.append(
        f"| PostgreSQL | the worker of a plan, another lives | {result['well']} of {result['times']} | {ended} |"
    )
    for kind, name in (("sqlite", "SQLite"), ("postgresql", "PostgreSQL")):
        found = result["sweeps"][kind]
        what = f"the only worker of {found['candidates']:,} candidates, {found['kills']} times"
        same = "the same answer" if found["same_answer"] else "another answer"
        took = f"after {found['seconds']} s, without kills {found['seconds_without_kills']} s"
        lines.append(f"| {name} | {what} | {same} | {took} |")
    return "\n".join(lines)


def main() -> None:
    times, candidates = (int(word) for word in [*sys.argv[1:], *(str(TIMES), str(CANDIDATES))[len(sys.argv) - 1 :]])
    with running_cluster() as cluster, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plans = measure_plans(cluster.database(), folder, times)
        files = map(f"sqlite:///{folder}/{{}}.db".format, count())
        sweeps = {
            kind: measure_sweeps(database, folder / kind, candidates)
            for kind, database in (("sqlite", lambda: next(files)), ("postgresql", cluster.database))
        }
    write("failover", {**plans, "sweeps": sweeps})


if __name__ == "__main__":
    main()
