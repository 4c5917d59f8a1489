"""Runs the solver on synthetic instances that resemble every class of public ones; it was not tuned on them.

    python -m benchmarks.solver_synthetic [--names U-Net ...] [--seeds 0 1 ...] [--layered] [--twins]

Each network (tests/testing/synthetic_instances) is solved as it is, where the proven gap bounds the loss. --twins adds
twins of the same structure with a known optimum (tests/testing/solver_instances.py), where the loss is known, and
--layered random layered graphs with known optima. Every run is a process of its own.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from benchmarks.record import write
from benchmarks.solver_run import alone, rows_shown, solved
from solvers import Problem, evaluate
from tests.testing.solver_instances import CLASSES, planted, twin
from tests.testing.synthetic_instances import LOOKS, look_alike

SECONDS = 60.0
COLUMNS = ("nodes", "left", "known", "cost", "bound", "gap", "seconds", "presolve_s", "cpu_s", "peak_mib", "first_s")


def run_judged(problem: Problem, known: int | None, seed: int, seconds: float) -> dict[str, Any]:
    """Return the row of one solve; `known`: the optimum, where it is known."""
    row = solved(problem, time.perf_counter(), seconds, seed, False)
    choice = row.pop("choice")
    judged = None if choice is None else evaluate(problem, choice)
    right = judged is not None and judged.feasible and judged.cost == row["cost"]
    return {"nodes": problem.arrays.node_start.size - 1, "known": known, **row, "judged": right}


def as_it_is(name: str, seed: int, seconds: float) -> dict[str, Any]:
    return run_judged(look_alike(name, seed), None, seed, seconds)


def its_twin(name: str, seed: int, seconds: float) -> dict[str, Any]:
    return run_judged(*twin(look_alike(name, seed), seed), seed, seconds)


def layered(name: str, seed: int, seconds: float) -> dict[str, Any]:
    return run_judged(*planted(seed, CLASSES[name]), seed, seconds)


def table(result: dict[str, Any]) -> str:
    """Return a Markdown table: each network's cost, proven gap and, where twins ran, how far its twin's cost is above
    the known optimum."""
    twins = {(row["instance"], row["seed"]): row for row in result["runs"] if row["known"] is not None}
    titles = ("network", "nodes", "first assignment", "cost", "proven gap", "twin above its optimum")
    shown = titles if twins else titles[:-1]
    lines = [f"| {' | '.join(shown)} |", "|---" * len(shown) + "|"]
    for row in (row for row in result["runs"] if row["known"] is None):
        twin_row = twins.get((f"{row['instance']}, twin", row["seed"]))
        cost = "-" if row["cost"] is None else f"{row['cost']:,}"
        cells = [row["instance"], f"{row['nodes']:,}", f"{row['first_s']} s", cost, show_share(row["gap"])]
        cells += ["-" if twin_row is None else show_share(_above(twin_row))] if twins else []
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _above(row: dict[str, Any]) -> float | None:
    return None if row["cost"] is None else float(row["cost"] / row["known"] - 1)


def show_share(value: float | None) -> str:
    """Return a share in percent; None: no assignment was found."""
    return "none found" if value is None else f"{100 * value:.3f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="*", default=[""])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--layered", action="store_true")
    parser.add_argument("--twins", action="store_true")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each run")
    asked = parser.parse_args()
    ways = [(as_it_is, ""), (its_twin, ", twin")] if asked.twins else [(as_it_is, "")]
    runs = [(name, how, extra) for name in LOOKS for how, extra in ways]
    runs += [(name, layered, ", layered") for name in CLASSES if asked.layered]
    rows: list[dict[str, Any]] = []
    for name, how, extra in runs:
        if any(part in name for part in asked.names):
            for seed in asked.seeds:
                rows.append({"instance": name + extra, **alone(how, name, seed, asked.seconds)})
                print(rows_shown(rows[-1:], COLUMNS), flush=True)
    write("solver_synthetic", {"seconds": asked.seconds, "load": os.getloadavg()[1], "runs": rows})


if __name__ == "__main__":
    main()
