"""Runs the solver on synthetic instances that resemble every class of public ones; it was not tuned on them.

    python -m benchmarks.solver_synthetic [--names U-Net ...] [--seeds 0 1 ...] [--layered] [--no-twins] [--cross-cuts]

Each network (tests/testing/synthetic_instances) is solved as it is, where the proven gap bounds the loss, and as a
twin of the same structure with a known optimum (tests/testing/solver_instances.py), where the loss is known.
--layered adds random layered graphs with known optima. --cross-cuts runs instead a family of ten, each of which many
time steps cut (tests/testing/cross_cuts.py), for 60 seconds each. Every run is a process of its own.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from benchmarks.record import write
from benchmarks.solver_run import alone, rows_shown, solved
from solvers import Problem, evaluate
from tests.testing.cross_cuts import cross_cut
from tests.testing.solver_instances import CLASSES, planted, twin
from tests.testing.synthetic_instances import LOOKS, look_alike

SECONDS, LARGE_SECONDS, LARGE_NODES = 60.0, 180.0, 10_000
CROSS_CUTS = 10
COLUMNS = ("nodes", "left", "known", "cost", "bound", "gap", "seconds", "presolve_s", "cpu_s", "peak_mib", "first_s")


def _run(problem: Problem, known: int | None, seed: int, most: float) -> dict[str, Any]:
    nodes = problem.arrays.node_start.size - 1
    seconds = min(most, LARGE_SECONDS if nodes >= LARGE_NODES else SECONDS)
    row = solved(problem, time.perf_counter(), seconds, seed, False)
    choice = row.pop("choice")
    judged = None if choice is None else evaluate(problem, choice)
    right = judged is not None and judged.feasible and judged.cost == row["cost"]
    return {"nodes": nodes, "known": known, **row, "judged": right}


def as_it_is(name: str, seed: int, most: float) -> dict[str, Any]:
    return _run(look_alike(name, seed), None, seed, most)


def its_twin(name: str, seed: int, most: float) -> dict[str, Any]:
    return _run(*twin(look_alike(name, seed), seed), seed, most)


def layered(name: str, seed: int, most: float) -> dict[str, Any]:
    return _run(*planted(seed, CLASSES[name]), seed, most)


def cross_cut_number(name: str, seed: int, most: float) -> dict[str, Any]:
    return _run(cross_cut(int(name.split()[-1])), None, seed, min(most, SECONDS))


def table(result: dict[str, Any]) -> str:
    """Return a Markdown table: each network's proven gap, and how far its twin's cost is above the known optimum."""
    lines = ["| network | nodes | first assignment | proven gap | twin above its optimum |", "|---" * 5 + "|"]
    twins = {(row["instance"], row["seed"]): row for row in result["runs"] if row["known"] is not None}
    for row in result["runs"]:
        known = twins.get((f"{row['instance']}, twin", row["seed"]))
        if row["known"] is None and known is not None:
            cells = (f"{row['nodes']:,}", f"{row['first_s']} s", _share(row["gap"]), _share(_above(known)))
            lines.append(f"| {row['instance']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _above(row: dict[str, Any]) -> float | None:
    return None if row["cost"] is None else float(row["cost"] / row["known"] - 1)


def _share(value: float | None) -> str:
    return "none found" if value is None else f"{100 * value:.3f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="*", default=[""])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--layered", action="store_true")
    parser.add_argument("--no-twins", action="store_true")
    parser.add_argument("--cross-cuts", action="store_true")
    parser.add_argument("--seconds", type=float, default=LARGE_SECONDS, help="at most, of each run")
    asked = parser.parse_args()
    ways = [(as_it_is, "")] if asked.no_twins else [(as_it_is, ""), (its_twin, ", twin")]
    runs = [(name, how, extra) for name in LOOKS for how, extra in ways]
    runs += [(name, layered, ", layered") for name in CLASSES if asked.layered]
    if asked.cross_cuts:
        runs = [(f"cross-cut {number}", cross_cut_number, "") for number in range(CROSS_CUTS)]
    rows: list[dict[str, Any]] = []
    for name, how, extra in runs:
        if any(part in name for part in asked.names):
            for seed in asked.seeds:
                rows.append({"instance": name + extra, **alone(how, name, seed, asked.seconds)})
                print(rows_shown(rows[-1:], COLUMNS), flush=True)
    name = "solver_cross_cuts" if asked.cross_cuts else "solver_synthetic"
    write(name, {"seconds": asked.seconds, "load": os.getloadavg()[1], "runs": rows})


if __name__ == "__main__":
    main()
