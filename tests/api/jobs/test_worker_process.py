"""Child processes that fail: each ends with its error, within its limits, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from api.http.requests import pack_json, unpack_json
from api.jobs.ipc import receive_message
from api.jobs.worker_process import NICE, ResourceLimits, TaskResult
from tests.testing.processes import borne, children_of, descendants, gone
from tests.testing.service import CHILDREN, MISBEHAVING
from tests.testing.small_documents import GRAPH

pytestmark = pytest.mark.service

GIB = 1 << 30
ALLOWED = ResourceLimits(wall_s=60.0, cpu_s=60, memory_bytes=4 * GIB)
SMALL = ResourceLimits(wall_s=60.0, cpu_s=60, memory_bytes=GIB)
SHORT = ResourceLimits(wall_s=1.0, cpu_s=60, memory_bytes=4 * GIB)
BRIEF = ResourceLimits(wall_s=60.0, cpu_s=1, memory_bytes=4 * GIB)

ERRORS = [
    ("exhaust", SMALL, "exceeded", "out of memory"),
    ("abort", ALLOWED, "failed", "crashed (SIGABRT)"),
    ("fault", ALLOWED, "failed", "crashed (SIGSEGV)"),
    ("spin", BRIEF, "exceeded", "used up its processor time (SIGXCPU)"),
    ("spin", SHORT, "exceeded", "gave no answer within 1 s"),
    ("hang", SHORT, "exceeded", "gave no answer within 1 s"),
    ("exit", ALLOWED, "failed", "ended with code 3"),
    ("killed", ALLOWED, "killed", "SIGKILL"),
    ("noise", ALLOWED, "failed", "internal error of the planner: KeyError: 'lost'"),
]


def done(way: str, allowed: ResourceLimits = ALLOWED, goes_on: Callable[[], bool] = lambda: True) -> TaskResult:
    return MISBEHAVING.run("plan", pack_json({"graph": {"name": way}}), allowed, goes_on)


def fork_server(module: str = "tests.testing.faulty_tasks") -> int:
    """The process that bears the children that run a module."""
    (found,) = [
        each for each in children_of(os.getpid()) if module.encode() in Path(f"/proc/{each}/cmdline").read_bytes()
    ]
    return found


@pytest.mark.parametrize(("way", "allowed", "kind", "error"), ERRORS)
def test_every_kind_of_failure_has_its_error(way: str, allowed: ResourceLimits, kind: str, error: str) -> None:
    ended = done(way, allowed)
    assert ended.kind == kind
    assert error in ended.head["error"]


def test_a_child_ends_with_its_own_children() -> None:
    seen: set[int] = set()

    def goes_on() -> bool:
        seen.update(descendants(fork_server()))
        return len(seen) < 2

    assert done("family", goes_on=goes_on).kind == "stopped"
    assert gone(sorted(seen))


def test_a_child_leads_a_process_group_and_has_limits_of_its_own_and_nothing_of_its_siblings() -> None:
    found: list[TaskResult] = []

    def goes_on() -> bool:
        if borne(os.getpid()):
            found.append(done("show"))
        return not found

    assert done("hang", goes_on=goes_on).kind == "stopped"
    shown = unpack_json(found[0].payload)
    assert shown == {"leads": True, "nice": os.nice(0) + NICE, "cpu_s": ALLOWED.cpu_s, "pipes": 2, "sockets": 0}


def test_the_fork_server_has_one_thread_and_its_children_plan() -> None:
    ask = pack_json({"graph": GRAPH, "mesh": "2x4"})
    assert CHILDREN.run("plan", ask, ALLOWED).head["status"] == "optimal"
    assert len(list(Path(f"/proc/{fork_server('api.jobs.child_main')}/task").iterdir())) == 1
    assert not children_of(fork_server("api.jobs.child_main"))


@pytest.mark.parametrize(("way", "kind"), [("orphan", "result"), ("family", "stopped")])
def test_a_child_whose_fork_server_is_killed_works_on_and_ends_with_its_own_children(way: str, kind: str) -> None:
    struck: list[int] = []

    def goes_on() -> bool:
        if struck:
            return way == "orphan"
        found = descendants(fork_server())
        if len(found) > 1:
            struck.extend([fork_server(), *found])
            os.kill(struck[0], signal.SIGKILL)
        return True

    assert done(way, goes_on=goes_on).kind == kind
    assert gone(struck)
    assert done("exit").head["error"].startswith("ended with code 3")


def test_a_fork_server_that_dies_before_it_forks_is_replaced() -> None:
    done("exit")
    struck = fork_server()
    os.kill(struck, signal.SIGSTOP)  # and not dead yet when it is asked
    threading.Timer(0.5, os.kill, (struck, signal.SIGKILL)).start()
    ended = done("abort")
    assert (ended.kind, ended.head["error"]) == ("failed", "crashed (SIGABRT)")
    assert gone([struck])


def test_no_process_is_left_of_a_closed_fork_server() -> None:
    done("exit")
    left = fork_server()
    MISBEHAVING.close()
    assert gone([left])


@pytest.mark.parametrize("said", [b"a library that prints\n", b"3\n", b'{"kind": "result"}\n', b'{"bytes": 0}\n'])
def test_invalid_messages_are_refused(said: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a message|Expecting value"):
        receive_message(BytesIO(said))


@pytest.mark.parametrize("said", [b"", b'{"kind": "result", "by', b'{"kind": "result", "bytes": 2}\n.'])
def test_a_truncated_message_is_none(said: bytes) -> None:
    assert receive_message(BytesIO(said)) is None
