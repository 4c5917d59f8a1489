"""Runs the solver on public instances: cost, bound, gap, seconds and memory, compared with the known results.

    python -m benchmarks.solver FOLDER [--instances A M ...] [--seeds 0 1 ...] [--deterministic]

FOLDER holds NAME.json.gz in the contest's format and reference.json (known results and time limits). Each run is a
process of its own. Seconds are wall clock from opening the file, with reading and presolve (presolve_s: presolve
alone, run once more); cpu_s counts all processes, and load is the machine's average of the last minute, at the end: on
two cores more than 2 means that others took their share. Every cost is evaluated again on the document itself. Runs of
other instances and seeds in the last result are kept, each with its commit. Without a folder nothing is run.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median_low
from typing import Any

from benchmarks.measured import MEASURED, measured_commit
from benchmarks.record import read_last, write
from benchmarks.solver_run import alone, rows_shown, solved
from solvers.iopddl import build_problem, read_document
from tests.testing.iopddl_evaluation import evaluate_document

COLUMNS = (
    "winner_contest", "winner_rerun", "known", "cost", "bound", "gap", "seconds", "presolve_s", "cpu_s", "peak_mib",
    "first_s",
)  # fmt: skip


def _public(path: Path, seconds: float, seed: int, deterministic: bool) -> dict[str, Any]:
    began = time.perf_counter()
    document = read_document(path)
    row = solved(build_problem(document), began, seconds, seed, deterministic)
    choice = row.pop("choice")
    judged = None if choice is None else evaluate_document(document, choice)
    row["load"] = round(os.getloadavg()[0], 1)
    row["judged"] = judged is not None and judged.feasible and judged.cost == row["cost"]
    return row


def table(result: dict[str, Any]) -> str:
    """Return the public instances as a Markdown table: of several seeds the median cost, and the worst of the rest."""
    lines = ["| instance | nodes | contest's winner | ours | lower bound | gap | seconds | commits |", "|---" * 8 + "|"]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in result["runs"]:
        if "winner_contest" in row:
            by_name.setdefault(row["instance"], []).append(row)
    for name, rows in by_name.items():
        costs = sorted(row["cost"] for row in rows)
        ours = f"{median_low(costs):,}"
        if len(rows) > 1:
            spread = f", {costs[0]:,} to {costs[-1]:,}" if costs[0] < costs[-1] else ""
            ours += f" ({'median of' if spread else 'each of'} {len(rows)} seeds{spread})"
        nodes, winner, bound = rows[0]["nodes"], rows[0]["winner_contest"], max(row["bound"] for row in rows)
        gaps, seconds = sorted({f"{row['gap']:.0e}" for row in rows}, key=float), max(row["seconds"] for row in rows)
        gap = gaps[0] if len(gaps) == 1 else f"{gaps[0]} to {gaps[-1]}"
        commits = ", ".join(dict.fromkeys(row["commit"] for row in rows))
        lines.append(f"| {name} | {nodes:,} | {winner:,} | {ours} | {bound:,} | {gap} | {seconds:.0f} | {commits} |")
    return "\n".join(lines)


def _kept(rows: list[dict[str, Any]], deterministic: bool) -> list[dict[str, Any]]:
    """Return the rows of the last result that are not replaced by these."""
    last, again = read_last(_name(deterministic)) or {"runs": []}, {(row["instance"], row["seed"]) for row in rows}
    return [row for row in last["runs"] if "winner_contest" in row and (row["instance"], row["seed"]) not in again]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--instances", nargs="*")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--deterministic", action="store_true")
    asked = parser.parse_args()
    if asked.folder is None:
        print("no folder with public instances given")
        return
    reference = json.loads((asked.folder / "reference.json").read_text())["instances"]
    rows: list[dict[str, Any]] = []
    for name in reference if asked.instances is None else asked.instances:
        stated = reference[name]
        known = {key: stated[key] for key in ("nodes", "winner_contest", "winner_rerun")} | {"known": stated["best"]}
        path = asked.folder / f"{name}.json.gz"
        for seed in asked.seeds:
            row = alone(_public, path, stated["limit_s"], seed, asked.deterministic)
            rows.append({"instance": name, "commit": measured_commit(MEASURED["solver"]), **known, **row})
            _write(rows, list(reference), asked.deterministic)
    print(rows_shown(rows, COLUMNS))


def _write(rows: list[dict[str, Any]], order: list[str], deterministic: bool) -> None:
    """Write the result; called after every run, so that an interrupted benchmark loses nothing."""
    runs = sorted([*_kept(rows, deterministic), *rows], key=lambda row: (order.index(row["instance"]), row["seed"]))
    write(_name(deterministic), {"deterministic": deterministic, "runs": runs})


def _name(deterministic: bool) -> str:
    return "solver_deterministic" if deterministic else "solver"


if __name__ == "__main__":
    main()
