"""Measures the duration of the tests by folder, and counts the random cases that they try.

`python -m benchmarks.suite_times [quick|everything] [WORKERS]` runs the tests as `make test` does (or as `make
test-all`), on three workers by default, and stores the seconds of every folder with those of the other run. A folder's
seconds are summed over its tests, fixtures included; the run's are wall clock, with start-up and collection. The entry
`before` is from before there was a quick run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.record import read_last, write
from tests.testing.seeds import EVERYTHING, QUICK, SHARE

ROOT = Path(__file__).parents[1]
SEEDS = re.compile(r"\b(?:seeds|batches)\((\d+)")
CHOICES = {QUICK: ("--run", QUICK), EVERYTHING: ("-m", "not gpu", "--databases", "all")}
"""The arguments of `make test` and `make test-all` to pytest."""
LISTED = 20
"""How many of the longest tests are listed."""


def measured(run: str, workers: str) -> dict[str, Any]:
    """Run the tests once; return the wall seconds, the outcome and the folders."""
    with tempfile.TemporaryDirectory() as folder:
        report, began = Path(folder) / "report.xml", time.perf_counter()
        words = [sys.executable, "-m", "pytest", "-q", "-n", workers, *CHOICES[run], f"--junitxml={report}"]
        ended = subprocess.run(words, cwd=ROOT, check=False)
        wall = time.perf_counter() - began
        suite = next(ElementTree.parse(report).iter("testsuite"))
    busy = round(os.getloadavg()[1], 1)
    outcome = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    cases = list(suite.iter("testcase"))
    shown = {"workers": int(workers), "load_average": busy, "wall_s": round(wall), "exit_code": ended.returncode}
    return {**shown, **outcome, "random_cases": random_cases(run), "folders": folders(cases), "longest": longest(cases)}


def seconds(case: ElementTree.Element) -> float:
    return float(case.get("time", 0))


def folder_of(case: ElementTree.Element) -> str:
    """Return the test's folder under tests/, or its file where there is none."""
    return "/".join(case.get("classname", "").split(".")[:2])


def folders(cases: list[ElementTree.Element]) -> dict[str, Any]:
    """Return tests and seconds by folder, the longest first."""
    found = defaultdict[str, list[float]](list)
    for case in cases:
        found[folder_of(case)].append(seconds(case))
    order = sorted(found, key=lambda name: -sum(found[name]))
    return {name: {"tests": len(found[name]), "seconds": round(sum(found[name]), 1)} for name in order}


def longest(cases: list[ElementTree.Element]) -> list[dict[str, Any]]:
    listed = sorted(cases, key=seconds, reverse=True)[:LISTED]
    return [{"test": f"{c.get('classname')}::{c.get('name')}", "seconds": round(seconds(c), 1)} for c in listed]


def random_cases(run: str) -> dict[str, int]:
    """Count the seeds that the tests use: fixed ones, and those of the day's window."""
    counts = [int(count) for path in (ROOT / "tests").rglob("test_*.py") for count in SEEDS.findall(path.read_text())]
    fixed = sum(counts) if run == EVERYTHING else 0
    return {"fixed": fixed, "of_the_day": sum(-(-count // SHARE) for count in counts)}


def main() -> None:
    """Measure one run and add it to results/suite_times.json."""
    run, workers = (*sys.argv[1:], *(QUICK, "3")[len(sys.argv) - 1 :])
    last = read_last("suite_times") or {"runs": {}}
    write("suite_times", {"runs": {**last["runs"], run: measured(run, workers)}})


if __name__ == "__main__":
    main()
