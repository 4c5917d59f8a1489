"""Runs the service, in this process or in a child process with a port of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from fastapi.testclient import TestClient
from sqlalchemy import Connection, text

from api.http.app import create_app
from api.jobs.database import Database
from api.jobs.worker_process import WorkerProcesses
from api.service import Service
from api.settings import Limits, Settings
from tests.testing.command_line import ROOT
from tests.testing.small_documents import GRAPH, Document, typed

LOCAL = "http://127.0.0.1"
SECONDS = 120.0
"""Far more than a request needs, even on a loaded machine."""

CHILDREN = WorkerProcesses()
MISBEHAVING = WorkerProcesses((sys.executable, "-m", "tests.testing.faulty_tasks"))
"""Shared by all services of this process, and ended with it."""


@contextmanager
def serving(
    database: str,
    limits: Limits | None = None,
    *,
    keys_required: bool = False,
    children: WorkerProcesses = CHILDREN,
    workers: int = 1,
) -> Iterator[TestClient]:
    """Run a service on a database and return a client. A process has one service with workers at a time."""
    settings = Settings(database, keys_required=keys_required, workers=workers, limits=limits or Limits())
    with TestClient(create_app(Service(settings, children)), LOCAL) as client:
        yield client


@contextmanager
def writers_stopped(store: Database) -> Iterator[Connection]:
    """Keep everybody from writing plans within the context; they may be read."""
    with store.begin() as connection:
        if not store.is_sqlite:
            connection.execute(text("LOCK TABLE plans IN EXCLUSIVE MODE"))
        yield connection


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds; `what` says what is wrong where it never does."""
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def ask(client: httpx2.Client, graph: Document = GRAPH, mesh: object = "dp=2,tp=4", **more: Any) -> httpx2.Response:
    headers = more.pop("headers", None)
    return client.post("/v1/plans", json={"graph": graph, "mesh": mesh, **more}, headers=headers)


def ended(client: httpx2.Client, plan: str) -> Any:
    """Wait until a plan has ended and return it."""
    until = time.monotonic() + SECONDS
    while (found := client.get(f"/v1/plans/{plan}").json())["ended_at"] is None:
        assert time.monotonic() < until, f"plan {plan} has not ended: {found}"
        time.sleep(0.05)
    return found


def planned(client: httpx2.Client, graph: Document = GRAPH, **more: Any) -> str:
    """Request a plan, wait for its success and return its id."""
    answer = ask(client, graph, **more)
    assert answer.status_code in (200, 202), answer.text
    plan: str = answer.json()["id"]
    assert ended(client, plan)["status"] in ("optimal", "feasible")
    return plan


def named(name: str) -> Document:
    """Return the small graph under another name, which makes it a different request."""
    return {**GRAPH, "name": name}


def chain(name: str, length: int) -> Document:
    """Return a graph of a chain of matrix products."""
    nodes = [
        {"id": f"n{k}", "op": "matmul", "inputs": [f"n{k - 1}" if k else "x", "w"], "outputs": [typed(64, 64)]}
        for k in range(length)
    ]
    inputs = [{"id": each, "kind": "input", "name": each, **typed(64, 64)} for each in ("x", "w")]
    kept = {"format": "shardplan.graph", "version": 1, "name": name, "inputs": inputs}
    return {**kept, "nodes": nodes, "outputs": [f"n{length - 1}"]}


@dataclass
class Server:
    """`shardplan serve`, or a worker with a port, in a child process."""

    process: subprocess.Popen[bytes]
    client: httpx2.Client

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.client.close()

    def stop(self) -> None:
        """Stop the server as an init system does: it closes all connections, then ends by the signal."""
        self.process.terminate()
        self.client.close()
        assert self.process.wait(SECONDS) in (0, -signal.SIGTERM)


def start(database: str, log: Path, *options: str, root: Path = ROOT, command: str = "serve") -> Server:
    """Start a server on a free port and wait until it answers; `root` is the folder of the packages that it runs."""
    words = [sys.executable, "-m", "api", command, "--port", "0", "--database", database, *options]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with log.open("wb") as file:
        process = subprocess.Popen(words, cwd=root, env=environment, stderr=file, start_new_session=True)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(r"running on (http://[0-9.:]+)", log.read_text()):
            return Server(process, httpx2.Client(base_url=found[1], timeout=SECONDS))
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def work(database: str, log: Path) -> subprocess.Popen[bytes]:
    """Start `shardplan worker` in a child process and wait until it works."""
    words = [sys.executable, "-m", "api", "worker", "--database", database]
    with log.open("wb") as file:
        process = subprocess.Popen(words, cwd=ROOT, stderr=file, start_new_session=True)
    until = time.monotonic() + SECONDS
    while "ready to solve" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)
    return process


def events(text: str) -> list[tuple[int, str, Any]]:
    """Return number, kind and data of each server-sent event."""
    told = [block.splitlines() for block in text.split("\n\n") if "id: " in block]
    blocks = [dict(line.split(": ", 1) for line in lines) for lines in told]
    return [(int(block["id"]), block["event"], json.loads(block["data"])) for block in blocks]
