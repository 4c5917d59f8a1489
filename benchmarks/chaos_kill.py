"""Kills the server, a worker, the solving child and its fork server with SIGKILL at every stage of a plan's life.

Measured on SQLite and on PostgreSQL: whether anything acknowledged is lost, whether anything is done twice, and how
soon the service answers again.

The driver kills while it holds the database's write lock: it has read that the plan is at the stage, and nothing can
move the plan on until the process is dead. A plan that had passed the stage by then counts as a miss, not as a kill.
Stages: a body half sent (accept), queued (commit), claimed (claim), the child working without an incumbent (build), or
with one (solve), the child done and its result not yet stored (store), stored and a webhook not yet sent (notify), and
a capacity question with some of its plans solved (sweep), whose answer must be the one that it has without a kill. The
webhook's host does not exist, so that its delivery must still be pending at the end. For claim and store, the fork
server is stopped until the plan is claimed.

    python -m benchmarks.chaos_kill [KILLS [SECONDS [SERVICES]]]

The defaults are 30 kills per stage on each database, within an hour, with one service at a time on each. Most of the
time goes into starting processes again.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.chaos_service import WAIT_S, ChaosService
from benchmarks.record import write
from planner.frontends.zoo import import_zoo
from tests.testing.postgres_cluster import running_cluster
from tests.testing.processes import gone
from tests.testing.service import ask, chain, named, wait_until, writers_stopped

HARD = import_zoo("gpt2", train="adam", batch=8, layers=2)
"""Solved to its optimum, its search has an incumbent for about half of its time."""
LENGTH = 30
"""Products in the graph of a sweep."""
VICTIMS = {
    "accept": ("server",),
    "commit": ("server",),
    "claim": ("server", "worker"),
    "build": ("server", "worker", "child", "nursery"),
    "solve": ("server", "worker", "child", "nursery"),
    "store": ("server", "worker"),
    "notify": ("server",),
    "sweep": ("server", "worker"),
}
"""The processes to kill at each stage."""
TURN_S = 4.0
"""How long the lock is held for a child to end: long before other writers time out."""


@dataclass
class KillTally:
    """The outcomes of the kills at one stage on one kind of database."""

    kills: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    again_s: list[float] = field(default_factory=list)
    answers: set[str] = field(default_factory=set)

    def shown(self) -> dict[str, Any]:
        again = {"served_again_s_at_most": round(max(self.again_s), 1)} if self.again_s else {}
        shown = {"kills": len(self.kills), "of": dict(Counter(self.kills)), "missed": len(self.missed), **again}
        return {**shown, "faults": len(self.faults), "first_faults": self.faults[:3]}


@dataclass
class KillSchedule:
    """Which kill is next, for all services on one kind of database: at the stage that had fewest, each victim in its
    turn; none once every stage has had as many as wanted, or time is up."""

    wanted: int
    until: float
    tallies: dict[str, KillTally] = field(default_factory=lambda: {stage: KillTally() for stage in VICTIMS})
    begun: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self) -> tuple[str, str, int] | None:
        with self.lock:
            counts = {stage: self.begun[stage] - len(tally.missed) for stage, tally in self.tallies.items()}
            stage = min(counts, key=lambda stage: counts[stage])
            if counts[stage] >= self.wanted or time.monotonic() > self.until:
                return None
            number = self.begun[stage]
            self.begun[stage] += 1
            return stage, VICTIMS[stage][number % len(VICTIMS[stage])], number


def struck_at(house: ChaosService, stage: str, victim: str, name: str, seen: set[int]) -> list[int] | None:
    """Kill the victim when the plan is at the stage; None if the plan had already passed it."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        with house.store.connect() as connection:
            near = house.comes_to("claim" if stage == "store" else stage, name, seen, connection)
        if near is None:
            return None
        if near:
            with writers_stopped(house.store) as connection:
                struck = _struck_in_turn(house, stage, victim, lambda at: house.comes_to(at, name, seen, connection))
            if struck is not None or stage == "store":
                return struck
        time.sleep(0.005)
    return None


def _struck_in_turn(
    house: ChaosService, stage: str, victim: str, looked: Callable[[str], bool | None]
) -> list[int] | None:
    """Kill the victim while the write lock is held. For `store`, let the child of a plan that is claimed work to its
    end first: its outcome cannot be stored.
    """
    until = time.monotonic()
    if stage == "store":
        with house.child_alone():
            looked(stage)  # which sees the child
        until += TURN_S
    while (there := looked(stage)) is False and time.monotonic() < until:
        time.sleep(0.01)
    return house.strike(victim) if there else None


def half_sent(house: ChaosService) -> list[int]:
    """Kill the server while it reads a request body."""
    url = house.server.client.base_url
    with socket.create_connection((url.host, url.port or 80)) as bare:
        headers = "Host: 127.0.0.1", "Content-Type: application/json", "Content-Length: 1000"
        bare.sendall("\r\n".join(("POST /v1/plans HTTP/1.1", *headers, "", '{"graph"')).encode())
        time.sleep(0.1)
        bare.setblocking(False)
        with suppress(BlockingIOError):
            raise AssertionError(f"answered {bare.recv(100)!r}")
        return house.strike("server")


