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


def machine() -> dict[str, Any]:
    """What a result was measured on."""
    packages = {package: version(package) for package in ("numpy", "numba", "networkx", "ortools", "pydantic")}
    return {"cores": os.cpu_count(), "python": platform.python_version(), "packages": packages}


def write(name: str, result: dict[str, Any], show: bool = True) -> None:
    """Write the result with the machine's description and print it."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine(), **result}, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    if show:
        print(text)


@contextmanager
def timed(result: dict[str, Any], key: str) -> Iterator[None]:
    """Wall seconds of a block into result[key]."""
    start = time.perf_counter()
    yield
    result[key] = round(time.perf_counter() - start, 3)
