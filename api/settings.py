"""The settings of the service, from the options of `shardplan serve`, and the limits of every request."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from planner.documents.json_reader import MAX_BYTES
from planner.documents.schemas import MAX_NODES
from planner.errors import InvalidRequest

GIB = 1 << 30
DAY_S = 86_400.0
HEARTBEAT_S = 2.0
"""Seconds between two heartbeats of a process with workers."""
WORKER_TTL_S = 3 * HEARTBEAT_S
"""One without a heartbeat for this long counts as gone, and others do its plans."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a request and of a child process; shown at `/v1/limits`.

    `body_bytes` applies to a body as received and again as decompressed; it must arrive within `body_s`. A process
    holds `bodies_bytes` of bodies at once, half of them of one tenant. `max_queued` plans and `streams` of events are
    allowed per tenant, `webhooks` and `requests_per_s` (`burst` at once) per key. A child process is killed when it
    exceeds a `child_*` limit, or `answer_wall_s` where a request waits for it. A sweep may take `sweep_wall_s`.
    """

    body_bytes: int = MAX_BYTES
    bodies_bytes: int = 8 * MAX_BYTES
    nesting: int = 64
    nodes: int = MAX_NODES
    edges: int = 200_000
    max_queued: int = 1000
    streams: int = 16
    webhooks: int = 8
    body_s: float = 30.0
    requests_per_s: float = 1000.0
    burst: int = 2000
    child_wall_s: float = 900.0
    child_cpu_s: int = 1800
    child_memory_bytes: int = 8 * GIB
    answer_wall_s: float = 60.0
    sweep_wall_s: float = 7 * DAY_S


@dataclass(frozen=True, slots=True)
class Settings:
    """How the service is set up.

    `database`: its URL. `keys_required`: require an API key even where none was ever created. `workers`: of this
    process. `keep_days`: how long ended plans are kept (None: for ever). `webhooks`: whether webhooks may be
    created and are called by this process.
    """

    database: str
    keys_required: bool = False
    workers: int = 1
    keep_days: float | None = None
    webhooks: bool = False
    limits: Limits = field(default_factory=Limits)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is reachable from this machine only."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def default_database() -> Path:
    """Return the database file in the user's data directory (XDG Base Directory; on macOS, Application Support)."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "shardplan" / "service.db"
    data_home = os.environ.get("XDG_DATA_HOME", "")
    return (
        (Path(data_home) if os.path.isabs(data_home) else Path.home() / ".local" / "share") / "shardplan" / "service.db"
    )


def database_url(text: str | None) -> str:
    """Return the URL of `--database`: a path, sqlite:///path or postgresql://…. Raises InvalidRequest for anything
    else.
    """
    if text is None:
        return f"sqlite:///{default_database()}"
    if text.startswith("postgresql://") and text != "postgresql://":
        return text
    path = text.removeprefix("sqlite:///")
    if not path or "://" in path:
        raise InvalidRequest("--database", got=text, wanted="a file, sqlite:///file, or postgresql://host/name")
    return f"sqlite:///{path}"
