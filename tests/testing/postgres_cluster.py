"""A PostgreSQL server for tests: a new cluster in a temporary folder, on a free loopback port."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

Databases = Callable[[], str]
"""Creates a database and returns its URL."""

SECONDS = 120
DURABLE = ("max_connections=300",)
FAST = ("fsync=off", "full_page_writes=off", *DURABLE)
"""Durability is switched off: the host does not fail during a test."""


def server_programs() -> Path | None:
    """Return the folder of initdb and pg_ctl, which Debian keeps out of the path; None where PostgreSQL is missing."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("initdb")
    folders += [] if found is None else [Path(found).parent]
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "pg_ctl").exists()), None)


@contextmanager
def running_cluster(settings: Sequence[str] = FAST) -> Iterator[Cluster]:
    """Run a PostgreSQL server within the context; skips the test where it is not installed."""
    programs = server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed (initdb, postgres)")
    found = Cluster.started(programs, settings)
    try:
        yield found
    finally:
        found.stop()


@dataclass
class Cluster:
    """A running server, which can be stopped and started again like one whose host went down."""

    programs: Path
    folder: Path
    port: int
    settings: Sequence[str] = FAST
    numbers: count[int] = field(default_factory=count)

    @classmethod
    def started(cls, programs: Path, settings: Sequence[str]) -> Cluster:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        folder = Path(tempfile.mkdtemp(prefix="postgresql."))  # pytest's own folders are closed to its user
        if os.getuid() == 0:
            shutil.chown(folder, "postgres")
        cluster = cls(programs, folder, port, settings)
        cluster._run("initdb", "--auth=trust", "--username=shardplan", "--no-sync", "--encoding=UTF8")
        cluster.start()
        return cluster

    def start(self) -> None:
        settings = " ".join(f"-c {each}" for each in (*self.settings, f"unix_socket_directories={self.folder}"))
        self._run("pg_ctl", "start", "--wait", f"--log={self.folder}/log", f"--options=-p {self.port} {settings}")

    def halt(self) -> None:
        """Stop the server at once, as when the host goes down."""
        self._run("pg_ctl", "stop", "--wait", "--mode=immediate")

    def stop(self) -> None:
        self.halt()
        shutil.rmtree(self.folder, ignore_errors=True)

    def database(self) -> str:
        """Create a database and return its URL."""
        name = f"plans{next(self.numbers)}"
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "shardplan"]
        subprocess.run([self.programs / "createdb", *address, name], check=True, timeout=SECONDS)
        return f"postgresql://shardplan@127.0.0.1:{self.port}/{name}"

    def _run(self, program: str, *words: str) -> None:
        """Run a program as a user other than root, which PostgreSQL refuses."""
        command = [str(self.programs / program), "--pgdata", str(self.folder / "data"), *words]
        user = pwd.getpwnam("postgres").pw_uid if os.getuid() == 0 else None
        subprocess.run(command, check=True, timeout=SECONDS, user=user, cwd=self.folder, stdout=subprocess.DEVNULL)
