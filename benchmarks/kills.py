"""kill -9 of the server, of a worker and of the child that solves, at every stage of a plan's way, on SQLite and on
PostgreSQL: is anything lost that was acknowledged, is anything done twice, how soon is it served again?

Each kill is struck while the driver holds the writers' turn of the database: it has read there that the plan is at the
stage, and nothing can move it on until the process is dead. A plan that had passed the stage by then is a miss, and no
kill. Stages: a body half sent (accept), in line (commit), taken (claim), its child at work without an incumbent
(build), with one (solve), the child done and its outcome not yet stored (store), stored and a webhook not yet told
(notify). The webhook's name leads nowhere, so that its delivery must still be there in the end.

    python -m benchmarks.kills [SECONDS [HOUSES]]     else 300, and 3 services at a time on each database

Most of the time is waiting for leases to end.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from benchmarks.kill_house import WAIT_S, House, cpu_s
from benchmarks.record import write
from tests.api.databases import running_cluster
from tests.api.http.serving import ask, chain, children_of, ended, gone, named

LENGTH = 200
CASES = (
    *(("accept", "server"), ("commit", "server")),
    *(("claim", "server"), ("claim", "worker")),
    *(("build", "server"), ("build", "worker"), ("build", "child")),
    *(("solve", "server"), ("solve", "worker"), ("solve", "child")),
    *(("store", "server"), ("store", "worker"), ("notify", "server")),
)
TURN_S = 8.0
"""A turn is given back before the others' patience ends."""


@dataclass
class Tally:
    """What came of the kills at one stage on one kind of database."""

    kills: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    faults: list[str] = field(default_factory=list)
    again_s: list[float] = field(default_factory=list)

    def shown(self) -> dict[str, Any]:
        again = {"served_again_s_at_most": round(max(self.again_s), 1)} if self.again_s else {}
        shown = {"kills": self.kills.total(), "of": dict(self.kills), "missed": self.missed, **again}
        return {**shown, "faults": len(self.faults), "first_faults": self.faults[:3]}


def struck_at(house: House, stage: str, victim: str, name: str, before: dict[int, float]) -> list[int] | None:
    """Strikes when the plan is at the stage; None where it got past it."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        with house.store.reading() as connection:
            near = house.comes_to(stage, name, before, connection)
        if near is None:
            return None
        if near or (stage == "store" and house.is_taken(name)):
            with house.store.writing() as connection:
                struck = _struck_in_turn(house, stage, victim, lambda: house.comes_to(stage, name, before, connection))
            if struck is not None:
                return struck
        time.sleep(0.002)
    return None


def _struck_in_turn(house: House, stage: str, victim: str, looked: Callable[[], bool | None]) -> list[int] | None:
    """While nobody else writes; a child that is done is waited for, as its outcome cannot be stored meanwhile."""
    until = time.monotonic() + (TURN_S if stage == "store" else 0.0)
    while (there := looked()) is False and time.monotonic() < until:
        time.sleep(0.01)
    return house.strike(victim) if there else None


def half_sent(house: House) -> list[int]:
    """Strikes while a body is being read."""
    url = house.server.client.base_url
    with socket.create_connection((url.host, url.port or 80)) as bare:
        headers = "Host: 127.0.0.1", "Content-Type: application/json", "Content-Length: 1000"
        bare.sendall("\r\n".join(("POST /v1/plans HTTP/1.1", *headers, "", '{"graph"')).encode())
        time.sleep(0.1)
        bare.setblocking(False)
        with suppress(BlockingIOError):
            raise AssertionError(f"answered {bare.recv(100)!r}")
        return house.strike("server")


def kill(house: House, stage: str, victim: str, name: str, tally: Tally) -> None:
    """One plan, one kill, and what became of it."""
    small = stage in ("accept", "commit", "store", "notify")
    graph = named(name) if small else chain(name, LENGTH)
    before = cpu_s(children_of(house.solver))
    asked: list[httpx.Response] = []

    def post() -> None:
        with suppress(httpx.HTTPError):
            asked.append(ask(house.server.client, graph))

    if stage == "accept":
        struck: list[int] | None = half_sent(house)
    else:
        thread = threading.Thread(target=post)
        thread.start()
        struck = struck_at(house, stage, victim, name, before)
        thread.join()
    if struck is None:
        tally.missed += 1
    else:
        at = time.monotonic()
        tally.kills[victim] += 1
        house.again(victim)
        tally.again_s.append(time.monotonic() - at)
        if not gone(struck, 10.0):
            tally.faults.append(f"{name}: a child lives on")
    _look(house, name, graph, bool(asked), tally)


def _look(house: House, name: str, graph: Any, acknowledged: bool, tally: Tally) -> None:
    """What was acknowledged, or is in the database, is done once; what is neither may be asked again."""
    with house.store.reading() as connection:
        row = house.state(connection, name)
    if row is None and acknowledged:
        tally.faults.append(f"{name}: lost")
    plan = ask(house.server.client, graph).json()["id"]
    status = ended(house.server.client, plan)["status"]
    with house.store.reading() as connection:
        row = house.state(connection, name)
    found = (status, row["outcomes"], row["done"], row["deliveries"])
    if found != ("optimal", 1, 1, 1):
        tally.faults.append(f"{name}: {found}")


@contextmanager
def houses(kind: str, number: int) -> Iterator[list[Callable[[bool], House]]]:
    """Makers of services on databases of their own."""
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster()) if kind == "postgresql" else None

        def made(apart: bool) -> House:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            database = f"sqlite:///{folder}/service.db" if cluster is None else cluster.database()
            return House(database, folder, apart)

        yield [made] * number


def rounds(made: Callable[[bool], House], until: float, first: int, tallies: dict[str, Tally]) -> None:
    """Case after case, each house beginning at another."""
    apart = {False: made(False), True: made(True)}
    try:
        for number in count(first):
            stage, victim = CASES[number % len(CASES)]
            if time.monotonic() > until:
                return
            house = apart[victim == "worker" or stage == "commit"]  # a worker within would be woken by the commit
            kill(house, stage, victim, f"{stage} {victim} {number}", tallies[stage])
    finally:
        for each in apart.values():
            each.close()


def main() -> None:
    words = sys.argv[1:]
    seconds, number = float(words[0]) if words else 300.0, int(words[1]) if words[1:] else 3
    result: dict[str, dict[str, Tally]] = {}
    until = time.monotonic() + seconds
    with ExitStack() as stack:
        threads = []
        for kind in ("sqlite", "postgresql"):
            result[kind] = {stage: Tally() for stage, _ in CASES}
            for place, made in enumerate(stack.enter_context(houses(kind, number))):
                first = place * len(CASES) // number
                threads.append(threading.Thread(target=rounds, args=(made, until, first, result[kind])))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    shown = {kind: {stage: tally.shown() for stage, tally in found.items()} for kind, found in result.items()}
    write("kills", {"seconds": seconds, "houses": number, **shown})


if __name__ == "__main__":
    main()
