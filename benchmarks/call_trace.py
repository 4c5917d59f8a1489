"""A pytest plugin that records which of our functions each test calls, and runs tests in a given order.

`-p benchmarks.call_trace` with CALL_TRACE=FILE appends one line of JSON per test: its CPU seconds, its outcome and the
functions that it entered. With TEST_ORDER=FILE only the tests that the file lists (one node id per line) run, in that
order. Functions compiled by numba are not seen. A test that takes more than LONG_S CPU seconds is ended; its line has
the functions that it had entered by then, and the outcome "long".
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

TRACE, ORDER = os.environ.get("CALL_TRACE"), os.environ.get("TEST_ORDER")
ROOT = f"{Path.cwd()}{os.sep}"
OURS = (f"{ROOT}planner{os.sep}", f"{ROOT}solvers{os.sep}")
LONG_S = 6.0
entered: set[tuple[str, str]] = set()
failed: list[str] = []


def enter(frame: FrameType, event: str, _: object) -> None:
    """Record the function and let it run untraced."""
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(OURS):
        entered.add((code.co_filename.removeprefix(ROOT), code.co_qualname))


def processor_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def end_long(*_: object) -> None:
    failed.append("long")
    pytest.fail(f"longer than {LONG_S} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if TRACE is None:
        return (yield)
    entered.clear()
    failed.clear()
    start = processor_seconds()
    threading.settrace(enter)
    sys.settrace(enter)
    signal.signal(signal.SIGPROF, end_long)
    signal.setitimer(signal.ITIMER_PROF, LONG_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.settrace(None)
        seconds = round(processor_seconds() - start, 3)
        row = {
            "test": item.nodeid,
            "seconds": seconds,
            "ends": "long" if "long" in failed else "failed" if failed else "passed",
            "enters": sorted(entered),
        }
        with Path(TRACE).open("a") as file:
            file.write(json.dumps(row) + "\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failed.append(report.nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if ORDER is not None:
        places = {test: place for place, test in enumerate(Path(ORDER).read_text().splitlines())}
        items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])
