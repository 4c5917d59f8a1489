"""Measures the gaps of large models in pipeline stages by limit of time.

    python -m benchmarks.pipeline [--time-limit SECONDS]

Llama is planned in 1f1b through the command line, a process per row: one sequence for each index of the first mesh axis
in a micro-batch. `wall_s` is from the start of the process; `load` the load average then. With a limit no row begins
after so many seconds; the whole takes ten minutes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measured import ROOT
from benchmarks.record import write
from planner.frontends.zoo import import_zoo
from planner.units import format_share

HARDWARE = "h100-sxm"
SEQUENCE, MICROBATCHES = 4096, 16
MODELS = (("llama-7b", 2, "4x4", 4), ("llama-70b", 4, "8x8", 8), ("llama-3-405b", 16, "128x8", 128))
"""Model, stages, the mesh of each, and the sequences of a micro-batch."""
LIMITS_S = {"llama-7b": (60,), "llama-70b": (60, 120), "llama-3-405b": (60, 300)}
Row = dict[str, Any]


def plan_model(case: tuple[str, int, str, int], limit_s: int, folder: Path) -> Row:
    """Plan a model within a limit of time and return its row."""
    model, stages, mesh, batch = case
    graph, load = folder / f"{model}.json.gz", os.getloadavg()[0]
    if not graph.exists():
        document = import_zoo(model, batch=batch, seq=SEQUENCE, train="adam")
        with gzip.open(graph, "wt", compresslevel=1) as file:
            json.dump(document, file)
    words = [
        "plan",
        str(graph),
        "--mesh",
        mesh,
        "--hardware",
        HARDWARE,
        "--pipeline",
        str(stages),
        "--schedule",
        "1f1b",
    ]
    words += ["--microbatches", str(MICROBATCHES), "--time-limit", str(limit_s), "--json"]
    began_s, used = time.monotonic(), os.times()
    done = subprocess.run([sys.executable, "-m", "api", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    wall_s, now = time.monotonic() - began_s, os.times()
    cpu_s = now.children_user + now.children_system - used.children_user - used.children_system
    row = {"model": model, "stages": stages, "mesh": mesh, "limit_s": limit_s, "code": done.returncode}
    row |= {"wall_s": round(wall_s, 1), "cpu_s": round(cpu_s, 1), "load": round(load, 1)}
    answer = json.loads(done.stdout) if done.stdout.strip() else {"status": done.stderr.strip()[-160:]}
    return row | {key: answer.get(key) for key in ("status", "objective_s", "bound_s", "gap", "bubble", "mfu")}


def measure() -> Iterator[Row]:
    """Yield a row for each model and limit."""
    with tempfile.TemporaryDirectory() as place:
        for case in MODELS:
            yield from (plan_model(case, limit_s, Path(place)) for limit_s in LIMITS_S[case[0]])


def table(result: Row) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| model | stages | mesh of each | limit | wall | CPU | step | gap proven |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        step = "-" if row["objective_s"] is None else f"{row['objective_s']:.3f} s"
        gap = row["status"] if row["gap"] is None else format_share(row["gap"])
        lines.append(
            f"| {row['model']} | {row['stages']} | {row['mesh']} | {row['limit_s']} s | {row['wall_s']:.0f} s | "
            f"{row['cpu_s']:.0f} s | {step} | {gap} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure every row, writing results/pipeline.json after each."""
    reader = argparse.ArgumentParser(description="Measure the gaps of pipeline stages.")
    reader.add_argument("--time-limit", type=float, default=float("inf"), help="begin no row after so many seconds")
    ends_s, rows = time.monotonic() + reader.parse_args().time_limit, []
    for row in measure():
        rows.append(row)
        write("pipeline", {"hardware": HARDWARE, "rows": rows}, show=False)
        print(row, flush=True)
        if time.monotonic() > ends_s:
            break


if __name__ == "__main__":
    main()
