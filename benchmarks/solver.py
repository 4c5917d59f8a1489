"""The solver on public instances and on look-alikes: cost, bound, gap, seconds and memory beside the known results.

    python -m benchmarks.solver FOLDER [--instances A M ...] [--seeds 0 1 ...] [--kinds U-Net ...] [--deterministic]

FOLDER holds NAME.json.gz in the contest's form and reference.json (known results and time limits). Each run has a
process of its own. Seconds are wall clock from opening the file, reading and presolve included; every cost is judged
again on the document itself. Look-alikes (benchmarks/solver_instances.py) have known optima.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

from benchmarks.record import write
from benchmarks.solver_instances import CLASSES, planted
from solvers import Problem, evaluate, solve
from solvers.public import evaluate_document, problem_from, read_document
from solvers.solution import Progress

KIND_SECONDS = 60.0
COLUMNS = ("winner_contest", "winner_rerun", "known", "cost", "bound", "gap", "seconds", "cpu_s", "peak_mib", "first_s")


def _solved(problem: Problem, began: float, seconds: float, seed: int, deterministic: bool) -> dict[str, Any]:
    first: list[float] = []

    def tell(progress: Progress) -> None:
        if progress.incumbent is not None and not first:
            first.append(round(time.perf_counter() - began, 1))

    left = seconds - (time.perf_counter() - began)
    found = solve(problem, time_limit=left, seed=seed, deterministic=deterministic, on_progress=tell)
    return {
        "seed": seed,
        "status": found.status,
        "cost": found.cost,
        "bound": found.bound,
        "gap": found.gap,
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_s": round(time.process_time(), 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "first_s": first[0] if first else None,
        "choice": found.choice,
    }


def _public(path: Path, seconds: float, seed: int, deterministic: bool) -> dict[str, Any]:
    began = time.perf_counter()
    document = read_document(path)
    row = _solved(problem_from(document), began, seconds, seed, deterministic)
    choice = row.pop("choice")
    judged = None if choice is None else evaluate_document(document, choice)
    row["judged"] = judged is not None and judged.feasible and judged.cost == row["cost"]
    return row


def _look_alike(kind: str, seed: int, deterministic: bool) -> dict[str, Any]:
    problem, optimum = planted(seed, CLASSES[kind])
    row = _solved(problem, time.perf_counter(), KIND_SECONDS, seed, deterministic)
    choice = row.pop("choice")
    row["known"] = optimum
    row["judged"] = choice is not None and evaluate(problem, choice).cost == row["cost"]
    return row


def _alone(target: Any, *arguments: Any) -> dict[str, Any]:
    """In a fresh process, so that memory and time are its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        row: dict[str, Any] = pool.apply(target, arguments)
    return row


def table(result: dict[str, Any]) -> str:
    """The public instances as the README shows them."""
    lines = ["| instance | nodes | contest's winner | ours | proven not below | gap | seconds |", "|---" * 7 + "|"]
    for row in result["runs"]:
        if "winner_contest" in row:
            cells = (f"{row[key]:,}" for key in ("nodes", "winner_contest", "cost", "bound"))
            lines.append(f"| {row['instance']} | {' | '.join(cells)} | {row['gap']:.0e} | {row['seconds']:.0f} |")
    return "\n".join(lines)


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| instance | seed | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 2) + "|"]
    for row in rows:
        cells = [f"{row[key]:.2e}" if key == "gap" and row[key] is not None else row.get(key) for key in COLUMNS]
        shown = " | ".join(
            "-" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells
        )
        lines.append(f"| {row['instance']} | {row['seed']} | {shown} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--instances", nargs="*")
    parser.add_argument("--kinds", nargs="*", choices=list(CLASSES), default=list(CLASSES))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--deterministic", action="store_true")
    asked = parser.parse_args()
    reference = json.loads((asked.folder / "reference.json").read_text())["instances"]
    rows = []
    for name in reference if asked.instances is None else asked.instances:
        stated = reference[name]
        known = {
            "winner_contest": stated["winner_contest"],
            "winner_rerun": stated["winner_rerun"],
            "known": stated["best"],
        }
        path = asked.folder / f"{name}.json.gz"
        for seed in asked.seeds:
            row = _alone(_public, path, stated["limit_s"], seed, asked.deterministic)
            rows.append({"instance": name, "nodes": stated["nodes"], **known, **row})
            print(_table(rows[-1:]), flush=True)
    for kind in asked.kinds:
        for seed in asked.seeds:
            rows.append({"instance": kind, **_alone(_look_alike, kind, seed, asked.deterministic)})
            print(_table(rows[-1:]), flush=True)
    write("solver", {"deterministic": asked.deterministic, "runs": rows})
    print(_table(rows))


if __name__ == "__main__":
    main()
