"""What one tenant of the service costs another, with one worker on SQLite.

waiting  a tenant queues many small plans; another one then asks for one: seconds until it has ended
bombs    a tenant posts 100 gzip bodies at once, each of which grows from 16 kB to 16 MiB, while another one lists its
         plans: its slowest answer, by how much the server's largest memory rose, and the bodies by the status they got

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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from api.jobs.api_keys import ApiKeys
from api.jobs.database import Database
from benchmarks.record import write
from tests.testing.service import SECONDS, Server, ask, ended, named, start

PLANS, BOMBS = 1000, 100
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
    before, is_over, slowest_s = peak_bytes(server), threading.Event(), 0.0

    def post(_number: int) -> int:
        return int(first.post("/v1/plans", content=BOMB, headers=HEADERS).status_code)

    def drop() -> Counter[int]:
        with ThreadPoolExecutor(BOMBS) as threads:
            statuses = Counter(threads.map(post, range(BOMBS)))
        is_over.set()
        return statuses

    with ThreadPoolExecutor(1) as thread:
        dropped = thread.submit(drop)
        while not is_over.is_set():
            asked_s = time.perf_counter()
            other.get("/v1/plans").raise_for_status()
            slowest_s = max(slowest_s, time.perf_counter() - asked_s)
    statuses = {str(status): count for status, count in sorted(dropped.result().items())}
    return {
        "bombs": BOMBS,
        "statuses": statuses,
        "slowest_answer_of_the_other_s": round(slowest_s, 3),
        "peak_rose_by_bytes": peak_bytes(server) - before,
    }


def main() -> None:
    plans = int(sys.argv[1]) if len(sys.argv) > 1 else PLANS
    with tempfile.TemporaryDirectory() as folder:
        database = f"sqlite:///{folder}/service.db"
        server = start(database, Path(folder) / "log", "--workers", "1")
        first, other = clients(server, database)
        waiting = measure_waiting(first, other, plans)
        bombs = measure_bombs(server, first, other)
        server.kill()
    write("tenants", {"waiting": waiting, "bombs": bombs})


def table(result: dict[str, Any]) -> str:
    """Return the result as a page shows it."""
    waiting, bombs = result["waiting"], result["bombs"]
    statuses = ", ".join(f"{count} of status {status}" for status, count in bombs["statuses"].items())
    return "\n".join(
        [
            "| while another tenant | this one's | measured |",
            "|---|---|---|",
            f"| has {waiting['queued_by_the_first']:,} plans queued | plan has ended after | "
            f"{waiting['other_ended_after_s']} s |",
            f"| posts {bombs['bombs']} bodies that grow to 16 MiB ({statuses}) | slowest answer takes | "
            f"{bombs['slowest_answer_of_the_other_s']} s; the server's memory rises by "
            f"{bombs['peak_rose_by_bytes'] / (1 << 20):,.0f} MiB |",
        ]
    )


if __name__ == "__main__":
    main()
