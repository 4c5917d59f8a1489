"""Runs the solver on ten random instances of few nodes, many pairs and thousands of time steps.

    python -m benchmarks.solver_cross_cuts [--seconds SECONDS]

They are in the style of public instances of large language models (tests/testing/cross_cuts.py); the solver was not
tuned on them. Every run is a process of its own.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from benchmarks.record import write
from benchmarks.solver_run import alone, rows_shown
from benchmarks.solver_synthetic import COLUMNS, SECONDS, run_judged, show_share
from tests.testing.cross_cuts import cross_cut

INSTANCES = 10


def run(number: int, seconds: float) -> dict[str, Any]:
    return run_judged(cross_cut(number), None, 0, seconds)


def table(result: dict[str, Any]) -> str:
    """Return a Markdown table: the size, cost and proven gap of each instance."""
    lines = ["| instance | nodes | after presolve | first assignment | cost | proven gap |", "|---" * 6 + "|"]
    for row in result["runs"]:
        cost = "-" if row["cost"] is None else f"{row['cost']:,}"
        cells = (f"{row['nodes']:,}", str(row["left"]), f"{row['first_s']} s", cost, show_share(row["gap"]))
        lines.append(f"| {row['instance']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each run")
    asked, rows = parser.parse_args(), list[dict[str, Any]]()
    for number in range(INSTANCES):
        rows.append({"instance": number, **alone(run, number, asked.seconds)})
        print(rows_shown(rows[-1:], COLUMNS), flush=True)
        write("solver_cross_cuts", {"seconds": asked.seconds, "load": os.getloadavg()[1], "runs": rows}, show=False)


if __name__ == "__main__":
    main()
