"""Pipeline stages: random small steps against trying everything, and gaps of large models by limits of time.

    python -m benchmarks.pipeline exhaustive|models [--time-limit SECONDS]

`exhaustive` plans 500 random training steps of two or three layers in two stages on meshes of two devices, every other
one under a memory limit, in each schedule, and compares with all partitions and choices of layouts
(`tests.testing.exhaustive_stages`). `separate` compares with the choices in which each stage has the least time of its
own passes and update, which is what stages are planned for; `above` is by how much the step exceeds the least of all
choices, in which a stage may be slower for the sake of what it sends.

`models` plans Llama in 1f1b through the command line, a process per row: one sequence for each index of the first mesh
axis in a micro-batch. `wall_s` is from the start of the process; `load` the load average then.

Rows are written one after the other and those of an earlier run at the same commit are kept, so that either command
may be ended and run again. With a limit no row begins after so many seconds.
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measured import MEASURED, ROOT, measured_commit
from benchmarks.record import read_last, write
from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from planner.units import format_share
from tests.testing.exhaustive_stages import compare_stages

HARDWARE, GRAPHS = "h100-sxm", 500
SEQUENCE, MICROBATCHES = 4096, 16
MODELS = (("llama-7b", 2, "4x4", 4), ("llama-70b", 4, "8x8", 8), ("llama-3-405b", 16, "128x8", 128))
"""Model, stages, the mesh of each, and the sequences of a micro-batch."""
LIMITS_S = (60, 120, 300)
PARTS = ("exhaustive", "models")
Row = dict[str, Any]


def compare_graph(seed: int) -> Row:
    """Return what is found of a random step: the shares by which it is above the least, and whether bounds hold.

    `above` is None where nothing fits.
    """
    began = time.process_time()
    rows = list(compare_stages(seed, CostModel(Mesh.parse("2"), load_profile(HARDWARE))))
    return {
        "seed": seed,
        "is_bound_below": all(row.bound_ps <= row.least_ps for row in rows),
        "is_separate": all(row.is_separate for row in rows),
        "above": [row.above if row.is_fitting else None for row in rows],
        "cpu_s": round(time.process_time() - began, 2),
    }


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


def read_rows() -> dict[str, list[Row]]:
    """Return the rows of an earlier run at the same commit."""
    known = read_last("pipeline") or {}
    is_same = known.get("commit") == measured_commit(MEASURED["pipeline"])
    return {part: known[part] if is_same else [] for part in PARTS}


def measure(part: str, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows of a part that are not known yet."""
    if part == "exhaustive":
        yield from (compare_graph(seed) for seed in range(GRAPHS) if seed not in {row["seed"] for row in rows})
        return
    known = {(row["model"], row["limit_s"]) for row in rows}
    with tempfile.TemporaryDirectory() as place:
        for case in MODELS:
            yield from (plan_model(case, each, Path(place)) for each in LIMITS_S if (case[0], each) not in known)


def table(result: Row) -> str:
    """Return both parts as a page shows them."""
    lines = [
        "| model | stages | mesh of each | limit | wall | CPU | step | gap proven |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in result["models"]:
        step = "-" if row["objective_s"] is None else f"{row['objective_s']:.3f} s"
        gap = row["status"] if row["gap"] is None else format_share(row["gap"])
        lines.append(
            f"| {row['model']} | {row['stages']} | {row['mesh']} | {row['limit_s']} s | {row['wall_s']:.0f} s | "
            f"{row['cpu_s']:.0f} s | {step} | {gap} |"
        )
    return "\n".join([*(lines if result["models"] else []), "", describe(result["exhaustive"])]).strip()


def describe(rows: Sequence[Row]) -> str:
    """Return what was found of random steps."""
    above = [share for row in rows for share in row["above"] if share is not None]
    fitting, total = len(above), sum(len(row["above"]) for row in rows)
    return (
        f"{len(rows)} of {GRAPHS} random steps, {total} with their schedules, of which {fitting} fit: bounds hold in "
        f"{sum(row['is_bound_below'] for row in rows)}, and {sum(row['is_separate'] for row in rows)} are the best of "
        f"all partitions of stages that each take the least time. Of all choices {sum(not each for each in above)} of "
        f"{fitting} are the best, and no step is more than {format_share(max(above, default=0.0))} longer."
    )


def main() -> None:
    """Measure one part, writing results/pipeline.json after each row."""
    reader = argparse.ArgumentParser(description="Measure pipeline stages.")
    reader.add_argument("part", choices=PARTS)
    reader.add_argument("--time-limit", type=float, default=float("inf"), help="begin no row after so many seconds")
    asked = reader.parse_args()
    parts, ends_s = read_rows(), time.monotonic() + asked.time_limit
    for row in measure(asked.part, parts[asked.part]):
        parts[asked.part].append(row)
        write("pipeline", {"hardware": HARDWARE, **parts}, show=False)
        print(row, flush=True)
        if time.monotonic() > ends_s:
            break


if __name__ == "__main__":
    main()