def request(house: ChaosService, stage: str, name: str) -> httpx2.Response:
    """Request a plan, or a sweep, that stays at the stage for a while."""
    if stage == "sweep":
        question = {"graphs": [chain(name, LENGTH)], "devices": "2..16", "axes": 3, "hardware": [{"name": "cpu"}]}
        return house.server.client.post("/v1/capacity", json=question)
    if stage in ("build", "solve"):
        return ask(house.server.client, {**HARD, "name": name}, "2x4", request={"gap": 0.0})
    return ask(house.server.client, named(name))


def kill(house: ChaosService, stage: str, victim: str, name: str, tally: KillTally) -> None:
    """Request one plan, kill one process and record the outcome."""
    asked: list[httpx2.Response] = []

    def post() -> None:
        with suppress(httpx2.HTTPError):
            asked.append(request(house, stage, name))

    if stage == "accept":
        struck: list[int] | None = half_sent(house)
    else:
        thread = threading.Thread(target=post)
        with _solver_held(house, stage):
            thread.start()
            struck = struck_at(house, stage, victim, name, set())
        thread.join()
    if struck is None:
        tally.missed.append(victim)
    else:
        at = time.monotonic()
        tally.kills.append(victim)
        house.again(victim)
        tally.again_s.append(time.monotonic() - at)
        if not gone(struck, 10.0):
            tally.faults.append(f"{name}: a child lives on")
    _look(house, stage, name, bool(asked), tally)


def _solver_held(house: ChaosService, stage: str) -> AbstractContextManager[None]:
    """Keep a plan from going past the stage, where processes can be stopped there."""
    if stage == "commit":
        return house.line_stands()
    return house.forks_stand() if stage in ("claim", "store") else nullcontext()


def _look(house: ChaosService, stage: str, name: str, acknowledged: bool, tally: KillTally) -> None:
    """Check that an acknowledged or stored plan is done exactly once, and that any other can be requested again."""
    with house.store.connect() as connection:
        row = house.state(connection, name)
    if row is None and acknowledged:
        tally.faults.append(f"{name}: lost")
    link = request(house, stage, name).json()["links"]["self"]
    wait_until(lambda: house.server.client.get(link).json()["ended_at"] is not None, link)
    with house.store.connect() as connection:
        row = house.state(connection, name)
    found = (row["status"], row["outcomes"], row["done"], row["deliveries"])
    if found != ("complete" if stage == "sweep" else "optimal", 1, 1, 1):
        tally.faults.append(f"{name}: {found}")
    if stage == "sweep":
        document = house.server.client.get(f"{link}/document").json()
        tally.answers.add(json.dumps([_show(each) for each in (*document["candidates"], *document["frontier"])]))
        if len(tally.answers) > 1:
            tally.faults.append(f"{name}: another answer than before")


def _show(candidate: dict[str, Any]) -> dict[str, Any]:
    """Return what is the same in every answer to the stage's question, whose graphs differ by name."""
    return {key: value for key, value in candidate.items() if key not in ("graph", "plan", "wall_s")}


@contextmanager
def houses(kind: str, number: int) -> Iterator[list[Callable[[bool], ChaosService]]]:
    """Yield functions that start services, each on a database of its own."""
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster()) if kind == "postgresql" else None

        def made(apart: bool) -> ChaosService:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            database = f"sqlite:///{folder}/service.db" if cluster is None else cluster.database()
            return ChaosService(database, folder, apart)

        yield [made] * number


def rounds(made: Callable[[bool], ChaosService], book: KillSchedule) -> None:
    """Run kills until the schedule is done."""
    apart = {False: made(False), True: made(True)}
    try:
        while (case := book.next()) is not None:
            stage, victim, number = case
            house = apart[victim == "worker" or stage == "commit"]  # a worker within would be woken by the commit
            kill(house, stage, victim, f"{stage} {victim} {number}", book.tallies[stage])
    finally:
        for each in apart.values():
            each.close()


def table(result: dict[str, Any]) -> str:
    """Return the result as a page shows it."""
    lines = ["| database | killed while | kills | lost or doubled | serving again after |", "|---|---|---|---|---|"]
    for kind, name in (("sqlite", "SQLite"), ("postgresql", "PostgreSQL")):
        for stage, found in result[kind].items():
            again = f"at most {found['served_again_s_at_most']} s"
            lines.append(f"| {name} | {stage} | {found['kills']} | {found['faults']} | {again} |")
    return "\n".join(lines)


def main() -> None:
    wanted, seconds, number = (int(word) for word in [*sys.argv[1:], *("30", "3600", "1")[len(sys.argv) - 1 :]])
    until, began = time.monotonic() + seconds, time.monotonic()
    books = {kind: KillSchedule(wanted, until) for kind in ("sqlite", "postgresql")}
    with ExitStack() as stack:
        threads = []
        for kind, book in books.items():
            for made in stack.enter_context(houses(kind, number)):
                threads.append(threading.Thread(target=rounds, args=(made, book)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    shown = {kind: {stage: tally.shown() for stage, tally in book.tallies.items()} for kind, book in books.items()}
    write("chaos_kill", {"seconds": round(time.monotonic() - began), "houses": number, **shown})


if __name__ == "__main__":
    main()
