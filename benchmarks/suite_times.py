"""How long the tests take, folder by folder, and how many random cases they try.

`python -m benchmarks.suite_times [quick|everything] [WORKERS]` runs the tests as `make test` does (or all of them, as
`make test-all`), on three workers, and puts the seconds of every folder beside those of the other run. Seconds of a
folder are summed over its tests, with fixtures; the run's are by the clock, with starting and collecting. The entry
`before` is of the tests before there was a quick run.
"""

from __future__ import annotations

import json
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

from benchmarks.record import RESULTS, write
from tests.testing.seeds import EVERYTHING, QUICK, SHARE

ROOT = Path(__file__).parents[1]
SEEDS = re.compile(r"\b(?:seeds|batches)\((\d+)")
CHOICES = {QUICK: ("--run", QUICK), EVERYTHING: ("-m", "not gpu", "--databases", "all")}
"""What `make test` and `make test-all` say to pytest."""
LISTED = 20
"""So many of the longest tests are named."""


def measured(run: str, workers: str) -> dict[str, Any]:
    """One run: its clock, its outcome, and its folders."""
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
    """The folder under tests/, or the file where there is none."""
    return "/".join(case.get("classname", "").split(".")[:2])


def folders(cases: list[ElementTree.Element]) -> dict[str, Any]:
    """Tests and seconds by folder, the longest first."""
    found = defaultdict[str, list[float]](list)
    for case in cases:
        found[folder_of(case)].append(seconds(case))
    order = sorted(found, key=lambda name: -sum(found[name]))
    return {name: {"tests": len(found[name]), "seconds": round(sum(found[name]), 1)} for name in order}


def longest(cases: list[ElementTree.Element]) -> list[dict[str, Any]]:
    listed = sorted(cases, key=seconds, reverse=True)[:LISTED]
    return [{"test": f"{c.get('classname')}::{c.get('name')}", "seconds": round(seconds(c), 1)} for c in listed]


def random_cases(run: str) -> dict[str, int]:
    """Seeds that the tests name: those that never change, and those of the day's window."""
    counts = [int(count) for path in (ROOT / "tests").rglob("test_*.py") for count in SEEDS.findall(path.read_text())]
    fixed = sum(counts) if run == EVERYTHING else 0
    return {"fixed": fixed, "of_the_day": sum(-(-count // SHARE) for count in counts)}


def main() -> None:
    """Measure one run, and write it beside the others into results/suite_times.json."""
    run, workers = (*sys.argv[1:], *(QUICK, "3")[len(sys.argv) - 1 :])
    path = RESULTS / "suite_times.json"
    runs = json.loads(path.read_text())["runs"] if path.exists() else {}
    write("suite_times", {"runs": {**runs, run: measured(run, workers)}})


if __name__ == "__main__":
    main()
