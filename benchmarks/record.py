"""Where a benchmark's last result is kept, and on what it was measured."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def write(name: str, result: dict[str, Any]) -> None:
    """Write the result with the machine's description and print it."""
    packages = {package: version(package) for package in ("numpy", "numba", "networkx", "ortools", "pydantic")}
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "packages": packages}
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine, **result}, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    print(text)


@contextmanager
def timed(result: dict[str, Any], key: str) -> Iterator[None]:
    """Wall seconds of a block into result[key]."""
    start = time.perf_counter()
    yield
    result[key] = round(time.perf_counter() - start, 3)
