"""Work that goes wrong ends with its cause, within its limits, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from api.asking import packed
from api.children import Allowed, Child, Children, Ended
from tests.api.http.serving import MISBEHAVING, children_of, gone
from tests.api.small import GRAPH

GIB = 1 << 30
ALLOWED = Allowed(wall_s=60.0, cpu_s=60, memory_bytes=4 * GIB)
SHORT = Allowed(wall_s=4.0, cpu_s=60, memory_bytes=4 * GIB)
BRIEF = Allowed(wall_s=60.0, cpu_s=1, memory_bytes=4 * GIB)

CAUSES = [
    ("exhaust", ALLOWED, "failed", "out of memory"),
    ("abort", ALLOWED, "failed", "crashed (SIGABRT)"),
    ("fault", ALLOWED, "failed", "crashed (SIGSEGV)"),
    ("spin", BRIEF, "failed", "used up its processor time (SIGXCPU)"),
    ("spin", SHORT, "failed", "gave no answer within 4 s"),
    ("hang", SHORT, "failed", "gave no answer within 4 s"),
    ("exit", ALLOWED, "failed", "ended with code 3"),
    ("killed", ALLOWED, "killed", "SIGKILL"),
    ("noise", ALLOWED, "failed", "fault of the planner: KeyError: 'lost'"),
]


def done(way: str, allowed: Allowed = ALLOWED) -> Ended:
    return Child(MISBEHAVING).do("plan", packed({"graph": {"name": way}}), allowed)


@pytest.mark.parametrize(("way", "allowed", "kind", "cause"), CAUSES)
def test_every_way_to_fail_has_its_cause(way: str, allowed: Allowed, kind: str, cause: str) -> None:
    ended = done(way, allowed)
    assert ended.kind == kind
    assert cause in ended.head["cause"]


def test_a_child_ends_with_its_own_children() -> None:
    child, began = Child(MISBEHAVING), time.monotonic()
    seen: set[int] = set()

    def goes_on() -> bool:
        seen.update(children_of(child.process.pid))
        return not seen and time.monotonic() - began < 60

    assert child.do("plan", packed({"graph": {"name": "family"}}), ALLOWED, goes_on).kind == "stopped"
    assert seen
    assert gone([child.process.pid, *seen])


def test_one_is_kept_in_reserve_and_replaced_when_it_dies() -> None:
    others = set(children_of(os.getpid()))  # of tests before this one: solvers keep a process for the next problem
    children = Children()
    try:
        children.prepare()
        (spare,) = set(children_of(os.getpid())) - others
        taken = children.take()
        assert taken.process.pid == spare
        taken.end()
        (dead,) = set(children_of(os.getpid())) - others
        os.kill(dead, 9)
        assert gone([dead])
        ask = packed({"graph": GRAPH, "mesh": "2x4"})
        assert children.take().do("plan", ask, ALLOWED).head["status"] == "optimal"
    finally:
        children.close()
    assert set(children_of(os.getpid())) <= others


def test_a_process_that_dies_in_reserve_costs_the_work_nothing() -> None:
    others = set(children_of(os.getpid()))
    children = Children(MISBEHAVING)
    try:
        children.prepare()
        (spare,) = set(children_of(os.getpid())) - others
        os.kill(spare, signal.SIGSTOP)  # struck, and not dead yet when it is taken
        threading.Timer(0.5, os.kill, (spare, signal.SIGKILL)).start()
        ended = children.do("plan", packed({"graph": {"name": "abort"}}), ALLOWED)
        assert (ended.kind, ended.head["cause"]) == ("failed", "crashed (SIGABRT)")
    finally:
        children.close()
