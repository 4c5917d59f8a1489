"""Measures the service under load: `shardplan serve` with one worker, and clients in one process over loopback.

The database is SQLite, and for `accepting_postgresql` a PostgreSQL server on the same machine with its usual settings.
A 202 response means that the plan is on disk. CPU seconds are the server's own, from /proc; on a machine with other
load they say more than the rates. `python -m benchmarks.service [SECONDS]`, 60 by default.
"""

from __future__ import annotations

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
from benchmarks.bare_client import Connection, request
from benchmarks.record import write
from planner.frontends.zoo import import_zoo
from tests.testing.postgres_cluster import DURABLE, running_cluster

CLIENTS = 8
LINE = 200
LARGE = 5
IN_LINE, RATE = 100_000, 10_000
"""Limits of the queue's length and of requests per second, so high that no request is refused."""
TICKS = os.sysconf("SC_CLK_TCK")
Ask = Callable[[Connection], int]
"""Sends one request on a connection and returns the status."""


class Server:
    """The server process, and connections to it."""

    def __init__(self, folder: Path, database: str) -> None:
        log = folder / "log"
        words = [sys.executable, "-m", "api", "serve", "--port", "0", "--database", database]
        words += ["--max-queued", str(IN_LINE), "--rate-limit", str(RATE)]
        with log.open("wb") as file:
            self.process = subprocess.Popen(words, stderr=file)
        while not (found := re.search(r"running on http://[0-9.]+:(\d+)", log.read_text())):
            time.sleep(0.1)
        self.port = int(found[1])

    def connect(self) -> Connection:
        return Connection(self.port)

    @property
    def cpu_s(self) -> float:
        """Return the server's CPU seconds, without the processes that solve."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def memory_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def serving(database: str | None = None) -> Iterator[Server]:
    """Run a server on a database, by default SQLite in a new file."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), database or f"{folder}/service.db")
        try:
            yield server
        finally:
            server.process.send_signal(signal.SIGTERM)
            server.process.wait()


def asked(ask: dict[str, Any]) -> bytes:
    return request("POST", "/v1/plans", json.dumps(ask).encode())


def small(number: int) -> dict[str, Any]:
    """Return a small graph that differs for each number."""
    return {"graph": {**GRAPH, "name": f"layer {number}"}, "mesh": "dp=2,tp=4", "request": {"gap": 0.01}}


def enter(server: Server, count: int) -> list[str]:
    """Queue this many small plans and return their ids."""
    connection = server.connect()
    return [json.loads(connection.ask(asked(small(number)))[1])["id"] for number in range(count)]


def loaded(server: Server, ask: Ask, seconds: float, wanted: tuple[int, ...]) -> dict[str, Any]:
    """Measure the responses to clients that send requests without a pause."""
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


def accepting(seconds: float, database: str | None = None) -> dict[str, Any]:
    """Measure requests for new small plans, each committed before it is answered, while plans are solved."""
    numbers = count()
    with serving(database) as server:
        return loaded(server, lambda c: c.ask(asked(small(next(numbers))))[0], seconds, (202,))


def accepting_postgresql(seconds: float) -> dict[str, Any]:
    with running_cluster(DURABLE) as cluster:
        return accepting(seconds, cluster.database())


def looking(seconds: float) -> dict[str, Any]:
    """Measure requests for the status of plans, while plans are solved."""
    with serving() as server:
        looks = [request("GET", f"/v1/plans/{plan}") for plan in enter(server, LINE)]
        turns = count()
        return loaded(server, lambda c: c.ask(looks[next(turns) % LINE])[0], seconds, (200,))


def repeated() -> dict[str, Any]:
    """Measure repeated requests for a plan that is done."""
    with serving() as server:
        _await_end(server.connect(), *enter(server, 1))
        again = asked(small(0))
        return loaded(server, lambda c: c.ask(again)[0], 5.0, (200,))


def in_line() -> dict[str, Any]:
    """Measure the server's memory while many plans are solved."""
    with serving() as server:
        ids, connection = enter(server, LINE), server.connect()
        began, sizes = time.perf_counter(), []
        while connection.get(f"/v1/plans/{ids[-1]}")["ended_at"] is None:
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
    """Measure requests for plans of about 7,000 nodes, the slowest response to others meanwhile, and a repeat of the
    last request."""
    graph = import_zoo("llama-7b", train="adam", batch=8, layers=90)
    graphs = [{**graph, "name": f"{graph['name']} {number}"} for number in range(LARGE)]
    asks = [asked({"graph": each, "mesh": "dp=8,tp=8", "request": {"time_limit_s": 1.0}}) for each in graphs]
    with serving() as server, _others(server) as waits:
        connection, spent = server.connect(), server.cpu_s
        answers = [_timed(connection, ask) for ask in asks]
        spent = server.cpu_s - spent
        again = _timed(connection, asks[-1])
    return {
        "nodes": len(graph["nodes"]),
        "graphs": LARGE,
        "statuses": sorted({status for status, _ in answers}),
        "seconds_median": round(statistics.median(took for _, took in answers), 2),
        "seconds_at_most": round(max(took for _, took in answers), 2),
        "server_cpu_s_each": round(spent / LARGE, 2),
        "others_waited_at_most_s": round(max(waits), 2),
        "asked_again_s": round(again[1], 3),
    }


@contextmanager
def _others(server: Server) -> Iterator[list[float]]:
    """Request a plan's status repeatedly within the context; yield the seconds of each response."""
    waits: list[float] = []
    done, look = threading.Event(), request("GET", f"/v1/plans/{enter(server, 1)[0]}")

    def run() -> None:
        connection = server.connect()
        while not done.is_set():
            waits.append(_timed(connection, look)[1])
            time.sleep(0.01)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield waits
    finally:
        done.set()
        thread.join()


def _timed(connection: Connection, sent: bytes) -> tuple[int, float]:
    start = time.perf_counter()
    status, _ = connection.ask(sent)
    return status, time.perf_counter() - start


def _await_end(connection: Connection, plan: str) -> None:
    while connection.get(f"/v1/plans/{plan}")["ended_at"] is None:
        time.sleep(0.1)


def table(results: dict[str, Any]) -> str:
    """Return the results as a Markdown table."""
    rates = {"create a plan": "accepting", "create a plan, on PostgreSQL": "accepting_postgresql"}
    rates |= {"get a plan's status": "looking", "request a plan again": "repeated"}
    lines = ["| request | per second | median | 99th percentile | errors |", "| --- | --- | --- | --- | --- |"]
    for name, key in rates.items():
        found = results[key]
        taken = f"{found['p50_ms']:.0f} ms | {found['p99_ms']:.0f} ms"
        lines.append(f"| {name} | {found['per_s']:.0f} | {taken} | {found['errors']} |")
    nodes, seconds = results["large"]["nodes"], results["large"]["seconds_median"]
    return "\n".join([*lines, f"| create a plan of {nodes:,} nodes, one at a time | | {seconds} s | | |"])


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    write(
        "service",
        {
            "clients": CLIENTS,
            "seconds": seconds,
            "accepting": accepting(seconds),
            "accepting_postgresql": accepting_postgresql(seconds),
            "looking": looking(seconds),
            "repeated": repeated(),
            "in_line": in_line(),
            "large": large(),
        },
    )


if __name__ == "__main__":
    main()
