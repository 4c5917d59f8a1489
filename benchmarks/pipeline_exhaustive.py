"""Compares pipeline stages of random small steps with trying everything.

    python -m benchmarks.pipeline_exhaustive [--time-limit SECONDS]

Random training steps of two or three layers are planned in two stages on meshes of two devices, every other one under a
memory limit, in each schedule, and compared with all partitions and choices of layouts
(`tests.testing.exhaustive_stages`). `is_separate` compares with the choices in which each stage has the least time of
its own passes and update, which is what stages are planned for before they may receive in parts: the step is no longer
than the best of these. `above` is by how much it exceeds the least of all choices, in which a stage may be slower for
the sake of what it sends.

Rows are written one after the other, and those of an earlier run at the same commit are kept, so that the command may
be ended and run again. With a limit no row begins after so many seconds. No figure depends on the machine's load.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from benchmarks.measured import MEASURED, measured_commit
from benchmarks.record import read_last, write
from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.ir.mesh import Mesh
from planner.units import format_share
from tests.testing.exhaustive_stages import compare_stages

NAME = "pipeline_exhaustive"
HARDWARE, GRAPHS = "h100-sxm", 500
Row = dict[str, Any]


def compare_graph(seed: int) -> Row:
    """Return what is found of a random step: the shares by which it is above the least, and whether bounds hold.

    `above` is None where nothing fits.
    """
    began = time.process_time()
    rows = list(compare_stages(seed, [CostModel(Mesh.parse("2"), load_profile(HARDWARE))]))
    return {
        "seed": seed,
        "is_bound_below": all(row.bound_ps <= row.least_ps for row in rows),
        "is_separate": all(row.is_separate for row in rows),
        "above": [row.above if row.is_fitting else None for row in rows],
        "cpu_s": round(time.process_time() - began, 2),
    }


def read_rows() -> list[Row]:
    """Return the rows of an earlier run at the same commit."""
    known = read_last(NAME) or {}
    return list(known["rows"]) if known.get("commit") == measured_commit(MEASURED[NAME]) else []


def table(result: Row) -> str:
    """Return what was found, in a sentence."""
    rows = result["rows"]
    above = [share for row in rows for share in row["above"] if share is not None]
    fitting, total = len(above), sum(len(row["above"]) for row in rows)
    return (
        f"{len(rows)} of {GRAPHS} random steps, {total} with their schedules, of which {fitting} fit: bounds hold in "
        f"{sum(row['is_bound_below'] for row in rows)}, and {sum(row['is_separate'] for row in rows)} are no "
        "longer than the best of all partitions of stages that each take the least time. Of all choices "
        f"{sum(not each for each in above)} of {fitting} are the best, and no step is more than "
        f"{format_share(max(above, default=0.0))} longer."
    )


def main() -> None:
    """Compare every step that is not known yet, writing the result after each."""
    reader = argparse.ArgumentParser(description="Compare pipeline stages with trying everything.")
    reader.add_argument("--time-limit", type=float, default=float("inf"), help="begin no row after so many seconds")
    ends_s, rows = time.monotonic() + reader.parse_args().time_limit, read_rows()
    for seed in range(len(rows), GRAPHS):
        rows.append(compare_graph(seed))
        write(NAME, {"hardware": HARDWARE, "rows": rows}, show=False)
        print(rows[-1], flush=True)
        if time.monotonic() > ends_s:
            break


if __name__ == "__main__":
    main()
