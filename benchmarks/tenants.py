"""What one tenant of the service costs another, with one worker on SQLite.

waiting  a tenant queues many small plans; another one then asks for one: seconds until it has ended
bombs    a tenant posts 100 gzip bodies at once, each of which grows from 16 kB to 16 MiB, while another one lists its
         plans: its slowest answer, by how much the server's largest memory rose, and the bodies by the status they got
hostile  a tenant posts each of the requests of `benchmarks/hostile_requests.py` eight times at once: the statuses they
         got, the seconds until all had one, and the slowest answer to another tenant meanwhile

    python -m benchmarks.tenants [PLANS]     1,000 by default
"""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from api.jobs.api_keys import ApiKeys
from api.jobs.database import Database
from benchmarks.hostile_requests import HostileRequest, list_hostile_requests
from benchmarks.record import write
from tests.testing.service import SECONDS, Server, ask, ended, named, start

PLANS, BOMBS, TIMES = 1000, 100, 8
BOMB = gzip.compress(b" " * (16 << 20))
HEADERS = {"Content-Type": "application/json", "Content-Encoding": "gzip"}


def clients(server: Server, database: str) -> tuple[httpx2.Client, httpx2.Client]:
    """Return a client for each of two tenants."""
    store = Database(database)
    keys = ApiKeys(store)
    texts = [keys.add(tenant, "plan") for tenant in ("first", "other")]
    store.close()
    headers = [{"Authorization": f"Bearer {text}"} for text in texts]
    first, other = (httpx2.Client(base_url=server.client.base_url, timeout=SECONDS, headers=each) for each in headers)
    return first, other


def measure_waiting(first: httpx2.Client, other: httpx2.Client, plans: int) -> dict[str, Any]:
    """Queue plans of one tenant and then one of another; return the seconds that this one took."""
    for number in range(plans):
        ask(first, named(f"one of many {number}")).raise_for_status()
    asked_s = time.perf_counter()
    ended(other, ask(other, named("the only one")).json()["id"])
    return {"queued_by_the_first": plans, "other_ended_after_s": round(time.perf_counter() - asked_s, 2)}


def peak_bytes(server: Server) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    return 1024 * int(found[1]) if found else 0


def measure_bombs(server: Server, first: httpx2.Client, other: httpx2.Client) -> dict[str, Any]:
    """Post bodies that grow while another tenant asks; return what this costs."""
    before = peak_bytes(server)

    def post(_number: int) -> int:
        return int(first.post("/v1/plans", content=BOMB, headers=HEADERS).status_code)

    found = post_at_once(post, BOMBS, other)
    return {"bombs": BOMBS, **found, "peak_rose_by_bytes": peak_bytes(server) - before}


def measure_hostile(first: httpx2.Client, other: httpx2.Client) -> dict[str, Any]:
    """Post each hostile request several times at once while another tenant asks; return what each costs."""
    plan, results = ask(first, named("ended")).json()["id"], {}
    ended(first, plan)
    for name, hostile in list_hostile_requests(plan).items():

        def post(_number: int, hostile: HostileRequest = hostile) -> int:
            answer = first.post(hostile.path, content=hostile.body, headers={"Content-Type": hostile.kind})
            if answer.status_code in (200, 202):
                first.delete(answer.json()["links"]["self"])
            return int(answer.status_code)

        results[name] = post_at_once(post, TIMES, other)
    return results


def post_at_once(post: Callable[[int], int], times: int, other: httpx2.Client) -> dict[str, Any]:
    """Post requests at once while another tenant lists its plans; return the statuses and the slowest answers."""
    is_over, slowest_s, began_s = threading.Event(), 0.0, time.perf_counter()

    def post_all() -> tuple[Counter[int], float]:
        with ThreadPoolExecutor(times) as threads:
            statuses = Counter(threads.map(post, range(times)))
        is_over.set()
        return statuses, time.perf_counter() - began_s

    with ThreadPoolExecutor(1) as thread:
        posted = thread.submit(post_all)
        while not is_over.is_set():
            asked_s = time.perf_counter()
            other.get("/v1/plans").raise_for_status()
            slowest_s = max(slowest_s, time.perf_counter() - asked_s)
    statuses, seconds = posted.result()
    return {
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "all_answered_after_s": round(seconds, 2),
        "slowest_answer_of_the_other_s": round(slowest_s, 3),
    }


def main() -> None:
    plans = int(sys.argv[1]) if len(sys.argv) > 1 else PLANS
    with tempfile.TemporaryDirectory() as folder:
        database = f"sqlite:///{folder}/service.db"
        server = start(database, Path(folder) / "log", "--workers", "1")
        first, other = clients(server, database)
        waiting = measure_waiting(first, other, plans)
        bombs, hostile = measure_bombs(server, first, other), measure_hostile(first, other)
        server.kill()
    write("tenants", {"waiting": waiting, "bombs": bombs, "hostile": hostile})


def table(result: dict[str, Any]) -> str:
    """Return the result as a page shows it."""
    waiting, bombs = result["waiting"], result["bombs"]
    statuses = _show_statuses(bombs)
    return "\n".join(
        [
            "| while another tenant | this one's | measured |",
            "|---|---|---|",
            f"| has {waiting['queued_by_the_first']:,} plans queued | plan has ended after | "
            f"{waiting['other_ended_after_s']} s |",
            f"| posts {bombs['bombs']} bodies that grow to 16 MiB ({statuses}) | slowest answer takes | "
            f"{bombs['slowest_answer_of_the_other_s']} s; the server's memory rises by "
            f"{bombs['peak_rose_by_bytes'] / (1 << 20):,.0f} MiB |",
            *_show_hostile(result["hostile"]),
        ]
    )


def _show_hostile(rows: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"| {TIMES} times at once | statuses | all answered after | slowest answer to another tenant |")
    yield "|---|---|---|---|"
    for name, row in rows.items():
        seconds = f"{row['all_answered_after_s']} s | {row['slowest_answer_of_the_other_s']} s"
        yield f"| {name} | {_show_statuses(row)} | {seconds} |"


def _show_statuses(row: dict[str, Any]) -> str:
    return ", ".join(f"{count} of status {status}" for status, count in row["statuses"].items())


if __name__ == "__main__":
    main()
