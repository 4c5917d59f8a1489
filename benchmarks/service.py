"""The service under load: `shardplan serve` with its worker inside, asked over loopback by clients of one process.

Accepting is committing: an answer of 202 is on the disk. CPU seconds are the server's own, read from /proc; where other
work runs beside, they say more than the rates do. `python -m benchmarks.service [SECONDS]`, else 60.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from api.http.openapi import GRAPH
from benchmarks.record import write
from planner.frontends.zoo import import_zoo

CLIENTS = 8
LINE = 200
TICKS = os.sysconf("SC_CLK_TCK")
Ask = Callable[[http.client.HTTPConnection], int]
"""One request on a connection; its status."""


class Server:
    """The process, and connections to it."""

    def __init__(self, folder: Path) -> None:
        log = folder / "log"
        words = [sys.executable, "-m", "api", "serve", "--port", "0", "--database", str(folder / "service.db")]
        with log.open("wb") as file:
            self.process = subprocess.Popen(words, stderr=file)
        while not (found := re.search(r"running on http://[0-9.]+:(\d+)", log.read_text())):
            time.sleep(0.1)
        self.port = int(found[1])

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    @property
    def cpu_s(self) -> float:
        """Of the server, without the processes that solve."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def memory_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def serving() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        try:
            yield server
        finally:
            server.process.send_signal(signal.SIGTERM)
            server.process.wait()


def post(connection: http.client.HTTPConnection, ask: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    connection.request("POST", "/v1/plans", json.dumps(ask), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def get(connection: http.client.HTTPConnection, path: str) -> tuple[int, dict[str, Any]]:
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def small(number: int) -> dict[str, Any]:
    """Another question each."""
    return {"graph": {**GRAPH, "name": f"layer {number}"}, "mesh": "dp=2,tp=4", "request": {"gap": 0.01}}


def loaded(server: Server, ask: Ask, seconds: float, wanted: tuple[int, ...]) -> dict[str, Any]:
    """What clients that ask without a pause get."""
    times: list[float] = []
    wrong: list[int] = []
    until, began, spent = time.perf_counter() + seconds, time.perf_counter(), server.cpu_s

    def run() -> None:
        connection = server.connect()
        while (start := time.perf_counter()) < until:
            status = ask(connection)
            times.append(time.perf_counter() - start)
            if status not in wanted:
                wrong.append(status)

    threads = [threading.Thread(target=run) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    return {
        "requests": len(times),
        "per_s": round(len(times) / took, 1),
        "p50_ms": round(1000 * statistics.median(times), 1),
        "p99_ms": round(1000 * statistics.quantiles(times, n=100)[98], 1),
        "errors": len(wrong),
        "server_cpu_ms_each": round(1000 * (server.cpu_s - spent) / len(times), 2),
    }


def accepting(seconds: float) -> dict[str, Any]:
    """New small questions; past what a tenant may have in line the answer is 429, and counted apart."""
    numbers = count()
    with serving() as server:
        full: list[int] = []

        def ask(connection: http.client.HTTPConnection) -> int:
            status, _ = post(connection, small(next(numbers)))
            full.extend([status] * (status == 429))
            return status

        result = loaded(server, ask, seconds, (202, 429))
    return {**result, "line_full": len(full)}


def looking(seconds: float) -> dict[str, Any]:
    """The status of plans, while plans are solved."""
    with serving() as server:
        ids = [post(server.connect(), small(number))[1]["id"] for number in range(LINE)]
        turns = count()
        return loaded(server, lambda c: get(c, f"/v1/plans/{ids[next(turns) % LINE]}")[0], seconds, (200,))


def repeated() -> dict[str, Any]:
    """The same question again, once it is answered."""
    with serving() as server:
        connection = server.connect()
        plan = post(connection, small(0))[1]["id"]
        _ended(connection, plan)
        return loaded(server, lambda c: post(c, small(0))[0], 5.0, (200,))


def in_line() -> dict[str, Any]:
    """Many plans one after the other: the server's memory while they are solved."""
    with serving() as server:
        connection = server.connect()
        ids = [post(connection, small(number))[1]["id"] for number in range(LINE)]
        began, sizes = time.perf_counter(), []
        while get(connection, f"/v1/plans/{ids[-1]}")[1]["ended_at"] is None:
            sizes.append(server.memory_bytes)
            time.sleep(1.0)
        took = time.perf_counter() - began
    early, late = statistics.median(sizes[: len(sizes) // 4 + 1]), statistics.median(sizes[-len(sizes) // 4 :])
    return {
        "plans": LINE,
        "seconds": round(took, 1),
        "memory_mib": round(late / 2**20),
        "growth": round(late / early - 1, 3),
    }


def large() -> dict[str, Any]:
    """A graph of about 7,000 nodes accepted, and the slowest answer that others waited for meanwhile."""
    graph = import_zoo("llama-7b", train="adam", batch=8, layers=90)
    ask = {"graph": graph, "mesh": "dp=8,tp=8", "request": {"time_limit_s": 1.0}}
    with serving() as server:
        waits: list[float] = []
        done = threading.Event()

        def look() -> None:
            connection = server.connect()
            while not done.is_set():
                start = time.perf_counter()
                get(connection, "/healthz")
                waits.append(time.perf_counter() - start)

        get(server.connect(), "/healthz")
        thread = threading.Thread(target=look)
        thread.start()
        began, spent = time.perf_counter(), server.cpu_s
        status, _ = post(server.connect(), ask)
        took = time.perf_counter() - began
        done.set()
        thread.join()
        spent = server.cpu_s - spent
    return {
        "nodes": len(graph["nodes"]),
        "status": status,
        "seconds": round(took, 2),
        "server_cpu_s": round(spent, 2),
        "others_waited_at_most_s": round(max(waits), 2),
    }


def _ended(connection: http.client.HTTPConnection, plan: str) -> None:
    while get(connection, f"/v1/plans/{plan}")[1]["ended_at"] is None:
        time.sleep(0.1)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    write(
        "service",
        {
            "clients": CLIENTS,
            "seconds": seconds,
            "accepting": accepting(seconds),
            "looking": looking(seconds),
            "repeated": repeated(),
            "in_line": in_line(),
            "large": large(),
        },
    )


if __name__ == "__main__":
    main()
