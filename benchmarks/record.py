"""Stores each benchmark's last result, with its machine, commit and date."""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.measured import MEASURED, measured_commit
from planner.version import VERSION

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Return a description of this machine."""
    packages = {package: version(package) for package in ("numpy", "numba", "networkx", "ortools", "pydantic")}
    packages["shardplan"] = VERSION
    return {"cores": os.cpu_count(), "python": platform.python_version(), "packages": packages}


def write(name: str, result: dict[str, Any], show: bool = True) -> None:
    """Write the result with commit, date and machine, and print it."""
    RESULTS.mkdir(exist_ok=True)
    measured = {"commit": measured_commit(MEASURED[name]), "date": date.today().isoformat(), "machine": machine()}
    text = json.dumps(measured | result, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    if show:
        print(text)


def read_last(name: str) -> dict[str, Any] | None:
    """Return the last result of a benchmark; None where it has none."""
    path = RESULTS / f"{name}.json"
    result: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return result


def count_older(result: dict[str, Any]) -> Counter[str]:
    """Return how many models or rows of a result were measured at another commit than the last, by commit."""
    rows = result.get("models", result.get("rows"))
    listed = rows if isinstance(rows, list) else []
    commits = Counter(row.get("commit", result["commit"]) for row in listed)
    del commits[result["commit"]]
    return commits


def describe_older(result: dict[str, Any]) -> str:
    """Return a sentence that says which rows of a result were measured at other commits, or nothing."""
    older = ", ".join(f"{count} at {commit}" for commit, count in count_older(result).items())
    return f"\nRows measured at an earlier commit: {older}.\n" if older else ""


def shown(result: dict[str, Any], table: str) -> str:
    """Return a table as a page shows it, with its commit, date and machine."""
    on = result["machine"]
    versions = f"Python {on['python']}, OR-Tools {on['packages']['ortools']}"
    return f"Measured at {result['commit']} on {result['date']} ({on['cores']} cores, {versions}):\n\n{table}"


@contextmanager
def timed(result: dict[str, Any], key: str) -> Iterator[None]:
    """Store the wall seconds of the context in result[key]."""
    start = time.perf_counter()
    yield
    result[key] = round(time.perf_counter() - start, 3)
